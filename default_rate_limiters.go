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

// TypedRateLimiter decides how long a key waits before it is retried. It is safe for concurrent use.
type TypedRateLimiter[T comparable] interface {
	// When counts one more failure of item, and returns how long it must wait. (Some limiters count a failure
	// once for each delay that was served: see [NewTypedControllerRateLimiter].)
	When(item T) time.Duration
	// Forget forgets the failures of item, whether it has succeeded or is given up.
	Forget(item T)
	// NumRequeues returns how many failures of item were counted since it was forgotten.
	NumRequeues(item T) int
}

// DelayLimiter is a [TypedRateLimiter] for queues that count failures themselves, as Fail of
// [ExtendedRateLimiting] does. The limiters of this package that count are. Another limiter is asked by When,
// once for each new failure.
type DelayLimiter[T comparable] interface {
	TypedRateLimiter[T]
	// Delay returns how long item waits after its n-th failure in a row, counted from 1. It counts
	// nothing for item. It may be called by many goroutines at once, and holds no lock while foreign code runs.
	Delay(item T, n int) time.Duration
}

// RequeueLister is a [TypedRateLimiter] that lists the keys that keep failing, for a queue's Snapshot. The
// limiters of this package do so, and those that ask other limiters pass on their lists.
type RequeueLister[T comparable] interface {
	// Requeued yields the keys whose failures were counted, with their numbers, in any order, perhaps twice,
	// and holds no lock meanwhile. complete is false if another limiter that it asks does not list.
	Requeued() (keys iter.Seq2[T, int], complete bool)
}

// DefaultTypedControllerRateLimiter returns what most controllers use: a key waits 5 ms after its first
// failure and twice as long after each further one, up to 1000 s, and all keys together come no faster than
// 10 a second after a burst of 100. A failing key that events bring too reaches 1000 s within 18 of them: see
// [NewTypedControllerRateLimiter].
func DefaultTypedControllerRateLimiter[T comparable]() TypedRateLimiter[T] {
	return NewTypedMaxOfRateLimiter(
		NewTypedItemExponentialFailureRateLimiter[T](5*time.Millisecond, 1000*time.Second),
		&TypedBucketRateLimiter[T]{Limiter: rate.NewLimiter(10, 100)},
	)
}

// TypedBucketRateLimiter limits all keys together by one token bucket, which must not be nil. Each call
// of When takes a token, and returns how long it takes until that token is there. That is math.MaxInt64
// if the bucket's burst is zero and its limit is not infinite. The bucket reads the real clock.
type TypedBucketRateLimiter[T comparable] struct {
	*rate.Limiter
}

// When takes a token and returns the time until it is there.
func (r *TypedBucketRateLimiter[T]) When(item T) time.Duration { return r.Limiter.Reserve().Delay() }

// NumRequeues returns 0: a bucket does not count by key.
func (r *TypedBucketRateLimiter[T]) NumRequeues(item T) int { return 0 }

// Forget does nothing: the token stays taken.
func (r *TypedBucketRateLimiter[T]) Forget(item T) {}

// Requeued yields nothing, and that is complete.
func (r *TypedBucketRateLimiter[T]) Requeued() (keys iter.Seq2[T, int], complete bool) {
	return requeuedOf[T](nil)
}

// TypedItemExponentialFailureRateLimiter makes a key wait baseDelay after its first failure and twice as long
// after each further one, up to maxDelay. Negative delays count as zero. It keeps each failed key until
// Forget. Its zero value never delays.
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

// When counts a failure of item and returns how long it must wait.
func (r *TypedItemExponentialFailureRateLimiter[T]) When(item T) time.Duration {
	return r.Delay(item, r.increment(item))
}

// Delay returns how long an item waits after its n-th failure: see [DelayLimiter].
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

// TypedItemFastSlowRateLimiter makes a key wait fastDelay after each of its first maxFastAttempts
// failures, and slowDelay after the others. Negative delays count as zero. It keeps each failed key
// until Forget. Its zero value never delays.
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

// When counts a failure of item and returns how long it must wait.
func (r *TypedItemFastSlowRateLimiter[T]) When(item T) time.Duration {
	return r.Delay(item, r.increment(item))
}

// Delay returns how long an item waits after its n-th failure: see [DelayLimiter].
func (r *TypedItemFastSlowRateLimiter[T]) Delay(_ T, n int) time.Duration {
	if n <= r.maxFastAttempts {
		return max(r.fastDelay, 0)
	}
	return max(r.slowDelay, 0)
}

