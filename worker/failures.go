package worker

import (
	"container/list"
	"context"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/keyedqueue/workqueue/internal/keytable"
)

// FailedKey is a key whose last call has failed.
type FailedKey[T comparable] struct {
	Key T `json:"key"`
	// Attempt is how many calls have failed in a row.
	Attempt int `json:"attempt"`
	// Err is the text of the last error, at most 1 KiB of it.
	Err string `json:"error"`
	// Time is when the last call ended.
	Time time.Time `json:"time"`
	// NextTry is when the key comes due. It is zero if the key was dropped, is queued or being handled, and if
	// the time is not known: see [Pool.Snapshot].
	NextTry time.Time `json:"next_try,omitzero"`
}

const (
	maxErrorText = 1 << 10
	// keepErrors is the number of failing keys whose last errors are kept: those that have failed last.
	keepErrors = 10_000
)

// errorText returns the text of err, cut where it is too long. It does not keep the rest in memory.
func errorText(err error) string {
	s := fmt.Sprint(err) // Not err.Error(), which panics for a nil pointer of an error type.
	if len(s) <= maxErrorText {
		return s
	}
	end := maxErrorText
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return strings.Clone(s[:end])
}

func (c *call[T]) failedKey() FailedKey[T] {
	return FailedKey[T]{Key: c.Key, Attempt: c.Attempt, Err: errorText(c.Err), Time: c.Started.Add(c.Duration)}
}

// failures counts, for each key, how many calls in a row have failed, and keeps the last errors of the keys that
// have failed last. A key that has not failed takes no memory.
type failures[T comparable] struct {
	// n is the number of keys. It is written under mu and read without, so that a key costs next to nothing while
	// none fails.
	n      atomic.Int64
	mu     sync.Mutex
	keys   keytable.Table[T, failureCount] // guarded by mu
	errors recent[T]
}

// failureCount is what is known of every failing key.
type failureCount struct {
	calls int // how many have failed in a row
	// limited reports that the queue's limiter counts the key's failures. If its count is zero later, somebody else
	// has called Forget.
	limited bool
}

// of returns how many calls of key have failed in a row.
func (f *failures[T]) of(key T) failureCount {
	if f.n.Load() == 0 {
		return failureCount{}
	}
	h := keytable.HashOf(key)
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, e := f.keys.Find(h, key); e != nil {
		return e.Value
	}
	return failureCount{}
}

// set replaces key's count.
func (f *failures[T]) set(key T, c failureCount) {
	h := keytable.HashOf(key)
	f.mu.Lock()
	defer f.mu.Unlock()
	_, e, _ := f.keys.FindOrInsert(h, key)
	e.Value = c
	f.n.Store(int64(f.keys.Len()))
}

// forget removes key.
func (f *failures[T]) forget(key T) {
	if f.n.Load() > 0 {
		f.forgetIf(key, f.of(key))
	}
}

// forgetIf removes key unless its count has changed since it was c.
func (f *failures[T]) forgetIf(key T, c failureCount) {
	h := keytable.HashOf(key)
	f.mu.Lock()
	defer f.mu.Unlock()
	if s, e := f.keys.Find(h, key); e != nil && e.Value == c {
		f.keys.Delete(s)
		f.n.Store(int64(f.keys.Len()))
		f.errors.forget(key)
	}
}

// all yields the failing keys. It copies a few hundred at a time, and holds no lock while it yields them.
func (f *failures[T]) all() iter.Seq2[T, failureCount] {
	type failing struct {
		key   T
		count failureCount
	}
	slab := func(n int) (keys []failing, more bool) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for s := range f.keys.LiveSlots(n) {
			e := f.keys.At(s)
			keys = append(keys, failing{e.Key, e.Value})
		}
		return keys, n < f.keys.Slabs()
	}
	return func(yield func(T, failureCount) bool) {
		for n, more := 0, true; more; n++ {
			var keys []failing
			keys, more = slab(n)
			for _, k := range keys {
				if !yield(k.key, k.count) {
					return
				}
			}
		}
	}
}

// Forget makes the pool forget that key has failed or was dropped: for a program that removes a key from the queue, or
// handles it, by itself. (If the key was failing, the pool finds out within a minute; see [Pool.Snapshot].) It
// does not touch the queue.
func (p *Pool[T]) Forget(key T) {
	p.failures.forget(key)
	p.dropped.forget(key)
}

// sweepFailures forgets what is stale, until enough returns true: the queue may be slow to answer.
func (p *Pool[T]) sweepFailures(enough func() bool) {
	for key, c := range p.failures.all() {
		if enough() {
			return
		}
		if p.isStale(context.Background(), key, c) {
			p.failures.forgetIf(key, c)
		}
	}
}

// isStale reports whether a key that has failed so often was removed from the queue since, or forgotten by
// somebody else. A key counts as failing as long as the queue cannot answer. isStale waits for the answer until ctx ends.
func (p *Pool[T]) isStale(ctx context.Context, key T, c failureCount) bool {
	if c.limited && p.isForgotten(ctx, key) {
		return true
	}
	if c.calls == 0 || p.finder == nil || p.queue.ShuttingDown() { // A shutdown drops keys that are to be reported.
		return false
	}
	return !p.finder.Has(key)
}

// isForgotten reports whether the queue's limiter counts no failures of key.
func (p *Pool[T]) isForgotten(ctx context.Context, key T) bool {
	if p.requeues == nil {
		return p.queue.NumRequeues(key) == 0
	}
	n, err := p.requeues.NumRequeuesContext(ctx, key)
	return n == 0 && err == nil
}

// recent keeps the failures that were put in last, at most max of them, each key once.
type recent[T comparable] struct {
	max int

	mu    sync.Mutex // guards what follows
	byKey map[T]*list.Element
	order list.List // of FailedKey[T], the last one first
}

func (r *recent[T]) put(f FailedKey[T]) {
	if r.max <= 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removeLocked(f.Key)
	if r.order.Len() == r.max {
		r.removeLocked(r.order.Back().Value.(FailedKey[T]).Key)
	}
	if r.byKey == nil {
		r.byKey = make(map[T]*list.Element)
	}
	r.byKey[f.Key] = r.order.PushFront(f)
}

func (r *recent[T]) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.order.Len()
}

func (r *recent[T]) forget(key T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removeLocked(key)
}

func (r *recent[T]) removeLocked(key T) {
	if e, ok := r.byKey[key]; ok {
		r.order.Remove(e)
		delete(r.byKey, key)
	}
	if len(r.byKey) == 0 {
		r.byKey = nil // A map does not shrink.
	}
}

// newest returns up to limit failures, the last one first.
func (r *recent[T]) newest(limit int) []FailedKey[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	keys := []FailedKey[T]{}
	for e := r.order.Front(); e != nil && len(keys) < limit; e = e.Next() {
		keys = append(keys, e.Value.(FailedKey[T]))
	}
	return keys
}
