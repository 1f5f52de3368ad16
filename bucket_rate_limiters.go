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

// NewTypedItemBucketRateLimiter returns a limiter with a token bucket for each key, which has burst tokens at
// first and never more, gets limit tokens a second, and may owe tokens. When takes one, and returns how long
// it takes on c until that token is there, by the generic cell rate algorithm (ITU-T I.371): with
//
//	interval  1 s / limit, rounded to nanoseconds
//	full      when the bucket will be full: at first, and after a while without calls, now
//
// Each call adds interval to full, and returns max(0, full - burst · interval - now). A full bucket carries
// no information, so it is dropped: by calls for any key.
//
// An infinite limit never delays, whatever burst is. Otherwise a burst below 1 lets nothing through: When is
// math.MaxInt64. A limit that is NaN or not positive gives each key its first burst tokens, and then nothing.
//
// NumRequeues returns 0, as a bucket does not count failures. Forget drops the bucket: the key's next one is
// full. Nil for c means the real clock; it is read under the limiter's lock, and when it is set back, time
// goes on from there. All methods may be called by many goroutines at once, and take logarithmic time and no
// allocation once the table has its size. A key takes its own size, 36 bytes, and 11 to 22 in the index.
func NewTypedItemBucketRateLimiter[T comparable](limit rate.Limit, burst int, c clock.PassiveClock) TypedRateLimiter[T] {
	interval := float64(expiring.Horizon)
	if limit > 0 { // So it is not NaN.
		interval = min(interval, math.Round(float64(time.Second)/float64(limit)))
	}
	room := min(interval*float64(burst), float64(expiring.Horizon))
	r := &itemBucketRateLimiter[T]{time.Duration(interval), time.Duration(room), burst, expiring.New[T, uint32](c)}
	r.keys.AdvanceLocked()
	return r
}

type itemBucketRateLimiter[T comparable] struct {
	interval, room time.Duration // room is burst intervals
	burst          int

	// keys expire when their buckets are full, and count the tokens that were taken before.
	keys expiring.Keys[T, uint32]
}

func (r *itemBucketRateLimiter[T]) When(item T) time.Duration {
	keytable.CheckKey(item)
	switch {
	case r.interval == 0:
		return 0
	case r.burst < 1:
		return expiring.Forever
	}
	h := keytable.HashOf(item)
	r.keys.Mu.Lock()
	defer r.keys.Mu.Unlock()
	r.keys.TickLocked()
	s, v, full := r.keys.FindOrInsertLocked(h, item)
	full = dueloop.AddSaturated(full, r.interval)
	*v = min(*v+1, math.MaxInt32)
	r.keys.SetLifeLocked(s, full-r.keys.Now)
	switch {
	case int(*v) <= r.burst:
		return 0
	case full == expiring.Forever:
		return expiring.Forever
	}
	return max(0, full-r.room-r.keys.Now)
}

func (r *itemBucketRateLimiter[T]) NumRequeues(item T) int {
	keytable.CheckKey(item)
	return 0
}

func (r *itemBucketRateLimiter[T]) Forget(item T) { r.keys.Forget(item) }

func (r *itemBucketRateLimiter[T]) Requeued() (iter.Seq2[T, int], bool) { return requeuedOf[T](nil) }
