package workqueue

import (
	"iter"
	"math"
	"time"

	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/internal/expiring"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
)

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
	return &bucketRateLimiter[T]{limiter: limiter, clock: c, waiting: expiring.New[T](c)}
}

type bucketRateLimiter[T comparable] struct {
	limiter *rate.Limiter
	clock   clock.PassiveClock
	// waiting has the keys that wait for their tokens. Each expires when its token is there.
	waiting expiring.Keys[T]
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

// NewTypedItemBucketRateLimiter returns a limiter with a token bucket for each key. A bucket has burst
// tokens at first and never more, gets limit tokens a second, and may owe tokens. When takes one, and
// returns how long it takes on c until that token is there: with
//
//	interval  1 s / limit, which may have a fraction of a nanosecond; but if limit is rate.Every(d),
//	          exactly d (up to 13 days)
//	start     when the bucket was last full and a token was taken
//	taken     the number of tokens that were taken from start on, with this one
//
// it is
//
//	When = max(0, start + (taken - burst) · interval - now)    rounded up to nanoseconds
//
// computed in float64. The bucket is full again at start + taken · interval. A full bucket carries no
// information, so it is dropped: by calls for any key.
//
// As in golang.org/x/time/rate, an infinite limit (rate.Inf or above) never delays, whatever burst is,
// and otherwise a burst of zero lets nothing through: When is math.MaxInt64. A limit of zero gives each
// key its first burst tokens and nothing after them; those buckets are never full again, and take
// memory until Forget. A negative limit and NaN count as zero, a negative burst as zero, and a burst
// above math.MaxInt32 as that. After 2^32 - 1 tokens without being full, a bucket is replaced by a full one.
//
// NumRequeues returns 0, as a bucket does not count failures. Forget drops the bucket: the key's next one is
// full. Nil for c means the real clock; it is read under the limiter's lock, and when it is set back, time
// goes on from there. All methods may be called by many goroutines at once, and take logarithmic time and no
// allocation once the table has its size. A key takes its own size, 36 bytes, and 11 to 22 in the index.
func NewTypedItemBucketRateLimiter[T comparable](limit rate.Limit, burst int, c clock.PassiveClock) TypedRateLimiter[T] {
	r := &itemBucketRateLimiter[T]{
		interval:  newTokenInterval(limit),
		unlimited: limit >= rate.Inf,
		burst:     uint32(min(max(burst, 0), math.MaxInt32)),
		keys:      expiring.New[T](c),
	}
	r.keys.AdvanceLocked()
	return r
}

type itemBucketRateLimiter[T comparable] struct {
	interval  tokenInterval
	unlimited bool
	burst     uint32

	// keys counts the tokens that were taken from start on. A key expires when its bucket is full, and
	// its span is how long after start that is.
	keys expiring.Keys[T]
}

func (r *itemBucketRateLimiter[T]) When(item T) time.Duration {
	keytable.CheckKey(item)
	switch {
	case r.unlimited:
		return 0
	case r.burst == 0:
		return math.MaxInt64
	}
	h := keytable.HashOf(item)
	r.keys.Mu.Lock()
	defer r.keys.Mu.Unlock()
	r.keys.TickLocked()
	now := r.keys.Now
	s, key, expires := r.keys.FindOrInsertLocked(h, item)
	start := now
	if key.Count == math.MaxUint32 {
		key.Count = 0 // A new bucket: more tokens cannot be counted.
	}
	if key.Count > 0 {
		start = expires - key.Span.Duration()
	}
	key.Count++
	taken, fill := key.Count, r.interval.times(key.Count)
	key.Span = dueloop.Pack(fill)
	if fill == expiring.Forever || expires == expiring.Forever {
		r.keys.SetLifeLocked(s, expiring.Forever)
		if taken <= r.burst {
			return 0
		}
		return math.MaxInt64
	}
	r.keys.SetLifeLocked(s, start+fill-now)
	if taken <= r.burst {
		return 0
	}
	return max(0, start+r.interval.times(taken-r.burst)-now)
}

func (r *itemBucketRateLimiter[T]) NumRequeues(item T) int {
	keytable.CheckKey(item)
	return 0
}

func (r *itemBucketRateLimiter[T]) Forget(item T) { r.keys.Forget(item) }

func (r *itemBucketRateLimiter[T]) Requeued() (iter.Seq2[T, int], bool) { return requeuedOf[T](nil) }

// tokenInterval is the time in which a bucket gets a token, in nanoseconds. It is infinite if the bucket gets
// none.
type tokenInterval float64

// newTokenInterval returns 1 s / limit. If a whole number of nanoseconds comes so close that its rate.Every
// is limit, it returns that number.
func newTokenInterval(limit rate.Limit) tokenInterval {
	if !(limit > 0) { // Also true of NaN.
		return tokenInterval(math.Inf(1))
	}
	interval := float64(time.Second) / float64(limit)
	if d := math.Round(interval); d < float64(expiring.Horizon) && rate.Every(time.Duration(d)) == limit {
		interval = d
	}
	return tokenInterval(interval)
}

// times returns n intervals, rounded up, or expiring.Forever if they reach expiring.Horizon.
func (i tokenInterval) times(n uint32) time.Duration {
	d := math.Ceil(float64(n) * float64(i))
	if d >= float64(expiring.Horizon) {
		return expiring.Forever
	}
	return time.Duration(d)
}
