// Package failures counts, for a queue in memory, how often each key has failed in a row. It has the rule of
// what a failure is: see Fail of workqueue.ExtendedRateLimiting.
package failures

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/internal/expiring"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"k8s.io/utils/clock"
)

// Failure, Retry and Failures mirror package workqueue's.
type (
	Failure struct {
		Err        error
		AtLeast    time.Duration
		MaxRetries int
		RetryFor   time.Duration
		Terminal   bool
	}
	Retry struct {
		Attempt int
		Delay   time.Duration
		Same    bool
		GivenUp bool
	}
	Failures struct {
		Count int
		Left  time.Duration
		Since time.Time
		Err   string
	}
)

// endsRetries reports whether f, the n-th failure in a row, gives the key up. The first was so long ago.
func (f Failure) endsRetries(n int, ago time.Duration) bool {
	return f.Terminal || f.MaxRetries != 0 && n > f.MaxRetries || f.RetryFor > 0 && ago > f.RetryFor
}

// maxErr is how many bytes of an error are kept.
const maxErr = 512

// textOf returns the text of an error as it is kept.
func textOf(err error) string {
	if err == nil {
		return ""
	}
	text := fmt.Sprint(err) // err.Error() may panic, for instance because err is a nil pointer.
	if len(text) > maxErr {
		const cut = "…"
		text = strings.ToValidUTF8(text[:maxErr-len(cut)], "") + cut
	}
	return text
}

// Counts has the failures of each key that fails. A key is dropped by Forget, or an hour after its delay has
// ended, unless it is in the queue then. While no key fails, Of and Forget cost one atomic load. No foreign
// code but the clock runs under its lock.
type Counts[T comparable] struct {
	// some reports whether keys has any. It is written under the lock of keys and read without.
	some    atomic.Bool
	keys    expiring.Keys[T, count]
	inQueue func(key T) bool
}

// count is what is known of a key. Times are on the scale of keys.Now.
type count struct {
	n     int
	since time.Duration // the first failure
	ends  time.Duration // the delay of the last one
	err   string
}

const (
	// keep is how long a key is kept after the end of its delay.
	keep = time.Hour
	// maxSwept is how many expired keys a call asks inQueue about.
	maxSwept = 1 << 10
)

// New returns Counts on that clock. The function inQueue reports whether a key is in the queue.
func New[T comparable](c clock.PassiveClock, inQueue func(key T) bool) *Counts[T] {
	return &Counts[T]{keys: expiring.New[T, count](c), inQueue: inQueue}
}

// Of returns what is known of the failures of key.
func (c *Counts[T]) Of(key T) (f Failures) {
	if !c.some.Load() {
		return f
	}
	h := keytable.HashOf(key)
	c.keys.Mu.Lock()
	defer c.keys.Mu.Unlock()
	c.keys.AdvanceLocked()
	if _, e := c.keys.Table.Find(h, key); e != nil {
		v := &e.Value
		f = Failures{v.n, max(0, v.ends-c.keys.Now), c.keys.TimeLocked(v.since), v.err}
	}
	return f
}

// Judge returns what follows from a failure of key, whose hash is h. It asks the limiter, without a lock,
// only about a new failure that is retried. If the caller says so, or if the last delay has not passed, it is
// the same failure as the last one. The caller may change Delay, and calls Record unless the key is given up:
// Judge drops such a key.
func (c *Counts[T]) Judge(h keytable.Hash, key T, f Failure, limiter Limiter[T], isSame bool) Retry {
	c.sweep()
	r := c.judge(h, key, f, isSame)
	if !r.Same && !r.GivenUp {
		r.Delay = Ask(limiter, key, r.Attempt)
	}
	if !r.GivenUp {
		r.Delay = max(r.Delay, f.AtLeast, 0)
	}
	return r
}

