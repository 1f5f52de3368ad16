package worker

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
)

// FailedKey is a key that fails or was given up.
type FailedKey[T comparable] struct {
	Key T `json:"key"`
	// Attempt is how many calls have failed in a row.
	Attempt int `json:"attempt"`
	// Since is when the first of these calls ended.
	Since time.Time `json:"since"`
	// Err is the text of the last error, of a given-up key at most 1 KiB.
	Err string `json:"error"`
	// Time is when the key was given up, and zero for a failing key.
	Time time.Time `json:"time,omitzero"`
	// NextTry is when a waiting key comes due, if that is known.
	NextTry time.Time `json:"next_try,omitzero"`
}

// newFailingKey describes a failing key as its queue knows it.
func newFailingKey[T comparable](k workqueue.KeySnapshot[T]) FailedKey[T] {
	f := FailedKey[T]{Key: k.Key, Attempt: k.Failures.Count, Since: k.Failures.Since, Err: k.Failures.Err}
	if k.State == workqueue.KeyWaiting {
		f.NextTry = k.Due
	}
	return f
}

const maxErrorText = 1 << 10 // bytes

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

// maxGivenUp bounds the given-up keys that a tracker remembers.
const maxGivenUp = 1000

// givenUpKeys are the keys that were given up last. The tracker's mu guards it.
type givenUpKeys[T comparable] struct {
	keys  map[T]givenUpKey[T]
	added int // how many were ever added
}

type givenUpKey[T comparable] struct {
	FailedKey[T]
	number int // as they were given up
}

// add adds f, in place of the oldest one if there are too many.
func (g *givenUpKeys[T]) add(f FailedKey[T]) {
	g.added++
	added := givenUpKey[T]{f, g.added}
	g.keys[f.Key] = added
	if len(g.keys) <= maxGivenUp {
		return
	}
	oldest := added
	for _, k := range g.keys {
		if k.number < oldest.number {
			oldest = k
		}
	}
	delete(g.keys, oldest.Key)
}

// lastGivenUp returns the keys that were given up, the last one first.
func (t *Tracker[T]) lastGivenUp(atMost int) []FailedKey[T] {
	t.mu.Lock()
	all := slices.Collect(maps.Values(t.mu.givenUp.keys))
	t.mu.Unlock()
	slices.SortFunc(all, func(a, b givenUpKey[T]) int { return cmp.Compare(b.number, a.number) })
	return converted(first(atMost, all), func(k givenUpKey[T]) FailedKey[T] { return k.FailedKey })
}
