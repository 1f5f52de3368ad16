// Package failures counts, for a queue in memory, how often each key has failed in a row. It has the rule of
// what a failure is: see Fail of workqueue.ExtendedRateLimiting.
package failures

import (
	"iter"
	"math"
	"slices"
	"sort"
	"sync/atomic"
	"time"

	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/internal/expiring"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"k8s.io/utils/clock"
)

// Failure and Retry are those of package workqueue.
type (
	Failure struct {
		Err        error
		AtLeast    time.Duration
		MaxRetries int
		Terminal   bool
	}
	Retry struct {
		Attempt int
		Delay   time.Duration
		Same    bool
		GivenUp bool
	}
)

// EndsRetries reports whether f gives the key up, as its n-th failure in a row.
func (f Failure) EndsRetries(n int) bool { return f.Terminal || f.MaxRetries != 0 && n > f.MaxRetries }

// Counts has the number of failures, and the end of the last delay, of each key that fails. A key whose user
// never calls Forget is dropped an hour after its delay has ended, unless it is in the queue then. While no
// key fails, Of and Forget cost one atomic load.
//
// No foreign code but the clock runs under its lock. It is made by [New].
type Counts[T comparable] struct {
	// some reports whether keys has any. It is written under the lock of keys and read without.
	some atomic.Bool
	// keys counts the failures. A key's Span is when its delay ends, on the scale of keys.Now.
	keys    expiring.Keys[T]
	inQueue func(key T) bool
}

const (
	// keep is how long a key is kept after the end of its delay.
	keep = time.Hour
	// maxSwept is how many expired keys a call asks inQueue about.
	maxSwept = 1 << 10
)

// New returns Counts on that clock. The function inQueue reports whether a key is in the queue.
func New[T comparable](c clock.PassiveClock, inQueue func(key T) bool) *Counts[T] {
	return &Counts[T]{keys: expiring.New[T](c), inQueue: inQueue}
}

// Of returns how often key has failed, and what is left of its delay.
func (c *Counts[T]) Of(key T) (n int, left time.Duration) {
	if !c.some.Load() {
		return 0, 0
	}
	h := keytable.HashOf(key)
	c.keys.Mu.Lock()
	defer c.keys.Mu.Unlock()
	c.keys.AdvanceLocked()
	if _, e := c.keys.Table.Find(h, key); e != nil {
		n, left = int(e.Value.Count), c.leftLocked(&e.Value)
	}
	return n, left
}

func (c *Counts[T]) leftLocked(v *expiring.Value) time.Duration {
	return max(0, v.Span.Duration()-c.keys.Now)
}

// Fail applies the rule to a failure of key, which a worker holds. Only if it is a new one that is retried,
// Fail asks the limiter.
func (c *Counts[T]) Fail(key T, f Failure, limiter Limiter[T]) Retry {
	r := c.Judge(key, f, false)
	if !r.Same && !r.GivenUp {
		r.Delay = max(Ask(limiter, key), f.AtLeast, 0)
		c.Count(key, r)
	}
	return r
}

// Judge applies the rule before the limiter is asked: it prolongs the delay of the same failure to f.AtLeast,
// and drops a key that is given up. The caller counts a new failure. hasFailed reports that the worker that
// holds the key has failed already: then this is the same failure, also if its delay has passed.
func (c *Counts[T]) Judge(key T, f Failure, hasFailed bool) (r Retry) {
	c.sweep()
	h := keytable.HashOf(key)
	c.keys.Mu.Lock()
	defer c.keys.Mu.Unlock()
	c.keys.AdvanceLocked()
	s, e := c.keys.Table.Find(h, key)
	if e != nil {
		r.Attempt, r.Delay = int(e.Value.Count), c.leftLocked(&e.Value)
	}
	r.Same = r.Delay > 0 || hasFailed && e != nil
	if !r.Same {
		r.Attempt++
	}
	switch {
	case f.EndsRetries(r.Attempt):
		r.GivenUp, r.Delay = true, 0
		if e != nil {
			c.dropLocked(s)
		}
	case r.Same && f.AtLeast > r.Delay:
		r.Delay = f.AtLeast
		c.setDelayLocked(s, &e.Value, r.Delay)
	}
	return r
}

// Count records a new failure, whose delay is known.
func (c *Counts[T]) Count(key T, r Retry) {
	h := keytable.HashOf(key)
	c.keys.Mu.Lock()
	defer c.keys.Mu.Unlock()
	c.keys.AdvanceLocked()
	s, e, _ := c.keys.Table.FindOrInsert(h, key)
	e.Value.Count = uint32(min(r.Attempt, math.MaxInt32))
	c.setDelayLocked(s, &e.Value, r.Delay)
	c.some.Store(true)
}

