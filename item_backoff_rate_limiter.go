package workqueue

import (
	"cmp"
	"math"
	"math/rand/v2"
	"time"

	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/internal/expiring"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
)

// Jitter makes delays random, so that keys and replicas that have failed together are not retried together.
// The formulas are Marc Brooker's ("Exponential Backoff And Jitter", AWS Architecture Blog, 2015);
// docs/backoff.md compares them.
type Jitter uint8

const (
	NoJitter Jitter = iota
	FullJitter
	EqualJitter
)

// BackoffConfig configures [NewTypedItemBackoffRateLimiter]. Its zero value has the numbers of client-go's
// default. The delay after n earlier failures is this; random(a, b) is uniform from a to b:
//
//	ceiling(n) = min(Base · Factor^n, Max)
//
//	NoJitter     ceiling(n)
//	FullJitter   random(0, ceiling(n))
//	EqualJitter  random(ceiling(n)/2, ceiling(n))
type BackoffConfig[T comparable] struct {
	// Base is the ceiling of the first delay: 5 ms unless positive, and at most Max.
	Base time.Duration

	// Max is the longest delay: 1000 s unless positive.
	Max time.Duration

	// ForKey, unless nil, returns Base and Max of a key. Zero means the config's.
	ForKey func(key T) (base, longest time.Duration)

	// Factor is by how much delays grow with each failure. Zero and NaN mean 2, and less than 1 means 1.
	Factor float64

	Jitter Jitter

	// ForgetAfter is how long after its last delay a key is forgotten without Forget. Unless positive, it is
	// twice Max, but at least 10 minutes.
	ForgetAfter time.Duration

	// Bucket, unless nil, limits all keys together: a failure takes a token and waits for it, even beyond Max.
	Bucket *rate.Limiter

	// Clock should be the queue's. Nil means the real clock.
	Clock clock.PassiveClock
}

// NewTypedItemBackoffRateLimiter returns a limiter that makes a key wait longer after each failure. A call
// that fails before the last delay has passed is the same failure: When returns what is left of that delay,
// and NumRequeues stays. Inside a [TypedMaxOfRateLimiter] or a [TypedWithMaxWaitRateLimiter] the limiter
// knows only its own delay: use Bucket and Max instead.
//
// Calls forget keys after their ForgetAfter (kubernetes/kubernetes#138743). They take logarithmic time.
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
	r.longest = cmp.Or(max(config.Max, 0), 1000*time.Second)
	r.base = min(cmp.Or(max(config.Base, 0), 5*time.Millisecond), r.longest)
	twice := dueloop.AddSaturated(r.longest, r.longest)
	r.forgetAfter = min(cmp.Or(max(config.ForgetAfter, 0), max(twice, 10*time.Minute)), maxForgetAfter)
	return r
}

// maxForgetAfter leaves room above it, so that a key's expiry says when its delay ends.
const maxForgetAfter = expiring.Horizon / 4

// NewTypedControllerRateLimiter returns [NewTypedItemBackoffRateLimiter] with the numbers of
// [DefaultTypedControllerRateLimiter]. c should be the queue's clock; nil means the real one.
func NewTypedControllerRateLimiter[T comparable](c clock.PassiveClock) TypedRateLimiter[T] {
	return NewTypedItemBackoffRateLimiter(BackoffConfig[T]{Clock: c, Bucket: rate.NewLimiter(10, 100)})
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
	s, e, inserted := r.keys.Table.FindOrInsert(h, item)
	if !inserted {
		expires := r.keys.ExpiresLocked(s)
		if left := expires - r.forgetAfter - r.keys.Now; left > 0 {
			return left
		}
		if expires <= r.keys.Now { // It has expired: TickLocked drops only some at a time.
			e.Value = 0
		}
	}
	e.Value = min(e.Value+1, math.MaxInt32)
	delay := r.delay(limits, int(e.Value))
	r.keys.SetLifeLocked(s, dueloop.AddSaturated(delay, r.forgetAfter))
	return delay
}

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
	longest = cmp.Or(max(longest, 0), r.longest)
	return backoffRange{min(cmp.Or(max(base, 0), r.base), longest), longest}
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
