// Package workqueue is a deduplicating work queue with delays and rate limits, and has the API of
// k8s.io/client-go/util/workqueue: a program changes the import path (docs/migrating.md has two exceptions).
// It queues the keys of things that have changed. A worker looks the thing up when it gets the key, and so
// handles all changes up to then at once. Three names are enough to begin with:
//
//   - [NewTypedRateLimitingQueue] makes a queue.
//   - [ExtendedRateLimiting] is what the queue implements. A worker takes a key with Next, calls Forget after
//     a success or Fail after an error, and then Done.
//   - Run of package worker is that worker, with retry limits, panic recovery, timeouts and an orderly
//     shutdown.
//
// docs/README.md leads to priorities, metrics, the debug page, and queues that processes share.
//
// A worker of your own is this loop, one goroutine each:
//
//	queue := workqueue.NewTypedRateLimitingQueue[string](nil).(workqueue.ExtendedRateLimiting[string])
//	for {
//		h, err := queue.Next(ctx)
//		if err != nil {
//			return // ctx is done, or the queue is shut down and empty.
//		}
//		if err := reconcile(h.Key); err != nil {
//			queue.Fail(ctx, h.Key, workqueue.Failure{Err: err}) // Again, later.
//		} else {
//			queue.Forget(h.Key)
//		}
//		queue.Done(h.Key)
//	}
//
// # A key's life
//
// A key is in one, both or none of two sets: dirty (it needs processing) and processing (a worker holds it).
//
//	absent ──Add──▶ queued ──Get──▶ processing ──Done──▶ absent
//	                  ▲                 │ Add
//	                  │                 ▼
//	                  └─────Done── processing and dirty
//
// So a key is queued at most once, at most one worker holds it, and no Add is lost. Keys come in the order in
// which they became queued. With [TypedDelayingInterface] a key also waits for a time, and can be added now
// as well: then it comes twice.
//
// # Failures
//
// Fail counts a failure, keeps the text of its error, and adds the key again after the limiter's delay. An
// event that is added meanwhile brings the key at once. If that call fails before the delay has passed, it is
// the same failure: it is not counted, and the key is retried when it would have been. MaxRetries, RetryFor
// or Terminal of [Failure] give a key up until a new event. Forget ends the count. See docs/backoff.md.
//
// # Costs
//
// Add, Get and Done take constant time, AddAfter logarithmic time. None of them allocates once the queue has
// had as many keys before, except that the first key that waits starts a goroutine and a timer. A queue that
// holds nothing has no goroutine and little memory, and is collected without shutdown, unless it has metrics.
//
// # Keys, clocks and other code of yours
//
// A key that cannot be hashed, or is not equal to itself (NaN), makes a method panic and leaves the queue
// unharmed. All times come from the configured clock, or from a testing/synctest bubble. A clock, a context
// or a metric must not call runtime.Goexit. A panic in your code is not recovered; a caller that recovers it
// finds the lock free.
package workqueue
