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

// RequeueLister is a [TypedRateLimiter] that lists failing keys for Snapshot.
type RequeueLister[T comparable] interface {
	// Requeued yields keys and their failures in any order, perhaps twice. complete is false if it asks a
	// limiter that does not list.
	Requeued() (keys iter.Seq2[T, int], complete bool)
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

func (r *TypedBucketRateLimiter[T]) Requeued() (keys iter.Seq2[T, int], complete bool) {
	return requeuedOf[T](nil)
}

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

func (r *TypedMaxOfRateLimiter[T]) Requeued() (keys iter.Seq2[T, int], complete bool) {
	return requeuedOf(r.limiters)
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

func (c *failureCounts[T]) Requeued() (keys iter.Seq2[T, int], complete bool) {
	count := func(s keytable.Slot) int { return int(c.keys.At(s).Value) }
	return failures.List(&c.keys, c.mu.Lock, c.mu.Unlock, count), true
}

// NewTypedBucketRateLimiter returns a limiter that limits all keys together by one token bucket, on the clock
// c, or the real one if that is nil. A nil limiter never delays. A key that waits for its token takes no
// other (argoproj/argo-cd#17257). Forget gives no token back.
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
