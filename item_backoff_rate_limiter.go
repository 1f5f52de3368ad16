package workqueue

import (
	"iter"
	"math"
	"math/rand/v2"
	"time"

	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/internal/expiring"
	"github.com/keyedqueue/workqueue/internal/failures"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
)

// Jitter is how [NewTypedItemBackoffRateLimiter] makes delays random, so that keys (and the replicas of a
// program) that have failed together do not come back together. The kinds and their names are those of Marc
// Brooker's "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015); docs/backoff.md compares them.
type Jitter uint8

const (
	// NoJitter takes the ceiling itself: all that failed together comes back together.
	NoJitter Jitter = iota
	// FullJitter takes anything from 0 to the ceiling.
	FullJitter
	// EqualJitter takes anything from half the ceiling to the ceiling.
	EqualJitter
)

// String returns the name of the constant.
func (j Jitter) String() string {
	if j > EqualJitter {
		j = NoJitter
	}
	return [...]string{"NoJitter", "FullJitter", "EqualJitter"}[j]
}

// BackoffConfig configures how long a key waits after a failure, for [NewTypedItemBackoffRateLimiter]. Its
// zero value is ready to use, with the numbers of client-go's default. With n the failures of the key that
// were counted before this one, the ceiling of the delay is
//
//	ceiling(n) = min(Base · Factor^n, Max)
//
// computed in float64 and cut to whole nanoseconds. From there the kinds of jitter take, with
// random(a, b) each nanosecond from a to b with the same probability,
//
//	NoJitter     ceiling(n)
//	FullJitter   random(0, ceiling(n))
//	EqualJitter  random(ceiling(n)/2, ceiling(n))
//
// So no delay is above Max or below zero, and keys that have reached Max are still spread.
type BackoffConfig[T comparable] struct {
	// Base is the ceiling of the first delay. 5 ms unless positive, and Max if it is above Max.
	Base time.Duration

	// Max is the longest delay. 1000 s unless positive.
	Max time.Duration

	// ForKey, unless nil, returns Base and Max of a key: 0 means the config's. When calls it, without a lock.
	ForKey func(key T) (base, longest time.Duration)

	// Factor is by how much the ceiling grows with each failure. Zero and NaN mean 2. One below 1 means 1:
	// a mistake must not make a busy loop.
	Factor float64

	// Jitter makes delays random. NoJitter unless it is one of the other constants.
	Jitter Jitter

	// A key is forgotten without a call of Forget when ForgetAfter has passed since the end of its last delay.
	// This should be longer than it takes until the key fails again: it may wait for another limiter, then in
	// the queue, and is then processed. Unless positive, ForgetAfter is twice Max (as in client-go's
	// util/flowcontrol), but at least 10 minutes. math.MaxInt64 means until Forget (or 36 years).
	ForgetAfter time.Duration

	// Bucket, unless nil, limits all keys together: each failure takes a token, and waits until that is there if
	// that is later. So delays can be above Max.
	Bucket *rate.Limiter

	// Clock measures delays, ForgetAfter and the tokens of Bucket, so it should be the queue's. The limiter
	// reads it under its lock. Nil means the real clock. When the clock is set back, time continues from there.
	Clock clock.PassiveClock
}

// NewTypedItemBackoffRateLimiter returns a limiter that makes a key wait longer after each failure, as
// configured by config, and counts a failure once for each delay that was served: a call that fails before
// the delay of the failure before it has passed is the same failure. When then returns what is left of that
// delay, and NumRequeues stays. So events that bring a failing key early cannot inflate its delay
// (kubernetes/kubernetes#132805): with Factor 2, once its cause is repaired, the key is retried within the
// time for which it was broken (with EqualJitter twice that; with FullJitter in nearly all cases four times,
// without a bound). With Factor 3 that is 2.1 times, with 10 it is 9 times.
//
// A queue of this module counts the failures of Fail itself, and asks for their delays by [DelayLimiter].
// Inside a [TypedMaxOfRateLimiter] or a [TypedWithMaxWaitRateLimiter] the limiter knows only its own delay:
// use Bucket and Max instead.
//
// Unlike [TypedItemExponentialFailureRateLimiter], it forgets keys that have not failed for a while
// (kubernetes/kubernetes#138743). So a program that never calls Forget keeps about as many keys as have
// failed in the time delay + ForgetAfter: each call drops up to 4,096 that have expired.
//
// Each method takes logarithmic time, and no allocation once the table has its size; no goroutine or timer is
// started. A key takes its own size, 36 bytes, and 11 to 22 bytes in the index. All methods may be called by
// many goroutines at once. No value in config makes a method panic: its fields say what wrong values mean.
func NewTypedItemBackoffRateLimiter[T comparable](config BackoffConfig[T]) TypedRateLimiter[T] {
	r := &itemBackoffRateLimiter[T]{
		forKey: config.ForKey,
		factor: max(1, config.Factor),
		jitter: config.Jitter,
		random: rand.Uint64N,
		keys:   expiring.New[T, uint32](config.Clock),
	}
	if config.Factor == 0 || math.IsNaN(config.Factor) {
		r.factor = 2
	}
	r.bucket, r.clock = config.Bucket, config.Clock
	if r.clock == nil {
		r.clock = clock.RealClock{}
	}
	r.keys.AdvanceLocked()
	r.longest = positiveOr(config.Max, 1000*time.Second)
	r.base = min(positiveOr(config.Base, 5*time.Millisecond), r.longest)
	twice := dueloop.AddSaturated(r.longest, r.longest)
	r.forgetAfter = min(positiveOr(config.ForgetAfter, max(twice, 10*time.Minute)), maxForgetAfter)
	return r
}

