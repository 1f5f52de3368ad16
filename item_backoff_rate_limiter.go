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
	// DecorrelatedJitter takes anything from Base to three times the key's last delay.
	DecorrelatedJitter
)

// String returns the name of the constant.
func (j Jitter) String() string {
	if j > DecorrelatedJitter {
		j = NoJitter
	}
	return [...]string{"NoJitter", "FullJitter", "EqualJitter", "DecorrelatedJitter"}[j]
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
//	NoJitter            ceiling(n)
//	FullJitter          random(0, ceiling(n))
//	EqualJitter         random(ceiling(n)/2, ceiling(n))
//	DecorrelatedJitter  random(Base, min(3 · last, Max))    last: the key's last delay, Base if none
//
// So no delay is above Max or below zero, and keys that have reached Max are still spread: by the article's
// min(Max, random(Base, 3 · last)), they wait for exactly Max two times out of three.
type BackoffConfig[T comparable] struct {
	// Base is the ceiling of the first delay. 5 ms unless positive, and Max if it is above Max.
	Base time.Duration

	// Max is the longest delay. 1000 s unless positive.
	Max time.Duration

	// ForKey, unless nil, returns Base and Max of a key: 0 means the config's. When calls it, without a lock.
	ForKey func(key T) (base, longest time.Duration)

	// Factor is by how much the ceiling grows with each failure. Zero and NaN mean 2. One below 1 means 1:
	// a mistake must not make a busy loop. It plays no part in DecorrelatedJitter.
	Factor float64

	// Jitter makes delays random. NoJitter unless it is one of the other constants.
	Jitter Jitter

	// A key is forgotten without a call of Forget when ForgetAfter has passed since the end of its last delay.
	// This should be longer than it takes until the key fails again: it may wait for another limiter, then in
	// the queue, and is then processed. Unless positive, ForgetAfter is twice Max (as in client-go's
	// util/flowcontrol), but at least 10 minutes. math.MaxInt64 means until Forget (or 36 years).
	ForgetAfter time.Duration

	// Clock measures delays and ForgetAfter, so it should be the queue's. The limiter reads it under its lock.
	// Nil means the real clock. When the clock is set back, time goes on from there.
	Clock clock.PassiveClock
}

// NewTypedItemBackoffRateLimiter returns a limiter that makes a key wait longer after each failure, as
// configured by config, and counts a failure once for each delay that was served: a call that fails before
// the delay of the failure before it has passed is the same failure. When then returns what is left of that
// delay, and NumRequeues stays. So events that bring a failing key early cannot inflate its delay
// (kubernetes/kubernetes#132805): with Factor 2, once its cause is repaired, the key comes again within the
// time for which it was broken (with FullJitter four times that, with the others three). With Factor 3 that
// is 2.1 times, with 10 it is 9 times.
//
// In a [TypedMaxOfRateLimiter] the longest delay is the one to be served, and the other limiters, such as a
// token bucket, are not asked about the same failure. In a [TypedWithMaxWaitRateLimiter] it is the cut one.
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
		keys:   expiring.New[T](config.Clock),
	}
	if config.Factor == 0 || math.IsNaN(config.Factor) {
		r.factor = 2
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
	return NewTypedMaxOfRateLimiter(
		NewTypedItemBackoffRateLimiter(BackoffConfig[T]{Clock: c}),
		NewTypedBucketRateLimiter[T](rate.NewLimiter(10, 100), c),
	)
}

func positiveOr(d, otherwise time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}

// delayKeeper is a limiter that counts a failure once for each delay that was served. Limiters that ask
// others make what they return themselves the delay that is to be served.
type delayKeeper[T comparable] interface {
	// delayLeft returns what is left of the delay of item's last failure, and zero if that has passed.
	delayLeft(item T) time.Duration
	// setDelay makes the delay of item's last failure end after that time from now.
	setDelay(item T, delay time.Duration)
}

