package workqueue

import (
	"iter"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyedqueue/workqueue/internal/expiring"
	"github.com/keyedqueue/workqueue/internal/failures"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
)

// TypedRateLimiter decides how long a key waits before it is retried. It is safe for concurrent use. Most
// limiters of this package keep a failed key until Forget, so every key that has succeeded or is given up
// must be forgotten.
type TypedRateLimiter[T comparable] interface {
	// When counts a failure of item, and returns how long it must wait.
	When(item T) time.Duration
	// Forget forgets the failures of item.
	Forget(item T)
	// NumRequeues returns how many failures of item were counted since it was forgotten.
	NumRequeues(item T) int
}

// DelayLimiter is a [TypedRateLimiter] for queues that count failures themselves, by Fail of
// [ExtendedRateLimiting]. The limiters of this package that count are. Fail asks others by When.
type DelayLimiter[T comparable] interface {
	TypedRateLimiter[T]
	// Delay returns how long item waits after its n-th failure in a row, counted from 1. It counts nothing for
	// item, and holds no lock while foreign code runs.
	Delay(item T, n int) time.Duration
}

// RequeueLister is a [TypedRateLimiter] that lists the keys that keep failing, for a queue's Snapshot. The
// limiters of this package do so.
type RequeueLister[T comparable] interface {
	// Requeued yields the keys with counted failures and their numbers, in any order, perhaps twice, and holds
	// no lock meanwhile. complete is false if another limiter that it asks does not list.
	Requeued() (keys iter.Seq2[T, int], complete bool)
}

// DefaultTypedControllerRateLimiter returns what most controllers use: a key waits 5 ms after its first
// failure and twice as long after each further one, up to 1000 s. All keys together come no faster than 10 a
// second after a burst of 100. When counts every failed call, also those that events bring:
// [NewTypedControllerRateLimiter] does not.
func DefaultTypedControllerRateLimiter[T comparable]() TypedRateLimiter[T] {
	return NewTypedMaxOfRateLimiter(
		NewTypedItemExponentialFailureRateLimiter[T](5*time.Millisecond, 1000*time.Second),
		&TypedBucketRateLimiter[T]{Limiter: rate.NewLimiter(10, 100)},
	)
}

// TypedBucketRateLimiter limits all keys together by one token bucket, which must not be nil, on the real
// clock. It is [NewTypedBucketRateLimiter] that takes a token for each call of When.
type TypedBucketRateLimiter[T comparable] struct {
	*rate.Limiter
}

// When takes a token and returns the time until it is there.
func (r *TypedBucketRateLimiter[T]) When(item T) time.Duration { return r.Limiter.Reserve().Delay() }

// NumRequeues returns 0.
func (r *TypedBucketRateLimiter[T]) NumRequeues(item T) int { return 0 }

// Forget does nothing.
func (r *TypedBucketRateLimiter[T]) Forget(item T) {}

// Requeued yields nothing.
func (r *TypedBucketRateLimiter[T]) Requeued() (keys iter.Seq2[T, int], complete bool) {
	return requeuedOf[T](nil)
}

// TypedItemExponentialFailureRateLimiter makes a key wait baseDelay after its first failure and twice as
// long after each further one, up to maxDelay. Negative delays count as zero. Its zero value never delays.
type TypedItemExponentialFailureRateLimiter[T comparable] struct {
	failureCounts[T]
	baseDelay time.Duration
	maxDelay  time.Duration
}

// NewTypedItemExponentialFailureRateLimiter returns a [TypedItemExponentialFailureRateLimiter].
func NewTypedItemExponentialFailureRateLimiter[T comparable](baseDelay time.Duration, maxDelay time.Duration) TypedRateLimiter[T] {
	return &TypedItemExponentialFailureRateLimiter[T]{baseDelay: baseDelay, maxDelay: maxDelay}
}

// DefaultTypedItemBasedRateLimiter delays a key by 1 ms, then twice as long after each failure, up to 1000 s.
func DefaultTypedItemBasedRateLimiter[T comparable]() TypedRateLimiter[T] {
	return NewTypedItemExponentialFailureRateLimiter[T](time.Millisecond, 1000*time.Second)
}

// When implements [TypedRateLimiter].
func (r *TypedItemExponentialFailureRateLimiter[T]) When(item T) time.Duration {
	return r.Delay(item, r.increment(item))
}

