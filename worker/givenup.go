package worker

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/keytable"
)

// FailedKey is a key that fails or was given up.
type FailedKey[T comparable] struct {
	Key T `json:"key"`
	// Attempt is how many calls have failed in a row.
	Attempt int `json:"attempt"`
	// Since is when the first of these calls ended.
	Since time.Time `json:"since"`
	// Err is the text of the last error: as much of it as the queue keeps, of a given-up key 1 KiB.
	Err string `json:"error"`
	// Time is when the key was given up, and zero for a failing key.
	Time time.Time `json:"time,omitzero"`
	// NextTry is when the key comes due. It is zero if the key does not wait or the time is not known.
	NextTry time.Time `json:"next_try,omitzero"`
}

// newFailingKey describes a failing key as its queue knows it.
func newFailingKey[T, K comparable](k workqueue.KeySnapshot[T], shown K) FailedKey[K] {
	f := FailedKey[K]{Key: shown, Attempt: k.Failures.Count, Since: k.Failures.Since, Err: k.Failures.Err}
	if k.State == workqueue.KeyWaiting {
		f.NextTry = k.Due
	}
	return f
}

// as returns f with the key as it is to be shown.
func as[T, K comparable](f FailedKey[T], shown K) FailedKey[K] {
	return FailedKey[K]{shown, f.Attempt, f.Since, f.Err, f.Time, f.NextTry}
}

const (
	maxErrorText = 1 << 10
	maxStack     = 8 << 10
)

// newGivenUp describes the key of a call that gives it up. Of any other call it is zero.
func (c *Tracked[T]) newGivenUp() (f FailedKey[T]) {
	if r := &c.result; r.Next == NextGiveUp {
		f = FailedKey[T]{Key: r.Key, Attempt: r.Attempt, Err: cut(fmt.Sprint(r.Err), maxErrorText),
			Time: r.Started.Add(r.Duration), Since: c.handOut.Failures.Since}
		if f.Since.IsZero() {
			f.Since = f.Time
		}
	}
	return f
}

// givenUpKeys has the last keys that were given up. The tracker's mu guards it.
type givenUpKeys[T comparable] struct {
	max      int    // Options.KeepGivenUp
	unlisted uint64 // how many keys there was no room for
	table    keytable.Table[T, FailedKey[T]]
	order    keytable.List // the last one last
	links    keytable.Lists
}

func (g *givenUpKeys[T]) add(key T, f FailedKey[T]) {
	s, e, _ := g.table.FindOrInsert(keytable.HashOf(key), key)
	e.Value = f
	g.links.Append(&g.order, s)
	if g.order.Len() > g.max {
		g.unlisted++
		g.removeAt(g.order.First())
	}
}

// find returns what is known of key, or nil.
func (g *givenUpKeys[T]) find(key T) *FailedKey[T] {
	if _, e := g.table.Lookup(key); e != nil {
		return &e.Value
	}
	return nil
}

func (g *givenUpKeys[T]) remove(key T) {
	if s, e := g.table.Lookup(key); e != nil {
		g.removeAt(s)
	}
}

func (g *givenUpKeys[T]) removeAt(s keytable.Slot) {
	g.links.Remove(&g.order, s)
	g.table.Delete(s)
	if !g.table.HasMemory(s) { // The list has its memory by blocks of slots, as the table.
		g.links.Release(s)
	}
}

// lastGivenUp returns up to limit keys that were given up, the last one first.
func lastGivenUp[T, K comparable](t *Tracker[T], limit int, show func(T) K) []FailedKey[K] {
	all := []FailedKey[K]{}
	t.mu.Lock()
	defer t.mu.Unlock()
	g := &t.mu.givenUp
	for s := g.order.Last(); s != keytable.None && len(all) < limit; s = g.links.Prev(s) {
		f := g.table.At(s).Value
		all = append(all, as(f, show(f.Key)))
	}
	return all
}

// panickedCall is a call that panicked. A tracker keeps the last ones, for KeySnapshot.PanicStack.
type panickedCall[T comparable] struct {
	key   T
	ended time.Time
	stack string
}

const maxPanics = 32

func (t *Tracker[T]) addPanicLocked(c panickedCall[T]) {
	if len(t.mu.panics) == maxPanics {
		t.mu.panics = slices.Delete(t.mu.panics, 0, 1)
	}
	t.mu.panics = append(t.mu.panics, c)
}

// panicStackLocked returns the stack of the last call for key that panicked since then, or nothing.
func (t *Tracker[T]) panicStackLocked(key T, since time.Time) (stack string) {
	for _, c := range t.mu.panics {
		if c.key == key && !c.ended.Before(since) {
			stack = c.stack
		}
	}
	return stack
}

// cut returns s, or the beginning of it if it is longer than size. It does not keep the rest in memory.
func cut(s string, size int) string {
	if len(s) <= size {
		return s
	}
	end := size
	for end > size-utf8.UTFMax && !utf8.RuneStart(s[end]) { // Text that is not UTF-8 may have no start.
		end--
	}
	return strings.Clone(s[:end])
}
