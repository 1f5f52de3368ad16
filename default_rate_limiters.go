package workqueue

import (
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyedqueue/workqueue/internal/failures"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"golang.org/x/time/rate"
)

// TypedRateLimiter decides how long a key waits before it is retried. It is safe for concurrent use. Most
// keep a key until Forget.
type TypedRateLimiter[T comparable] interface {
	// When counts a failure of item, and returns how long it must wait.
	When(item T) time.Duration
	Forget(item T)
	// NumRequeues returns how many failures of item are counted.
	NumRequeues(item T) int
}

// DelayLimiter is a [TypedRateLimiter] that Fail of [ExtendedRateLimiting] asks by Delay. All other callers
// ask by When.
type DelayLimiter[T comparable] interface {
	TypedRateLimiter[T]
	// Delay returns how long item waits after its n-th failure, from 1, without counting it.
	Delay(item T, n int) time.Duration
}

// DefaultTypedControllerRateLimiter makes a key wait 5 ms after its first failure and twice as long after
// each further one, up to 1000 s. All keys together come no faster than 10 a second after a burst of 100.
func DefaultTypedControllerRateLimiter[T comparable]() TypedRateLimiter[T] {
	return NewTypedMaxOfRateLimiter(
		NewTypedItemExponentialFailureRateLimiter[T](5*time.Millisecond, 1000*time.Second),
		&TypedBucketRateLimiter[T]{Limiter: rate.NewLimiter(10, 100)},
	)
}

// TypedBucketRateLimiter takes a token of its Limiter for each call of When, on the real clock.
type TypedBucketRateLimiter[T comparable] struct {
	*rate.Limiter
}

func (r *TypedBucketRateLimiter[T]) When(item T) time.Duration { return r.Limiter.Reserve().Delay() }

func (r *TypedBucketRateLimiter[T]) NumRequeues(item T) int { return 0 }

func (r *TypedBucketRateLimiter[T]) Forget(item T) {}

// TypedItemExponentialFailureRateLimiter makes a key wait baseDelay after its first failure and twice as long
// after each further one, up to maxDelay. Less than zero counts as zero.
type TypedItemExponentialFailureRateLimiter[T comparable] struct {
	failureCounts[T]
	baseDelay time.Duration
	maxDelay  time.Duration
}

// See [TypedItemExponentialFailureRateLimiter].
func NewTypedItemExponentialFailureRateLimiter[T comparable](baseDelay time.Duration, maxDelay time.Duration) TypedRateLimiter[T] {
	return &TypedItemExponentialFailureRateLimiter[T]{baseDelay: baseDelay, maxDelay: maxDelay}
}

// DefaultTypedItemBasedRateLimiter returns a [TypedItemExponentialFailureRateLimiter] from 1 ms to 1000 s.
func DefaultTypedItemBasedRateLimiter[T comparable]() TypedRateLimiter[T] {
	return NewTypedItemExponentialFailureRateLimiter[T](time.Millisecond, 1000*time.Second)
}

func (r *TypedItemExponentialFailureRateLimiter[T]) When(item T) time.Duration {
	return r.Delay(item, r.increment(item))
}

func (r *TypedItemExponentialFailureRateLimiter[T]) Delay(_ T, n int) time.Duration {
	return doubled(r.baseDelay, max(n, 1)-1, r.maxDelay)
}

// doubled returns base, times doubled, but no more than limit and nothing negative.
func doubled(base time.Duration, times int, limit time.Duration) time.Duration {
	base, limit = max(base, 0), max(limit, 0)
	if base == 0 || times < bits.LeadingZeros64(uint64(base)) {
		// A shift by so many leaves the sign bit alone.
		return min(base<<min(times, 62), limit)
	}
	return limit
}

// TypedItemFastSlowRateLimiter makes a key wait fastDelay after each of its first maxFastAttempts failures,
// and slowDelay after the others. Less than zero counts as zero.
type TypedItemFastSlowRateLimiter[T comparable] struct {
	failureCounts[T]
	maxFastAttempts int
	fastDelay       time.Duration
	slowDelay       time.Duration
}

// See [TypedItemFastSlowRateLimiter].
func NewTypedItemFastSlowRateLimiter[T comparable](fastDelay, slowDelay time.Duration, maxFastAttempts int) TypedRateLimiter[T] {
	return &TypedItemFastSlowRateLimiter[T]{
		maxFastAttempts: maxFastAttempts, fastDelay: fastDelay, slowDelay: slowDelay,
	}
}