// Delay implements [DelayLimiter].
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
// and slowDelay after the others. Negative delays count as zero. Its zero value never delays.
type TypedItemFastSlowRateLimiter[T comparable] struct {
	failureCounts[T]
	maxFastAttempts int
	fastDelay       time.Duration
	slowDelay       time.Duration
}

// NewTypedItemFastSlowRateLimiter returns a [TypedItemFastSlowRateLimiter].
func NewTypedItemFastSlowRateLimiter[T comparable](fastDelay, slowDelay time.Duration, maxFastAttempts int) TypedRateLimiter[T] {
	return &TypedItemFastSlowRateLimiter[T]{
		maxFastAttempts: maxFastAttempts, fastDelay: fastDelay, slowDelay: slowDelay,
	}
}

// When implements [TypedRateLimiter].
func (r *TypedItemFastSlowRateLimiter[T]) When(item T) time.Duration {
	return r.Delay(item, r.increment(item))
}

// Delay implements [DelayLimiter].
func (r *TypedItemFastSlowRateLimiter[T]) Delay(_ T, n int) time.Duration {
	if n <= r.maxFastAttempts {
		return max(r.fastDelay, 0)
	}
	return max(r.slowDelay, 0)
}

// TypedMaxOfRateLimiter asks several limiters every time, and takes the largest of what they return. A token
// bucket gives a token also for a key that another limiter delays for longer, so more keys than its burst
// may come at once. Its zero value never delays.
type TypedMaxOfRateLimiter[T comparable] struct {
	limiters []TypedRateLimiter[T]
}

// NewTypedMaxOfRateLimiter returns a [TypedMaxOfRateLimiter] of limiters.
func NewTypedMaxOfRateLimiter[T comparable](limiters ...TypedRateLimiter[T]) TypedRateLimiter[T] {
	return &TypedMaxOfRateLimiter[T]{limiters: limiters}
}

// When implements [TypedRateLimiter].
func (r *TypedMaxOfRateLimiter[T]) When(item T) (longest time.Duration) {
	for _, limiter := range r.limiters {
		longest = max(longest, limiter.When(item))
	}
	return longest
}

// Delay implements [DelayLimiter]. A limiter of another kind is asked by When.
func (r *TypedMaxOfRateLimiter[T]) Delay(item T, n int) (longest time.Duration) {
	for _, limiter := range r.limiters {
		longest = max(longest, failures.Ask(limiter, item, n))
	}
	return longest
}

// NumRequeues implements [TypedRateLimiter].
func (r *TypedMaxOfRateLimiter[T]) NumRequeues(item T) int {
	most := 0
	for _, limiter := range r.limiters {
		most = max(most, limiter.NumRequeues(item))
	}
	return most
}

// Forget implements [TypedRateLimiter].
func (r *TypedMaxOfRateLimiter[T]) Forget(item T) {
	for _, limiter := range r.limiters {
		limiter.Forget(item)
	}
}

// Requeued implements [RequeueLister].
func (r *TypedMaxOfRateLimiter[T]) Requeued() (keys iter.Seq2[T, int], complete bool) {
	return requeuedOf(r.limiters)
}

// TypedWithMaxWaitRateLimiter cuts the delays of another limiter at maxDelay, or at zero if that is negative.
type TypedWithMaxWaitRateLimiter[T comparable] struct {
	limiter  TypedRateLimiter[T]
	maxDelay time.Duration
}

// NewTypedWithMaxWaitRateLimiter returns a [TypedWithMaxWaitRateLimiter] of limiter, which must not be nil.
func NewTypedWithMaxWaitRateLimiter[T comparable](limiter TypedRateLimiter[T], maxDelay time.Duration) TypedRateLimiter[T] {
	return &TypedWithMaxWaitRateLimiter[T]{limiter: limiter, maxDelay: maxDelay}
}

// When implements [TypedRateLimiter].
func (w TypedWithMaxWaitRateLimiter[T]) When(item T) time.Duration {
	return w.cut(w.limiter.When(item))
}

// Delay implements [DelayLimiter]. A limiter of another kind is asked by When.
func (w TypedWithMaxWaitRateLimiter[T]) Delay(item T, n int) time.Duration {
	return w.cut(failures.Ask(w.limiter, item, n))
}

func (w TypedWithMaxWaitRateLimiter[T]) cut(delay time.Duration) time.Duration {
	return max(0, min(delay, w.maxDelay))
}