type itemBackoffRateLimiter[T comparable] struct {
	forKey func(T) (base, longest time.Duration) // or nil
	backoffRange
	forgetAfter time.Duration
	factor      float64
	jitter      Jitter

	// keys counts failures. A span is the key's last delay. It expires forgetAfter after its delay.
	keys expiring.Keys[T]
	// random returns a number below n. Tests have their own, so keys.mu guards it.
	random func(n uint64) uint64
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
	return r.countLocked(h, item, limits)
}

// WhenNew is When for a queue that knows that the failure is a new one.
func (r *itemBackoffRateLimiter[T]) WhenNew(item T, _ failures.IsNew) time.Duration {
	limits := r.rangeOf(item)
	h := keytable.HashOf(item)
	r.keys.Mu.Lock()
	defer r.keys.Mu.Unlock()
	r.keys.TickLocked()
	return r.countLocked(h, item, limits)
}

// countLocked counts a failure, and returns its delay.
func (r *itemBackoffRateLimiter[T]) countLocked(h keytable.Hash, item T, limits backoffRange) time.Duration {
	s, key, _ := r.keys.FindOrInsertLocked(h, item)
	delay := r.delay(limits, key.Count, key.Span.Duration())
	key.Count = min(key.Count+1, math.MaxInt32)
	key.Span = dueloop.Pack(delay)
	r.keys.SetLifeLocked(s, dueloop.AddSaturated(delay, r.forgetAfter))
	return delay
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

func (r *itemBackoffRateLimiter[T]) delayLeft(item T) (left time.Duration) {
	r.keys.Find(item, func(s keytable.Slot) { left = max(0, r.delayLeftLocked(r.keys.ExpiresLocked(s))) })
	return left
}

func (r *itemBackoffRateLimiter[T]) setDelay(item T, delay time.Duration) {
	life := dueloop.AddSaturated(delay, r.forgetAfter)
	r.keys.Find(item, func(s keytable.Slot) { r.keys.SetLifeLocked(s, life) })
}

func (r *itemBackoffRateLimiter[T]) NumRequeues(item T) int { return int(r.keys.Count(item)) }
func (r *itemBackoffRateLimiter[T]) Forget(item T)          { r.keys.Forget(item) }

// Requeued leaves out the keys that have expired. It looks at all keys, a few hundred under one lock.
func (r *itemBackoffRateLimiter[T]) Requeued() (keys iter.Seq2[T, int], complete bool) {
	r.keys.Tick()
	return failures.List(&r.keys.Table, r.keys.Mu.Lock, r.keys.Mu.Unlock, func(s keytable.Slot) int {
		if r.keys.ExpiresLocked(s) <= r.keys.Now {
			return 0
		}
		return int(r.keys.Table.At(s).Value.Count)
	}), true
}

// delay returns how long a key waits that has failed once more. The delay after its failures so far was last.
func (r *itemBackoffRateLimiter[T]) delay(limits backoffRange, failures uint32, last time.Duration) time.Duration {
	ceiling := limits.ceiling(failures, r.factor)
	switch r.jitter {
	case FullJitter:
		return r.between(0, ceiling)
	case EqualJitter:
		return r.between(ceiling-ceiling/2, ceiling)
	case DecorrelatedJitter:
		if failures == 0 {
			last = limits.base
		}
		ceiling = limits.longest
		if last <= limits.longest/3 {
			ceiling = max(limits.base, 3*last)
		}
		return r.between(limits.base, ceiling)
	default:
		return ceiling
	}
}

// between returns a random Duration from low to high, both included.
func (r *itemBackoffRateLimiter[T]) between(low, high time.Duration) time.Duration {
	return low + time.Duration(r.random(uint64(high-low)+1))
}

// ceiling returns ceiling(failures), which BackoffConfig describes.
func (b backoffRange) ceiling(failures uint32, factor float64) time.Duration {
	if failures == 0 || factor == 1 {
		return b.base // exactly, also if a float64 cannot express it
	}
	ceiling := float64(b.base) * math.Pow(factor, float64(failures))
	if ceiling >= float64(b.longest) {
		return b.longest
	}
	return time.Duration(ceiling)
}