// TypedMaxOfRateLimiter asks several limiters every time, and takes the longest of their delays, and the
// largest of their numbers of requeues. A token bucket gives a token also for a key that another limiter
// delays for longer, so more keys than its burst may come at once. Its zero value never delays.
type TypedMaxOfRateLimiter[T comparable] struct {
	limiters []TypedRateLimiter[T]
}

// NewTypedMaxOfRateLimiter returns a [TypedMaxOfRateLimiter] of limiters.
func NewTypedMaxOfRateLimiter[T comparable](limiters ...TypedRateLimiter[T]) TypedRateLimiter[T] {
	return &TypedMaxOfRateLimiter[T]{limiters: limiters}
}

// When asks all limiters and returns the longest delay.
func (r *TypedMaxOfRateLimiter[T]) When(item T) (longest time.Duration) {
	for _, limiter := range r.limiters {
		longest = max(longest, limiter.When(item))
	}
	return longest
}

// Delay returns the longest delay after the n-th failure of item: see [DelayLimiter]. A limiter of another
// kind is asked by When.
func (r *TypedMaxOfRateLimiter[T]) Delay(item T, n int) (longest time.Duration) {
	for _, limiter := range r.limiters {
		longest = max(longest, failures.Ask(limiter, item, n))
	}
	return longest
}

// NumRequeues returns the largest number that a limiter returns.
func (r *TypedMaxOfRateLimiter[T]) NumRequeues(item T) int {
	most := 0
	for _, limiter := range r.limiters {
		most = max(most, limiter.NumRequeues(item))
	}
	return most
}

// Forget makes all limiters forget item.
func (r *TypedMaxOfRateLimiter[T]) Forget(item T) {
	for _, limiter := range r.limiters {
		limiter.Forget(item)
	}
}

// Requeued yields what the limiters yield.
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

// When returns the other limiter's delay, or maxDelay if that is less.
func (w TypedWithMaxWaitRateLimiter[T]) When(item T) time.Duration {
	return w.cut(w.limiter.When(item))
}

// Delay returns the other limiter's delay after the n-th failure of item, or maxDelay if that is less: see
// [DelayLimiter]. Another kind of limiter is asked by When.
func (w TypedWithMaxWaitRateLimiter[T]) Delay(item T, n int) time.Duration {
	return w.cut(failures.Ask(w.limiter, item, n))
}

func (w TypedWithMaxWaitRateLimiter[T]) cut(delay time.Duration) time.Duration {
	return max(0, min(delay, w.maxDelay))
}

// Forget makes the other limiter forget item.
func (w TypedWithMaxWaitRateLimiter[T]) Forget(item T) { w.limiter.Forget(item) }

// NumRequeues returns what the other limiter returns.
func (w TypedWithMaxWaitRateLimiter[T]) NumRequeues(item T) int { return w.limiter.NumRequeues(item) }

// Requeued yields what the other limiter yields.
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

// NumRequeues returns the number of failures of item since it was forgotten.
func (c *failureCounts[T]) NumRequeues(item T) int {
	h := keytable.HashOf(item)
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, k := c.keys.Find(h, item); k != nil {
		return int(k.Value)
	}
	return 0
}

// Forget forgets the failures of item and gives their memory back.
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

// Requeued yields all keys that have failed with their numbers, a few hundred under one lock.
func (c *failureCounts[T]) Requeued() (keys iter.Seq2[T, int], complete bool) {
	count := func(s keytable.Slot) int { return int(c.keys.At(s).Value) }
	return failures.List(&c.keys, c.mu.Lock, c.mu.Unlock, count), true
}

// NewTypedBucketRateLimiter returns a limiter that limits all keys together by one token bucket, on the
// caller's clock. ([TypedBucketRateLimiter] always reads the real one.) Nil for c means the real clock, and a
// nil limiter never delays.
//
// When takes a token, and returns how long it takes on c until that token is there: zero if it is there
// already, and forever (math.MaxInt64) if the bucket's burst is zero and its limit is not infinite. A key
// that waits for its token takes no other: When returns what is left. So sixty adds of a noisy key, which the
// queue merges, do not make all other keys wait for sixty tokens (argoproj/argo-cd#17257). NumRequeues
// returns 0, as a bucket does not count by key. Forget gives no token back, but the key's next call takes
// one. All methods may be called by many goroutines at once, take logarithmic time, and allocate nothing once
// the table of waiting keys has its size. The caller may go on using limiter, with times of the same clock.
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
