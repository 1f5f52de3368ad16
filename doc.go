// Package workqueue is a deduplicating work queue with delays and rate limits, with the API of
// k8s.io/client-go/util/workqueue: a program that imports that package works with this one after changing the
// import path (docs/migrating.md has the two exceptions). It queues the keys of things that have changed: a
// name, a path, a number. A worker looks the thing up when it gets the key, and so handles all changes up to
// then at once.
//
// Three names are enough to begin with:
//
//   - [NewTypedRateLimitingQueue] makes a queue.
//   - [ExtendedRateLimiting] is what the queue implements. A worker takes a key with Next, calls Forget after
//     a success or Fail after an error, and then Done.
//   - Run of package worker is that worker, with retry limits, panic recovery, timeouts and an orderly
//     shutdown.
//
// A worker of your own is this loop, in one goroutine per worker:
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
//			queue.Forget(h.Key) // The next failure is a first one.
//		}
//		queue.Done(h.Key)
//	}
//
// # A key's life
//
// A key is in one of four states, by its membership in two sets, dirty (it needs processing) and processing
// (a worker holds it):
//
//	absent ──Add──▶ queued ──Get──▶ processing ──Done──▶ absent
//	                  ▲                 │ Add
//	                  │                 ▼
//	                  └─────Done── processing and dirty
//
//   - A key is queued at most once, however often it is added.
//   - A key is held by at most one worker, so workers need no locks of their own for what a key names.
//   - An Add is never lost: a key that is added while a worker holds it is queued again by Done.
//   - Keys come in the order in which they became queued.
//
// # Failures
//
// Fail counts a failure of the key, keeps the text of its error, and adds the key again after the limiter's
// delay. An event that is added meanwhile brings the key at once. If that call fails too before the delay has
// passed, it is the same failure: it is not counted, and the key is retried when it would have been. With
// MaxRetries or RetryFor of [Failure] the queue gives a key up. Forget ends the count. AddRateLimited is Fail
// of client-go: there the limiter alone decides. docs/backoff.md has the details.
//
// # Layers
//
// [Typed] is the queue: Add, Get, Done. A delaying queue ([NewTypedDelayingQueue]) puts AddAfter on top of it,
// and a rate-limiting queue AddRateLimited and Fail on top of that. Each layer works on the one below through
// its interface, so the configs take a queue of your own instead. Package priorityqueue has the same methods
// and orders its keys. Package foreign makes an [ExtendedRateLimiting] of a queue from elsewhere.
//
// # Shutdown
//
// ShutDown makes a queue ignore what is added and hand out what it still has. Then each Get reports the
// shutdown. ShutDownWithDrain waits, in addition, until the workers are done with everything, and
// ShutDownContext does so for a limited time. Keys that wait for their time are dropped.
//
// # Costs
//
// Add, Get and Done take constant time, AddAfter logarithmic time. Once the queue has had as many keys before,
// none of them allocates, except that the first key that waits starts a goroutine and a timer. A queue that
// holds nothing has no goroutine, no timer and little memory, and is collected without shutdown. (A queue with
// metrics lives until shutdown.) After a burst of keys the memory goes back to the collector.
//
// # Seeing into it
//
// Stats of [Extended] has numbers, Snapshot the first keys of each state, and SnapshotKeys all keys. With a name
// and a [MetricsProvider], such as that of package prom, the queue also measures times. Package debug shows
// all this as a page. Packages operate and leasing have what operators and other processes do with a queue.
//
// # Time
//
// All times come from the configured clock, or from a testing/synctest bubble (docs/testing.md). A key is never
// added before its time by the clock's own reading, even when the clock jumps. Times more than 146 years from
// the queue's first reading count as that far away.
//
// # Foreign code
//
// A clock, a context or a metric must not call [runtime.Goexit]. A panic in your code is not recovered. A
// caller that recovers it finds the lock free, and nothing else is promised.
//
// # Keys
//
// A key is any comparable value; small ones are best. Like a map, a method panics if a key of an interface type
// cannot be hashed. It also panics if the key is not equal to itself (NaN). Neither harms the queue.
package workqueue
