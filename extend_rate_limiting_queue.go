package workqueue

import (
	"context"
	"time"

	"github.com/keyedqueue/workqueue/internal/failures"
)

// ExtendRateLimiting is [Extend] for a rate-limiting queue: it returns queue itself if it is an
// [ExtendedRateLimiting], or a wrapper. The wrapper counts failures for itself, on the real clock, and calls
// queue's AddRateLimited, which does not say how long the key waits. So it counts every failed call, also of a
// key that an event has brought early. With AtLeast it calls AddAfter, and queue's limiter is not asked. It
// forgets a count an hour after the failure unless a worker holds the key.
func ExtendRateLimiting[T comparable](queue TypedRateLimitingInterface[T]) ExtendedRateLimiting[T] {
	if e, ok := queue.(ExtendedRateLimiting[T]); ok {
		return e
	}
	e := &rateLimitingExtension[T]{queue: queue}
	e.Extended, e.delaying, e.rateLimiter = Extend[T](queue), queue, ownLimiter[T]{queue}
	e.failures = failures.New(nil, e.has)
	return e
}

// rateLimitingExtension has the queue's own limiter below it, which cannot be asked for a delay.
type rateLimitingExtension[T comparable] struct {
	rateLimitingType[T]
	queue TypedRateLimitingInterface[T]
}

// ownLimiter is the part of a queue's limiter that the queue lets others use.
type ownLimiter[T comparable] struct{ TypedRateLimitingInterface[T] }

func (ownLimiter[T]) When(T) time.Duration { panic("workqueue: unreachable") }

func (e *rateLimitingExtension[T]) AddRateLimited(item T) { e.queue.AddRateLimited(item) }

func (e *rateLimitingExtension[T]) Fail(_ context.Context, key T, f Failure) (Retry, error) {
	r := e.failures.Fail(key, failures.Failure(f), failures.Call{}, unknownDelay[T]{})
	switch {
	case r.GivenUp:
		e.queue.Forget(key)
	case r.Delay > 0: // of AtLeast
		e.queue.AddAfter(key, r.Delay)
	default:
		e.queue.AddRateLimited(key)
	}
	return Retry(r), nil
}

// unknownDelay stands for the limiter of a queue that adds a key without saying when.
type unknownDelay[T comparable] struct{}

func (unknownDelay[T]) When(T) time.Duration { return 0 }
