package workqueue

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/keyedqueue/workqueue/internal/failures"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"k8s.io/utils/clock"
)

// TypedRateLimitingInterface is a queue to which a key can be added when a [TypedRateLimiter] allows it.
type TypedRateLimitingInterface[T comparable] interface {
	TypedDelayingInterface[T]

	// AddRateLimited is AddAfter with the delay from When of the limiter.
	AddRateLimited(item T)

	// Forget makes the limiter forget item, after a success or a last try. Done must also be called.
	Forget(item T)

	// NumRequeues returns how many failures of item are counted.
	NumRequeues(item T) int
}

// TypedRateLimitingQueueConfig configures [NewTypedRateLimitingQueueWithConfig].
type TypedRateLimitingQueueConfig[T comparable] struct {
	// Name, MetricsProvider and Clock are those of [TypedQueueConfig]. The limiter has a clock of its own.
	Name            string
	MetricsProvider MetricsProvider
	Clock           clock.WithTicker

	// DelayingQueue is where keys go with the limiter's delay. Nil means one with the fields above. Of another
	// package's, priorities, leases and failure counts are hidden, and no retry is taken back.
	DelayingQueue TypedDelayingInterface[T]
}

// NewQueue returns a queue with all that this package has, as [NewTypedRateLimitingQueueWithConfig] does. It
// panics if config.DelayingQueue is set and no [Extended].
func NewQueue[T comparable](rateLimiter TypedRateLimiter[T], config TypedRateLimitingQueueConfig[T]) ExtendedRateLimiting[T] {
	q, ok := NewTypedRateLimitingQueueWithConfig(rateLimiter, config).(ExtendedRateLimiting[T])
	if !ok {
		panic(fmt.Sprintf("workqueue: %T is no workqueue.Extended: use package foreign", config.DelayingQueue))
	}
	return q
}

// NewTypedRateLimitingQueue returns a rate-limiting queue without metrics. A nil rateLimiter means
// [DefaultTypedControllerRateLimiter].
func NewTypedRateLimitingQueue[T comparable](rateLimiter TypedRateLimiter[T]) TypedRateLimitingInterface[T] {
	return NewTypedRateLimitingQueueWithConfig(rateLimiter, TypedRateLimitingQueueConfig[T]{})
}

// NewTypedRateLimitingQueueWithConfig is [NewTypedRateLimitingQueue] configured by config. The result is an
// [ExtendedRateLimiting] if config.DelayingQueue is an [Extended], or is nil.
func NewTypedRateLimitingQueueWithConfig[T comparable](rateLimiter TypedRateLimiter[T], config TypedRateLimitingQueueConfig[T]) TypedRateLimitingInterface[T] {
	if rateLimiter == nil {
		rateLimiter = DefaultTypedControllerRateLimiter[T]()
	}
	provider := providerFor(config.Name, config.MetricsProvider)
	ownsQueue := config.DelayingQueue == nil
	if ownsQueue {
		delaying := TypedDelayingQueueConfig[T]{Name: config.Name, Clock: config.Clock}
		config.DelayingQueue, _ = newDelayingQueue(delaying, provider)
	}
	extended, ok := config.DelayingQueue.(Extended[T])
	if !ok {
		return plainRateLimiting[T]{config.DelayingQueue, rateLimiter}
	}
	q := &rateLimitingType[T]{Extended: extended, delaying: config.DelayingQueue, rateLimiter: rateLimiter}
	if q.retries, ok = config.DelayingQueue.(retrier[T]); !ok {
		q.retries = plainRetrier[T]{config.DelayingQueue}
	}
	q.failures = failures.New(config.Clock, func(key T) bool {
		_, found := extended.SnapshotKey(key)
		return found
	})
	if ownsQueue {
		watch(config.Name, provider, q.Stats)
	} else {
		q.below = extended
	}
	inspect[T](q, config.Name, provider)
	return q
}

// rateLimitingType puts AddRateLimited and Fail on top of a delaying queue.
type rateLimitingType[T comparable] struct {
	Extended[T] // the delaying queue without its AddAfter
	delaying    TypedDelayingInterface[T]
	retries     retrier[T]
	rateLimiter TypedRateLimiter[T]
	failures    *failures.Counts[T]
	below       any // the delaying queue, or nil if this layer has made it
}

// retrier is a delaying queue that distinguishes retries from what others add. A retry is for a held key.
type retrier[T comparable] interface {
	// addRetry is AddAfter that replaces the retry of an earlier failure.
	addRetry(h keytable.Hash, item T, delay time.Duration)
	// takeBackRetry removes the retry of an earlier failure, even if it has come due while item was held. An
	// item that others have added too still comes.
	takeBackRetry(h keytable.Hash, item T)
}

