// Package workqueue is a deduplicating work queue with delays and rate limits, with the API of
// k8s.io/client-go/util/workqueue: a program that imports that package works with this one after changing the
// import path (docs/migrating.md has the two exceptions). It queues the keys of things that have changed: a
// name, a path, a number. A worker looks the thing up when it gets the key, and so handles all changes up to
// then at once.
//
// Three names are enough to begin with:
//
//   - [NewTypedRateLimitingQueue] makes a queue.
//   - [ExtendedRateLimiting] is what the queue implements. A worker takes a key with Next, calls Forget or
//     Fail, and then Done.
//   - Run of package worker is that worker, with retry limits, panic recovery, timeouts and an orderly
//     shutdown.
//
// The names of client-go that are deprecated there stand in compat.go.
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
// From this follows what the queue is for:
//
//   - A key is queued at most once, however often it is added.
//   - A key is held by at most one worker, so workers need no locks of their own for what a key names.
//   - An Add is never lost: a key that is added while a worker holds it is queued again by Done.
//   - Keys come in the order in which they became queued.
//
// # Three layers
//
//   - [Typed], made by [NewTyped], is the queue: Add, Get, Done.
//   - A delaying queue, made by [NewTypedDelayingQueue], adds AddAfter: add this key later. Waiting keys
//     are in a heap by the time at which they are due, each at most once, at the earliest of the times
//     that AddAfter was called with. A waiting key can be added now as well, and then comes twice.
//   - A rate-limiting queue, made by [NewTypedRateLimitingQueue], adds AddRateLimited: add this key when
//     a [TypedRateLimiter] says. Most programs want this one.
//
// Each layer works on the one below through its interface, so a queue of your own can take the place of ours
// in the configs. All queues of this package are also [Extended], unless a queue in their config is not. The
// usual worker is this loop, in one goroutine per worker:
//
//	for {
//		key, shutdown := queue.Get()
//		if shutdown {
//			return
//		}
//		if err := reconcile(key); err != nil {
//			queue.AddRateLimited(key) // Again, later.
//		} else {
//			queue.Forget(key) // The next failure is a first one.
//		}
//		queue.Done(key)
//	}
//
// # Failures
//
// Fail of [ExtendedRateLimiting] is AddRateLimited that also counts. The queue keeps how often a key has
// failed in a row, since when, and the text of the latest error; its limiter says how long failure n waits.
// An event that is added meanwhile brings the key at once. If it fails again before its delay has passed,
// that is the same failure: it is not counted, and the key is retried when it would have been. With
// MaxRetries or RetryFor of [Failure] the queue gives a key up. Forget, after a success, ends the count.
//
// # Shutdown
//
// ShutDown makes a queue ignore what is added and hand out what it still has. Then each Get reports the
// shutdown. ShutDownWithDrain waits, in addition, until the workers are done with everything, and
// ShutDownContext does so for a limited time. If keys are queued, and for 10 s none was held or taken, both
// log it, and ShutDownWithDrain drops them and returns. All may be called any number of times. Keys that wait
// for their time are dropped; [Stats] counts what is dropped.
//
// # Costs
//
// Add, Get and Done take constant time; AddAfter takes logarithmic time at worst, and constant time on
// average when times are in no particular order. Once the queue has had as many keys before, none of them
// allocates, except that the first key that waits starts a goroutine and a timer. A queue that holds nothing
// has no goroutine, no timer and little memory, and is garbage when it is no longer referred to, with or
// without shutdown. (A queue with metrics lives until shutdown: its provider reads it, or a goroutine
// refreshes its metrics every 500 ms.) After a burst of keys the memory goes back to the collector.
//
// # Seeing into it
//
// Beyond client-go's interfaces every queue of this project is an [Extended], at every layer and behind every
// wrapper, and every rate-limiting one an [ExtendedRateLimiting], which counts failures. Package
// foreign makes them of others. Package operate has what operators do with a queue, and package
// leasing what a queue has that lends its keys for a time.
//
// Extended has Stats, which returns numbers, Snapshot, which lists the first keys that are
// being processed, are queued, wait, and keep failing, and SnapshotKeys, which goes over all keys in steps. A
// queue with a name and a [MetricsProvider] also knows since when each key has been processed or queued. A
// [StatsProvider], such as that of package prom, reads the numbers when it needs them; to others the queue
// pushes every change, as in client-go. Package debug shows all this as a page.
//
// # Time
//
// All times come from the configured clock. On a fake clock (k8s.io/utils/clock/testing) nothing happens
// until the test steps it, and on the real clock a queue that is built inside a testing/synctest bubble
// lives in the bubble's time. A key is never added before its time by the clock's own reading, also when
// the clock jumps. Times more than 146 years from the queue's first reading count as that far away.
//
// # Code of yours that the queue calls
//
// The methods of a clock, a context or a metric must not call [runtime.Goexit]. A context whose Done channel
// is closed must return an error from Err. A metric must not call the queue, because it runs under the
// queue's lock. A panic in your code is not recovered: it ends the program, as elsewhere in Go. A caller that
// recovers it finds the lock free, and nothing else is promised.
//
// # Keys
//
// A key is any comparable value; small ones are best. A method that is given a key of an interface type that
// cannot be hashed panics with a runtime error that names the type, like a map. It also panics if the key is
// not equal to itself (NaN), because such a key could never be found again. Neither harms the queue.
package workqueue
