// Package worker runs a handler over the keys of a work queue. It is the loop that every user of a queue would
// otherwise write by hand: get, handle, forget or requeue, give up, recover, done, and an orderly end.
//
//	err := worker.Run(ctx, queue, func(ctx context.Context, key string) error {
//		return reconcile(ctx, key)
//	}, worker.Options[string]{Workers: 4, MaxRetries: 5, DrainTimeout: 10 * time.Second})
//
// The queue is any [workqueue.TypedRateLimitingInterface], client-go's own included. A key whose handler returns an error, or
// panics, comes again when the queue's limiter says. Failures go to [slog.Default], unless Options.Logger is another one. When ctx
// ends, Run lets the running handlers finish and returns nil. Most programs need no more than that and [RequeueAfter].
//
// # What becomes of a key
//
// The handler's answer decides:
//
//	nil                 it is done: its failures are forgotten
//	RequeueAfter(d)     it comes again after d; this is no failure, and earlier ones are forgotten
//	Every(period)       the same, at a moment of each period that belongs to the key
//	Requeue{After, Priority}
//	                    as RequeueAfter, with another priority
//	Hold(reason, limit, arrange)
//	                    it is held until it is released, or until limit; then it comes at once; nothing is counted or forgotten
//	RetryAfter(err, d)  a failure, but the key does not come again before d
//	Terminal(err)       the key is given up: it does not come again
//	Fatal(err)          the same, and Run ends with err
//	ErrAdded, after Call.UntilAdded has ended a wait
//	                    the key comes again at once, because it was added; nothing is counted or forgotten
//	any other error     a failure: the key comes again when the queue's limiter says. It is given up when it has
//	                    failed MaxRetries times in a row and fails once more
//	a panic             is such an error, a *PanicError with the value and the stack
//	runtime.Goexit      is such an error, ErrGoexit; another goroutine takes the worker's place
//
// Wrapped errors (%w, [errors.Join]) count too. If several are joined, the first of this list counts: Fatal, Terminal, RetryAfter, then
// RequeueAfter, Every or Requeue, then Hold, then ErrAdded. A failure joined with RequeueAfter, Every or Requeue counts as a RetryAfter.
// A Hold joined with another answer delays the key in addition, except after Fatal or Terminal. A panic in the error's Unwrap, Is or As
// counts as a panic of the handler. In every case the queue's Done is called exactly once, and last, so the calls for a key do not overlap.
//
// The queue counts the failures, by its Fail: see [workqueue.ExtendedRateLimiting]. A handler reads the count with [Call.Attempt], and
// [Call.LastAttempt] says whether the key is given up if this call fails.
//
//   - After a failure a key waits. If an event brings it back early and it fails again, that is the same failure: it is not counted
//     again, and the key still waits for the end of the first delay.
//   - The count is that of the queue: in all processes that share it, and, with KeepQueue, in the next pool. It ends when anybody
//     calls the queue's Forget, removes the key or gives it up. A hold and an interruption neither count nor end it.
//   - A queue that is not of this project does not count: see [workqueue.ExtendRateLimiting] for what then cannot be known.
//
// A key that is interrupted more than five times in a row, for example because its own handler adds it, waits longer and longer between
// calls. A key whose holds are released within a millisecond more than five times in a row is slowed down in the same way.
//
// A panic outside the handler, in a hook, Options.Ready, the logger, the clock, the queue, its limiter or the provider of metrics, is
// a bug without a key to blame: it ends Run like Fatal, with a [PanicError], and skips the key's other hooks.
//
// # The handler's context
//
// A handler's context has the values of Run's context. It ends after the call and its hooks, and earlier at HandlerTimeout, when the key's
// lease or the pool ends, and by [Pool.Cancel]. Its cause says why. [CallOf] returns its call: which attempt it is, why the key came, a
// logger. [Call.UntilAdded] makes a context that also ends when the key is added again, for waits worth interrupting:
//
//	select {
//	case <-rolledOut:
//	case <-worker.CallOf(ctx).UntilAdded().Done():
//		return worker.ErrAdded // The key comes again at once. This is no failure.
//	}
//
// What the handler itself writes often comes back as an add of its key, for example an update of a status. An add that must not
// interrupt says so: see Quiet of [workqueue.Cause], and the example of UntilAdded.
//
// # On hold
//
// A handler that must wait for the world returns [Hold], and its worker is free:
//
//	return worker.Hold("the volume is attached", 10*time.Minute, func(release func()) {
//		volumes.OnAttached(id, release)
//	})
//
// [Call.Hold] holds a key after any answer. While a key is on hold no worker gets it, and its adds come after the release, merged.
//
//   - For the queue it is still being processed, so in a priorityqueue it also uses up the Limit of its group. If it is added meanwhile,
//     its latency counts from the first of these adds. The pool does not count it as Busy, and HandlerTimeout and StuckAfter do not apply.
//   - [Pool.Snapshot] lists it, and [Pool.Release] releases it. Cancel, Forget and SetWorkers do not change its hold. If a
//     priorityqueue's Remove has taken back its adds, it does not come after the release unless it is added again.
//   - [Pool.WaitIdle] waits for it. Run waits for it if Options.Drain is [All], for up to DrainTimeout, and, without a limit, if somebody
//     else has shut the queue down. (If a key cannot come again, because its hold begins after the shutdown, the hold ends at once.) Other
//     holds end with Run: their keys are in Left.NotStarted or, with KeepQueue, queued for the next pool.
//   - Its hold ends with its lease, which a dead process loses, or when a [workqueue.Leaser] wants the key back, as package sharding does when
//     a slot moves. Then another process may start it before the release. So a handler must cope with a key that comes too early.
//
// # The beginning and the end
//
// Run calls Options.Ready, for caches that must be filled, and then starts the workers. Run ends when its context does, by [Pool.Stop], at
// a fatal error, or when somebody else has shut the queue down and it has handed out all it had. At the end of the context
//
//  1. Options.Drain decides what is still finished: the handlers that run ([Running]), also what is queued ([All]), or [Nothing];
//  2. this may take up to Options.DrainTimeout; meanwhile the handlers' contexts stay alive;
//  3. then their contexts end, with [ErrDrainTimeout], [ErrStopped] or the cause of Run's context, and handlers get
//     Options.CancelGrace to notice;
//  4. the queue is shut down and emptied, unless Options.KeepQueue is set, and Run returns, whether or not the handlers do.
//
// A fatal error is like Stop(Running), whatever Options.Drain is. The end is no error: Run returns nil, or the fatal error. [Pool.Left],
// the log and the hook OnLeft have the keys that were left undone. A handler that is left behind keeps its key. When it returns after all,
// hooks and Done are called as always. If its key was added again meanwhile, that add is dropped, unless Options.KeepQueue is set. To end a
// pool and other goroutines together, take golang.org/x/sync/errgroup.
//
// A priorityqueue whose group is at its limit hands its keys out only when a running handler returns. Run waits a tenth of a second for such
// keys, lists them, and leaves a goroutine that drops them when they come free.
//
// # A queue with leases
//
// Over a [workqueue.Leaser], such as a queue that several processes share, the handler's context is that of the key's lease: it ends, with
// a cause, when another process may have got the key. If it ends before the handler is called, the key is left to that process. A key that
// arrives too late to be started goes back to the queue. Other processes may handle what [Pool.Left] lists.
//
// # What a pool knows
//
// [Pool.Stats] are numbers, [Pool.Snapshot] lists keys that run, are held, fail or were given up, and [Pool.SnapshotKey] shows one key with
// its last calls. Stats.Changes are the times from the first add of a key to the first success, retries included: what users of a program
// feel. They are known if the queue is an in-memory one of this module and has metrics. A provider of metrics that is an
// [InspectorProvider] discovers pools by itself. A program with workers of its own has the same with [Tracker]. Tests wait with
// [Pool.WaitIdle] until nothing is left to do.
//
// # A queue without GetContext
//
// A Get that blocks cannot be interrupted. If the queue is not [workqueue.Extended] and a worker stops waiting, because the pool shrinks,
// pauses or ends, its Get continues, and the next worker takes it over. So a paused pool may hold a key. It comes first when the pool
// resumes, and is reported as not started when it ends. No Get outlives Run.
//
// # Cost
//
// A key costs about 200 ns more than Get, Forget and Done by hand (see BenchmarkKey): the pool takes its lock a few times, and reads the
// clock twice. Over a queue with metrics it costs about 60 ns more, to know how long its change took. A worker allocates the contexts of
// 256 calls at once, 4 KiB, and a handler that keeps its context keeps all 256 alive. Beyond that a key that has not failed before
// allocates nothing if there is no HandlerTimeout, hook or priority and the Logger does not log at level Debug. A handler that waits for
// its context's end, or makes another context from it, costs a few allocations.
package worker
