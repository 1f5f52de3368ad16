package workqueue

import (
	"iter"
	"time"

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
