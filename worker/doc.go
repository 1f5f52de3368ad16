// Package worker runs a handler over the keys of a work queue. It is the loop that every user of a queue
// would otherwise write by hand: get, handle, forget or requeue, give up, recover, done, and an orderly end.
//
//	err := worker.Run(ctx, queue, func(ctx context.Context, key string) error {
//		return reconcile(ctx, key)
//	}, worker.Options[string]{Workers: 4, MaxRetries: 5, DrainTimeout: 10 * time.Second})
//
// The queue is any [workqueue.TypedRateLimitingInterface], client-go's own included. A key whose handler
// returns an error, or panics, comes again when the queue's limiter says. Failures go to [slog.Default],
// unless Options.Logger is another one. When ctx ends, Run lets the running handlers finish and returns nil.
// Most programs need no more than that and [RequeueAfter].
//
// # What it promises
//
//   - The calls for a key do not overlap. After each one the queue's Done is called exactly once, and last.
//   - A key that is added while its handler runs comes again, unless the queue was shut down before. A key
//     whose handler fails comes again, later each time, until it is given up. The log, [Pool.Snapshot] and
//     [Pool.Left] have each failed key that does not.
//   - A panic of the handler fails its key alone, unless Options.CrashOnPanic is set.
//   - When its context has ended, Run waits for handlers no longer than DrainTimeout and CancelGrace,
//     whatever they do.
//
// # What becomes of a key
//
// What the handler returns decides:
//
//	nil                 it is done: its failures are forgotten
//	RequeueAfter(d)     it comes again after d; this is no failure, and earlier ones are forgotten
//	Every(period)       the same, at the key's own moment of each period
//	Requeue{...}        as RequeueAfter, with another priority
//	Hold(...)           it is held until it is released, or until a limit; then it comes at once; nothing is
//	                    counted or forgotten
//	RetryAfter(err, d)  a failure, but the key does not come again by itself before d
//	Terminal(err)       the key is given up: it does not come again
//	Fatal(err)          the same, and Run ends with err
//	ErrAdded            after Call.UntilAdded has ended a wait (see "The handler's context"): the key comes
//	                    again at once, because it was added; nothing is counted or forgotten
//	any other error     a failure: the key comes again when the queue's limiter says. It is given up when it
//	                    has failed MaxRetries times in a row and fails once more
//	a panic             is such an error, a *PanicError with the value and the stack
//	runtime.Goexit      is such an error, ErrGoexit; another goroutine takes the worker's place
//
// Wrapped errors (%w) count too, and so do joined ones ([errors.Join]):
//
//   - Of several, the first of these counts: Fatal, Terminal, RetryAfter, Requeue or RequeueAfter,
//     Every, Hold, ErrAdded. Of several Requeues, or Everys, it is the first one.
//   - A failure joined with Requeue or RequeueAfter counts as a RetryAfter. Joined with Every it is a
//     failure.
//   - Joined with a Hold, each of these but Fatal and Terminal does the same, and the key also waits for the
//     hold. With a Hold, ErrAdded and a failure, the failure counts.
//
// And in rare cases:
//
//   - An event may bring a failing key before its delay has ended. If it fails, that is the same failure:
//     it is not counted, and the key waits for the same end.
//   - After more than five interruptions, or holds that are released within a millisecond, in a row, the key
//     waits longer and longer between its calls.
//   - A panic in the error's Unwrap or Is counts as a panic of the handler.
//
// A panic in any other code that the pool calls (a hook, Options.Ready or List, the logger, the queue, its
// limiter, the provider of metrics; the clock, but not when a hold begins or ends) ends Run like Fatal, with
// a [PanicError]. If that happens after a call, the key's other hooks are skipped.
//
// The queue counts the failures, in all processes that share it and, with KeepQueue, for the next pool: see
// [workqueue.ExtendedRateLimiting]. A handler reads the count with [Call.Attempt], and [Call.LastAttempt]
// says whether the key is given up if this call fails. For a queue that is not of this project see
// [workqueue.ExtendRateLimiting].
//
// # The handler's context
//
// A handler's context has the values of Run's context. It ends after the call and its hooks, and earlier at
// HandlerTimeout, when the key's lease or the pool ends, and by [Pool.Cancel]. Its cause says why. [CallOf]
// returns its call: which attempt it is, why the key came, a logger. [Call.UntilAdded] makes a context that
// also ends when the key is added again, for waits worth interrupting:
//
//	select {
//	case <-rolledOut:
//	case <-worker.CallOf(ctx).UntilAdded().Done():
//		return worker.ErrAdded // The key comes again at once. This is no failure.
//	}
//
// Do not give that context to a write. The next call must look at the world anew: nothing is kept.
//
// # Why a key came
//
// An add can say why, by a [workqueue.Cause], and that it is Quiet: that it ends no UntilAdded. Adds of one
// key are merged, and the last eight different causes kept, so a cause is for people: [Call.Causes], the log
// and the debug page show it. A handler must not depend on it. Give one event always the same text, of at
// most 256 bytes, without counters or times: each different text takes one of the eight places.
//
// What a handler writes often comes back as an add of its key, for example a status. If that interrupted, a
// handler that reports its progress would stop itself again and again. So make such adds Quiet: what people
// ask for should interrupt, not what controllers report. examples/rollout has the rules for Kubernetes.
//
// # On hold
//
// A handler that must wait for the world returns [Hold], and its worker is free. [Call.Hold] holds a key
// whatever the handler returns. While a key is on hold no worker gets it, and its adds come after the
// release, merged. [Pool.Snapshot] lists it, [Pool.Release] releases it, and [Pool.WaitIdle] waits for it. A
// key on hold is not in Stats.Busy. But the queue still counts it as being processed, so in a priorityqueue
// it takes one place in the Limit of its group.
//
// A hold ends early by [Pool.Release], with the key's lease, and when a [lease.Leaser] wants the key
// back, as package sharding does when a slot moves. So a handler must cope with a key that comes too early.
// After a shutdown it ends if no add from before brings the key: a new hold at once, an older one once the
// queue is empty (not over a Leaser, which does not know; with a Tracker only the first).
//
// Run waits for holds, for up to DrainTimeout, if Options.Drain is [All], and without a limit if somebody
// else has shut the queue down. Other holds end with Run. Keys that were to come again at once are then in
// Left.NotStarted or, if the queue lives on, queued: for the next pool with KeepQueue, for other processes if
// they share it.
//
// # The beginning and the end
//
// Run calls Options.Ready, for caches that must be filled, and then starts the workers. It ends when its
// context does, by [Pool.Stop], or at a fatal error, in three steps:
//
//  1. Options.Drain decides what is still finished: the handlers that run ([Running]), also what is queued
//     ([All]), or [Nothing]; this may take up to Options.DrainTimeout. A fatal error is like Stop(Running).
//  2. Then the handlers' contexts end, with [ErrDrainTimeout], [ErrStopped] or the cause of Run's context,
//     and handlers get Options.CancelGrace to notice.
//  3. The queue is shut down and emptied, unless Options.KeepQueue is set. Run returns, whether or not the
//     handlers do: nil or the fatal error. [Pool.Left], the log and the hook OnLeft have what is left undone.
//
// It also ends when somebody else shuts the queue down: then all that is queued is handled first, without a
// limit, and step 3 follows.
//
// A handler that is left behind keeps its key. When it returns after all, hooks and Done are called as
// always. If its key was added again meanwhile, that add is dropped, unless Options.KeepQueue is set. To end
// a pool and other goroutines together, take golang.org/x/sync/errgroup.
//
// For programs that may miss events, Options.List and Options.Resync make every key come again within a time.
//
// # Queues that can do more, or less
//
// Over a [lease.Leaser], such as a queue that several processes share, the handler's context is that of
// the key's lease: it ends, with a cause, when another process may have got the key. If it ends before the
// handler is called, the key is left to that process. A key that arrives too late to be started goes back to
// the queue. Other processes may handle what [Pool.Left] lists.
//
// If the queue is not [workqueue.Extended] and a worker stops waiting for a key, because the pool shrinks,
// pauses or ends, its Get goes on, and the next worker takes it over. So a paused pool may hold a key, which
// comes first when it resumes, and is reported as not started when it ends. No Get outlives Run.
//
// # What a pool knows
//
// [Pool.Stats] has numbers, [Pool.Snapshot] lists keys that run, are held, fail or were given up, and
// [Pool.SnapshotKey] shows one key with its last calls. Stats.Changes measures what users feel: the time from
// the first add of a key to the first success, if the queue is an in-memory one of this module and has
// metrics. A provider of metrics that is an [InspectorProvider] discovers pools by itself. A program with
// workers of its own has the same with [Tracker]. Tests wait until nothing is left to do: [Pool.WaitIdle].
//
// # Cost
//
// A key costs about 200 ns more than Get, Forget and Done by hand (see BenchmarkKey), and about 60 ns more
// over a queue with metrics. A worker allocates the contexts of 256 calls at once, 4 KiB, and a handler that
// keeps its context keeps all 256 alive. Beyond that a key that has not failed before allocates nothing if
// there is no HandlerTimeout, lease, hook or priority and the Logger does not log at level Debug. A handler
// that waits for its context's end, or makes another context from it, costs a few allocations.
package worker