// plainRetrier is a user's delaying queue. It takes nothing back.
type plainRetrier[T comparable] struct{ TypedDelayingInterface[T] }

func (q plainRetrier[T]) addRetry(_ keytable.Hash, item T, d time.Duration) { q.AddAfter(item, d) }
func (q plainRetrier[T]) takeBackRetry(keytable.Hash, T)                    {}

var _ ExtendedRateLimiting[int] = (*rateLimitingType[int])(nil)

func (q *rateLimitingType[T]) Below() any { return q.below }

func (q *rateLimitingType[T]) AddAfter(item T, duration time.Duration) {
	q.delaying.AddAfter(item, duration)
}

func (q *rateLimitingType[T]) AddRateLimited(item T) {
	q.AddAfter(item, q.rateLimiter.When(item))
}

// Fail calls the limiter without a lock.
func (q *rateLimitingType[T]) Fail(_ context.Context, key T, f Failure) (Retry, error) {
	h := keytable.HashOf(key)
	r := q.failures.Judge(h, key, failures.Failure(f), q.rateLimiter, false)
	if r.GivenUp {
		q.rateLimiter.Forget(key)
		q.retries.takeBackRetry(h, key)
	} else {
		q.failures.Record(h, key, r, f.Err)
		q.retries.addRetry(h, key, r.Delay)
	}
	return Retry(r), nil
}

func (q *rateLimitingType[T]) Failures(key T) Failures { return Failures(q.failures.Of(key)) }

func (q *rateLimitingType[T]) FailingKeys(limit int) []KeySnapshot[T] {
	return failures.Show(q.failures, limit, q.SnapshotKey)
}

func (q *rateLimitingType[T]) Stats() Stats {
	st := q.Extended.Stats()
	st.Failing = q.failures.Len()
	return st
}

func (q *rateLimitingType[T]) Next(ctx context.Context) (HandOut[T], error) {
	h, err := q.Extended.Next(ctx)
	if err == nil {
		h.Failures = q.Failures(h.Key)
	}
	return h, err
}

func (q *rateLimitingType[T]) Forget(item T) {
	q.failures.Forget(item)
	q.rateLimiter.Forget(item)
}

// NumRequeues returns how many failures Fail has counted, or the limiter's count if that is larger.
func (q *rateLimitingType[T]) NumRequeues(item T) int {
	return max(q.failures.Of(item).Count, q.rateLimiter.NumRequeues(item))
}

// Snapshot looks at all keys that fail, a few hundred under one lock.
func (q *rateLimitingType[T]) Snapshot(limit int) Snapshot[T] {
	s := q.Extended.Snapshot(limit)
	s.Stats.Failing = q.failures.Len()
	for _, keys := range [][]KeySnapshot[T]{s.Processing, s.Queued, s.Waiting} {
		for i := range keys {
			keys[i] = q.withFailures(keys[i])
		}
	}
	s.Failing = q.FailingKeys(min(limit, maxSnapshot))
	return s
}

func (q *rateLimitingType[T]) SnapshotKeys() iter.Seq[KeySnapshot[T]] {
	return keytable.Map(q.Extended.SnapshotKeys(), q.withFailures)
}

// SnapshotKey returns the failures also of a key that is not in the queue.
func (q *rateLimitingType[T]) SnapshotKey(key T) (k KeySnapshot[T], found bool) {
	k, found = q.Extended.SnapshotKey(key)
	return q.withFailures(k), found
}

// withFailures returns k with what is known of its failures.
func (q *rateLimitingType[T]) withFailures(k KeySnapshot[T]) KeySnapshot[T] {
	k.Failures = q.Failures(k.Key)
	k.Requeues = q.NumRequeues(k.Key)
	return k
}

// plainRateLimiting puts AddRateLimited on top of a delaying queue that is not ours: with client-go's methods
// and no others. Package foreign makes an ExtendedRateLimiting of the whole.
type plainRateLimiting[T comparable] struct {
	TypedDelayingInterface[T]
	limiter TypedRateLimiter[T]
}

func (q plainRateLimiting[T]) AddRateLimited(item T)  { q.AddAfter(item, q.limiter.When(item)) }
func (q plainRateLimiting[T]) Forget(item T)          { q.limiter.Forget(item) }
func (q plainRateLimiting[T]) NumRequeues(item T) int { return q.limiter.NumRequeues(item) }