// Forget implements [TypedRateLimiter].
func (w TypedWithMaxWaitRateLimiter[T]) Forget(item T) { w.limiter.Forget(item) }

// NumRequeues implements [TypedRateLimiter].
func (w TypedWithMaxWaitRateLimiter[T]) NumRequeues(item T) int { return w.limiter.NumRequeues(item) }

// Requeued implements [RequeueLister].
func (w TypedWithMaxWaitRateLimiter[T]) Requeued() (keys iter.Seq2[T, int], complete bool) {
	return requeuedOf([]TypedRateLimiter[T]{w.limiter})
}

// requeuedOf is Requeued of several limiters.
func requeuedOf[T comparable](limiters []TypedRateLimiter[T]) (keys iter.Seq2[T, int], complete bool) {
	var lists []iter.Seq2[T, int]
	complete = true
	for _, limiter := range limiters {
		lister, ok := limiter.(RequeueLister[T])
		if !ok {
			complete = false
			continue
		}
		list, all := lister.Requeued()
		lists, complete = append(lists, list), complete && all
	}
	return func(yield func(T, int) bool) {
		for _, list := range lists {
			for key, n := range list {
				if !yield(key, n) {
					return
				}
			}
		}
	}, complete
}

// failureCounts counts failures by key, for the limiters that embed it. Keys without any take no memory.
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

// NumRequeues implements [TypedRateLimiter].
func (c *failureCounts[T]) NumRequeues(item T) int {
	h := keytable.HashOf(item)
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, k := c.keys.Find(h, item); k != nil {
		return int(k.Value)
	}
	return 0
}

// Forget implements [TypedRateLimiter].
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

// Requeued implements [RequeueLister].
func (c *failureCounts[T]) Requeued() (keys iter.Seq2[T, int], complete bool) {
	count := func(s keytable.Slot) int { return int(c.keys.At(s).Value) }
	return failures.List(&c.keys, c.mu.Lock, c.mu.Unlock, count), true
}

// NewTypedBucketRateLimiter returns a limiter that limits all keys together by one token bucket, on the
// clock c. Nil for c means the real clock, and a nil limiter never delays.
//
// When takes a token, and returns how long it takes until that is there: math.MaxInt64 if the bucket's burst
// is zero and its limit is not infinite. While a key waits for its token, When takes no other and returns
// what is left. So sixty adds of a noisy key do not make others wait for sixty tokens
// (argoproj/argo-cd#17257). Forget gives no token back, but the key's next call takes one. NumRequeues
// returns 0. All methods take logarithmic time, and allocate nothing once the table of waiting keys has its
// size. The caller may use limiter as well, with times of the same clock.
func NewTypedBucketRateLimiter[T comparable](limiter *rate.Limiter, c clock.PassiveClock) TypedRateLimiter[T] {
	if limiter == nil {
		limiter = rate.NewLimiter(rate.Inf, 0)
	}
	if c == nil {
		c = clock.RealClock{}
	}
	return &bucketRateLimiter[T]{limiter: limiter, clock: c, waiting: expiring.New[T, struct{}](c)}
}

type bucketRateLimiter[T comparable] struct {
	limiter *rate.Limiter
	clock   clock.PassiveClock
	// waiting has the keys that wait for their tokens. Each expires when its token is there.
	waiting expiring.Keys[T, struct{}]
}

func (r *bucketRateLimiter[T]) When(item T) time.Duration {
	h := keytable.HashOf(item)
	r.waiting.Mu.Lock()
	defer r.waiting.Mu.Unlock()
	r.waiting.TickLocked()
	if s, e := r.waiting.Table.Find(h, item); e != nil && r.waiting.ExpiresLocked(s) > r.waiting.Now {
		return r.waiting.ExpiresLocked(s) - r.waiting.Now
	}
	now := r.clock.Now()
	delay := r.limiter.ReserveN(now, 1).DelayFrom(now)
	if delay > 0 && delay < expiring.Horizon {
		s, _, _ := r.waiting.FindOrInsertLocked(h, item)
		r.waiting.SetLifeLocked(s, delay)
	}
	return delay
}

func (r *bucketRateLimiter[T]) NumRequeues(T) int { return 0 }
func (r *bucketRateLimiter[T]) Forget(item T)     { r.waiting.Forget(item) }

func (r *bucketRateLimiter[T]) Requeued() (iter.Seq2[T, int], bool) { return requeuedOf[T](nil) }