// setDelayLocked makes the delay of the key at s end after d.
func (c *Counts[T]) setDelayLocked(s keytable.Slot, v *expiring.Value, d time.Duration) {
	v.Span = dueloop.Pack(dueloop.AddSaturated(c.keys.Now, d))
	c.keys.SetLifeLocked(s, dueloop.AddSaturated(d, keep))
}

// Forget ends the count of key.
func (c *Counts[T]) Forget(key T) {
	if !c.some.Load() {
		return
	}
	c.drop(key)
	c.sweep()
}

func (c *Counts[T]) drop(key T) {
	h := keytable.HashOf(key)
	c.keys.Mu.Lock()
	defer c.keys.Mu.Unlock()
	if s, e := c.keys.Table.Find(h, key); e != nil {
		c.dropLocked(s)
	}
}

func (c *Counts[T]) dropLocked(s keytable.Slot) {
	c.keys.DropLocked(s)
	c.some.Store(c.keys.Table.Len() > 0)
}

// sweep drops keys that have expired and are not in the queue.
func (c *Counts[T]) sweep() {
	for _, key := range c.expired() {
		c.settle(key, c.inQueue(key)) // The queue is asked without a lock.
	}
}

func (c *Counts[T]) expired() []T {
	if !c.some.Load() {
		return nil
	}
	c.keys.Mu.Lock()
	defer c.keys.Mu.Unlock()
	c.keys.AdvanceLocked()
	return c.keys.ExpiredLocked(maxSwept)
}

// settle drops an expired key, or keeps it for another hour. One that has failed again has not expired.
func (c *Counts[T]) settle(key T, inQueue bool) {
	h := keytable.HashOf(key)
	c.keys.Mu.Lock()
	defer c.keys.Mu.Unlock()
	s, e := c.keys.Table.Find(h, key)
	switch {
	case e == nil || c.keys.ExpiresLocked(s) > c.keys.Now:
	case inQueue:
		c.keys.SetLifeLocked(s, keep)
	default:
		c.dropLocked(s)
	}
}

// All yields the keys that fail, with their numbers. See List.
func (c *Counts[T]) All() iter.Seq2[T, int] {
	return List(&c.keys.Table, c.keys.Mu.Lock, c.keys.Mu.Unlock, func(s keytable.Slot) int {
		return int(c.keys.Table.At(s).Value.Count)
	})
}

// Limiter says how long a key that has failed waits.
type Limiter[T comparable] interface{ When(key T) time.Duration }

// IsNew marks a call of a limiter about a failure that the queue knows to be a new one.
type IsNew struct{}

// Ask asks the limiter about a new failure. Some of our limiters count a failure once for each delay that was
// served. They measure their own delay, and the queue may have served a shorter one: WhenNew makes them
// count. Its second parameter has a type that no limiter outside of this module can name.
func Ask[T comparable](limiter Limiter[T], key T) time.Duration {
	if l, ok := limiter.(interface{ WhenNew(T, IsNew) time.Duration }); ok {
		return l.WhenNew(key, IsNew{})
	}
	return limiter.When(key)
}

// Failing is a key with its failures.
type Failing[T comparable] struct {
	Key T
	N   int
}

// List yields the keys of t for whose slots count is not zero, with that number. It copies a few hundred
// under one lock and holds none while it yields them.
func List[T comparable, V any](t *keytable.Table[T, V], lock, unlock func(), count func(keytable.Slot) int) iter.Seq2[T, int] {
	add := func(counts []Failing[T], s keytable.Slot) []Failing[T] {
		if n := count(s); n > 0 {
			counts = append(counts, Failing[T]{t.At(s).Key, n})
		}
		return counts
	}
	return func(yield func(T, int) bool) {
		for c := range keytable.InSteps(t, lock, unlock, add) {
			if !yield(c.Key, c.N) {
				return
			}
		}
	}
}

// Most returns up to limit of the keys of all lists, those that have failed most first. A key that
// stands in several is listed once, with the larger number.
func Most[T comparable](limit int, lists ...iter.Seq2[T, int]) (most []Failing[T]) {
	for _, list := range lists {
		for key, n := range list {
			place := sort.Search(len(most), func(i int) bool { return most[i].N < n })
			if place == limit {
				continue
			}
			if i := slices.IndexFunc(most, func(m Failing[T]) bool { return m.Key == key }); i >= place {
				most = slices.Delete(most, i, i+1)
			} else if i >= 0 {
				continue
			}
			most = slices.Insert(most, place, Failing[T]{key, n})
			most = most[:min(len(most), limit)]
		}
	}
	return most
}