// maxForgetAfter leaves room above it, so that a key's expiry says when its delay ends: see delayLeftLocked.
const maxForgetAfter = expiring.Horizon / 4

// NewTypedControllerRateLimiter returns a limiter with the numbers of [DefaultTypedControllerRateLimiter] (5
// ms to 1000 s for each key; for all together 10 a second after a burst of 100) that counts a failure once
// for each delay that was served, as [NewTypedItemBackoffRateLimiter] does. It mends a controller whose
// failing keys are also brought by events. c should be the queue's clock; nil means the real one.
func NewTypedControllerRateLimiter[T comparable](c clock.PassiveClock) TypedRateLimiter[T] {
	return NewTypedItemBackoffRateLimiter(BackoffConfig[T]{Clock: c, Bucket: rate.NewLimiter(10, 100)})
}

func positiveOr(d, otherwise time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}

type itemBackoffRateLimiter[T comparable] struct {
	forKey func(T) (base, longest time.Duration) // or nil
	backoffRange
	forgetAfter time.Duration
	factor      float64
	jitter      Jitter
	bucket      *rate.Limiter // or nil
	clock       clock.PassiveClock
	// random returns a number below n. Tests have their own.
	random func(n uint64) uint64

	// keys counts failures. A key expires forgetAfter after its delay.
	keys expiring.Keys[T, uint32]
}

// backoffRange is Base and Max of a key.
type backoffRange struct{ base, longest time.Duration }

func (r *itemBackoffRateLimiter[T]) When(item T) time.Duration {
	limits := r.rangeOf(item)
	h := keytable.HashOf(item)
	r.keys.Mu.Lock()
	defer r.keys.Mu.Unlock()
	r.keys.TickLocked()
	if s, e := r.keys.Table.Find(h, item); e != nil {
		if left := r.delayLeftLocked(r.keys.ExpiresLocked(s)); left > 0 {
			return left
		}
	}
	s, n, _ := r.keys.FindOrInsertLocked(h, item)
	*n = min(*n+1, math.MaxInt32)
	delay := r.delay(limits, int(*n))
	r.keys.SetLifeLocked(s, dueloop.AddSaturated(delay, r.forgetAfter))
	return delay
}

// Delay returns how long item waits after its n-th failure in a row, and counts nothing: see [DelayLimiter].
func (r *itemBackoffRateLimiter[T]) Delay(item T, n int) time.Duration {
	return r.delay(r.rangeOf(item), n)
}

// delay returns how long a key waits after its n-th failure in a row. It takes a token, if there is a bucket.
func (r *itemBackoffRateLimiter[T]) delay(limits backoffRange, n int) time.Duration {
	delay := limits.ceiling(max(n, 1)-1, r.factor)
	switch r.jitter {
	case FullJitter:
		delay = r.between(0, delay)
	case EqualJitter:
		delay = r.between(delay-delay/2, delay)
	}
	if r.bucket != nil {
		now := r.clock.Now()
		delay = max(delay, r.bucket.ReserveN(now, 1).DelayFrom(now))
	}
	return delay
}

// between returns a random Duration from low to high, both included.
func (r *itemBackoffRateLimiter[T]) between(low, high time.Duration) time.Duration {
	return low + time.Duration(r.random(uint64(high-low)+1))
}

func (r *itemBackoffRateLimiter[T]) rangeOf(item T) backoffRange {
	if r.forKey == nil {
		return r.backoffRange
	}
	base, longest := r.forKey(item)
	longest = positiveOr(longest, r.longest)
	return backoffRange{min(positiveOr(base, r.base), longest), longest}
}

// delayLeftLocked returns what is left of the delay of a key that expires then: none if it is negative.
func (r *itemBackoffRateLimiter[T]) delayLeftLocked(expires time.Duration) time.Duration {
	return expires - r.forgetAfter - r.keys.Now
}

func (r *itemBackoffRateLimiter[T]) NumRequeues(item T) (n int) {
	r.keys.Find(item, func(s keytable.Slot) {
		if r.keys.ExpiresLocked(s) > r.keys.Now {
			n = int(r.keys.Table.At(s).Value)
		}
	})
	return n
}

func (r *itemBackoffRateLimiter[T]) Forget(item T) { r.keys.Forget(item) }

// Requeued leaves out the keys that have expired. It looks at all keys, a few hundred under one lock.
func (r *itemBackoffRateLimiter[T]) Requeued() (keys iter.Seq2[T, int], complete bool) {
	r.keys.Tick()
	return failures.List(&r.keys.Table, r.keys.Mu.Lock, r.keys.Mu.Unlock, func(s keytable.Slot) int {
		if r.keys.ExpiresLocked(s) <= r.keys.Now {
			return 0
		}
		return int(r.keys.Table.At(s).Value)
	}), true
}

// ceiling returns ceiling(failures), which BackoffConfig describes.
func (b backoffRange) ceiling(failures int, factor float64) time.Duration {
	if failures == 0 || factor == 1 {
		return b.base // exactly, also if a float64 cannot express it
	}
	ceiling := float64(b.base) * math.Pow(factor, float64(failures))
	if ceiling >= float64(b.longest) {
		return b.longest
	}
	return time.Duration(ceiling)
}