func (r *TypedItemFastSlowRateLimiter[T]) When(item T) time.Duration {
	return r.Delay(item, r.increment(item))
}

func (r *TypedItemFastSlowRateLimiter[T]) Delay(_ T, n int) time.Duration {
	if n <= r.maxFastAttempts {
		return max(r.fastDelay, 0)
	}
	return max(r.slowDelay, 0)
}

// TypedMaxOfRateLimiter asks all its limiters every time, and takes the largest answer. So a bucket gives a
// token even if another limiter delays the key for longer.
type TypedMaxOfRateLimiter[T comparable] struct {
	limiters []TypedRateLimiter[T]
}

// See [TypedMaxOfRateLimiter].
func NewTypedMaxOfRateLimiter[T comparable](limiters ...TypedRateLimiter[T]) TypedRateLimiter[T] {
	return &TypedMaxOfRateLimiter[T]{limiters: limiters}
}

func (r *TypedMaxOfRateLimiter[T]) When(item T) (longest time.Duration) {
	for _, limiter := range r.limiters {
		longest = max(longest, limiter.When(item))
	}
	return longest
}

func (r *TypedMaxOfRateLimiter[T]) Delay(item T, n int) (longest time.Duration) {
	for _, limiter := range r.limiters {
		longest = max(longest, failures.Ask(limiter, item, n))
	}
	return longest
}

func (r *TypedMaxOfRateLimiter[T]) NumRequeues(item T) int {
	most := 0
	for _, limiter := range r.limiters {
		most = max(most, limiter.NumRequeues(item))
	}
	return most
}

func (r *TypedMaxOfRateLimiter[T]) Forget(item T) {
	for _, limiter := range r.limiters {
		limiter.Forget(item)
	}
}

// TypedWithMaxWaitRateLimiter cuts the delays of another limiter at maxDelay, or zero if that is negative.
type TypedWithMaxWaitRateLimiter[T comparable] struct {
	limiter  TypedRateLimiter[T]
	maxDelay time.Duration
}

// See [TypedWithMaxWaitRateLimiter].
func NewTypedWithMaxWaitRateLimiter[T comparable](limiter TypedRateLimiter[T], maxDelay time.Duration) TypedRateLimiter[T] {
	return &TypedWithMaxWaitRateLimiter[T]{limiter: limiter, maxDelay: maxDelay}
}

func (w TypedWithMaxWaitRateLimiter[T]) When(item T) time.Duration {
	return w.cut(w.limiter.When(item))
}

func (w TypedWithMaxWaitRateLimiter[T]) Delay(item T, n int) time.Duration {
	return w.cut(failures.Ask(w.limiter, item, n))
}

func (w TypedWithMaxWaitRateLimiter[T]) cut(delay time.Duration) time.Duration {
	return max(0, min(delay, w.maxDelay))
}

func (w TypedWithMaxWaitRateLimiter[T]) Forget(item T) { w.limiter.Forget(item) }

func (w TypedWithMaxWaitRateLimiter[T]) NumRequeues(item T) int { return w.limiter.NumRequeues(item) }

// failureCounts counts failures by key, for limiters that embed it. A key without failures takes no memory.
type failureCounts[T comparable] struct {
	// some reports whether keys is not empty. It is written under mu and read without, so that forgetting a key
	// costs next to nothing while no key fails: a worker forgets each key.
	some atomic.Bool
	mu   sync.Mutex
	keys keytable.Table[T, uint32] // guarded by mu
}

// increment counts a failure of item, and returns how many that makes. It stops at math.MaxInt32.
func (c *failureCounts[T]) increment(item T) int {
	h := keytable.HashOf(item)
	c.mu.Lock()
	defer c.mu.Unlock()
	_, k, _ := c.keys.FindOrInsert(h, item)
	c.some.Store(true)
	k.Value = min(k.Value+1, math.MaxInt32)
	return int(k.Value)
}

func (c *failureCounts[T]) NumRequeues(item T) int {
	h := keytable.HashOf(item)
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, k := c.keys.Find(h, item); k != nil {
		return int(k.Value)
	}
	return 0
}

func (c *failureCounts[T]) Forget(item T) {
	if !c.some.Load() {
		keytable.CheckKey(item)
		return
	}
	h := keytable.HashOf(item)
	c.mu.Lock()
	defer c.mu.Unlock()
	if s, k := c.keys.Find(h, item); k != nil {
		c.keys.Delete(s)
		c.some.Store(c.keys.Len() > 0)
	}
}