// judge is Judge before the limiter is asked.
func (c *Counts[T]) judge(h keytable.Hash, key T, f Failure, isSame bool) (r Retry) {
	c.keys.Mu.Lock()
	defer c.keys.Mu.Unlock()
	c.keys.AdvanceLocked()
	s, e := c.keys.Table.Find(h, key)
	if e == nil {
		return Retry{Attempt: 1, GivenUp: f.endsRetries(1, 0)}
	}
	v := &e.Value
	r = Retry{Attempt: v.n, Delay: max(0, v.ends-c.keys.Now)}
	if r.Same = isSame || r.Delay > 0; !r.Same {
		r.Attempt++
	}
	if f.endsRetries(r.Attempt, c.keys.Now-v.since) {
		c.dropLocked(s)
		r.GivenUp, r.Delay = true, 0
	}
	return r
}

// Record keeps a failure that is retried.
func (c *Counts[T]) Record(h keytable.Hash, key T, r Retry, err error) {
	text := textOf(err)
	c.keys.Mu.Lock()
	defer c.keys.Mu.Unlock()
	c.keys.AdvanceLocked()
	s, e, inserted := c.keys.Table.FindOrInsert(h, key)
	v := &e.Value
	if inserted {
		v.since = c.keys.Now
	}
	v.n, v.err, v.ends = min(r.Attempt, math.MaxInt32), text, dueloop.AddSaturated(c.keys.Now, r.Delay)
	c.keys.SetLifeLocked(s, dueloop.AddSaturated(r.Delay, keep))
	c.some.Store(true)
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
	c.keys.Mu.Lock()
	defer c.keys.Mu.Unlock()
	c.keys.AdvanceLocked()
	return c.keys.ExpiredLocked(maxSwept)
}

// settle drops an expired key, or keeps it for another hour. A key that has failed again has not expired.
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

// Len returns how many keys fail.
func (c *Counts[T]) Len() int {
	c.keys.Mu.Lock()
	defer c.keys.Mu.Unlock()
	return c.keys.Table.Len()
}

// Show returns what show returns for up to limit of the keys that fail, those that have failed most first.
func Show[T comparable, S any](c *Counts[T], limit int, show func(T) (s S, inQueue bool)) (all []S) {
	if !c.some.Load() || limit <= 0 {
		return nil
	}
	for _, f := range c.worst(limit) {
		if s, _ := show(f.key); c.Of(f.key).Count > 0 { // It still fails.
			all = append(all, s)
		}
	}
	return all
}

// failing is a key with the number of its failures.
type failing[T comparable] struct {
	key T
	n   int
}

// worst returns up to limit keys, those that have failed most first. It locks a few hundred at a time. A key
// that is forgotten meanwhile and fails again may come twice.
func (c *Counts[T]) worst(limit int) (keys []failing[T]) {
	cut := func() {
		slices.SortStableFunc(keys, func(a, b failing[T]) int { return cmp.Compare(b.n, a.n) })
		keys = keys[:min(limit, len(keys))]
	}
	add := func(all []failing[T], s keytable.Slot) []failing[T] {
		e := c.keys.Table.At(s)
		return append(all, failing[T]{e.Key, e.Value.n})
	}
	for f := range keytable.InSteps(&c.keys.Table, c.keys.Mu.Lock, c.keys.Mu.Unlock, add) {
		if keys = append(keys, f); len(keys)/2 > limit { // Memory for twice as many is enough.
			cut()
		}
	}
	cut()
	return keys
}

// Limiter says how long a key that has failed waits.
type Limiter[T comparable] interface{ When(key T) time.Duration }

// Ask asks the limiter how long a key waits after its n-th failure in a row. One without Delay counts by
// itself, and is asked once for each new failure.
func Ask[T comparable](limiter Limiter[T], key T, n int) time.Duration {
	if l, ok := limiter.(interface {
		Delay(key T, n int) time.Duration
	}); ok {
		return l.Delay(key, n)
	}
	return limiter.When(key)
}
