// Package workqueue is a deduplicating work queue with delays and rate limits, and has the API of
// k8s.io/client-go/util/workqueue: a program changes the import path (docs/migrating.md has two exceptions).
// It queues the keys of things that have changed. A worker looks the thing up when it gets the key, and so
// handles all changes up to then at once. Three names are enough to begin with:
//
//   - [NewQueue] makes a queue.
//   - [ExtendedRateLimiting] is what it has: Add, AddAfter, Next, Fail, Forget, Done and more.
//   - Run of package worker is a worker, with retry limits, panic recovery, timeouts and an orderly shutdown.
//
// A worker of your own is this loop, one goroutine each:
//
//	queue := workqueue.NewQueue(nil, workqueue.TypedRateLimitingQueueConfig[string]{Name: "orders"})
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
// A key is queued at most once, and at most one worker holds it. If it is added while a worker holds it, its
// Done queues it again: so no Add is lost. Keys come in the order in which they became queued. AddAfter makes
// a key wait for a time besides, so it can come twice.
//
// # Failures
//
// Fail counts a failure, keeps the text of its error, and adds the key again after the limiter's delay. An
// event that is added meanwhile brings the key at once. If that call fails before the delay has passed, it is
// the same failure: it is not counted, and the key is retried when it would have been. If the retry comes due
// while a worker holds the key, a failure of that call takes it back, and its own retry counts. After a
// success it still comes, once: Forget ends the count, and takes back nothing. MaxRetries, RetryFor or
// Terminal of [Failure] give a key up until a new event. See docs/backoff.md, and docs/README.md for
// priorities, metrics, the debug page, and queues that processes share.
package workqueue
