// Package worker runs a handler over the keys of a work queue. It is the loop that every user of a queue would
// otherwise write by hand: get, handle, forget or requeue, give up, recover, done, and an orderly end.
//
//	err := worker.Run(ctx, queue, func(ctx context.Context, key string) error {
//		return reconcile(ctx, key)
//	}, worker.Options[string]{Workers: 4, MaxRetries: 5, DrainTimeout: 10 * time.Second})
//
// The queue is any [workqueue.TypedRateLimitingInterface], client-go's own included.
//
// # What becomes of a key
//
// The handler's answer decides:
//
//	nil                 the key is forgotten
//	RequeueAfter(d)     it comes again after d; this is no failure, and earlier ones are forgotten
//	Requeue{After, Priority}
//	                    the same, with another priority
//	Terminal(err)       it does not come again, and OnDrop is called
//	Fatal(err)          the same, and Run ends with err
//	ErrAdded, after UntilAdded has ended a wait
//	                    it comes again at once, because it was added; nothing is counted or forgotten
//	any other error     it comes again when the queue's limiter says, until it has failed MaxRetries
//	                    times in a row and fails once more: then it is dropped, and OnDrop is called
//	a panic             is such an error, a *PanicError with the value and the stack
//	runtime.Goexit      is such an error, ErrGoexit; another goroutine takes the worker's place
//
// Wrapped errors (%w, [errors.Join]) count too; if there are several, Fatal and Terminal beat Requeue and RequeueAfter, which
// beat ErrAdded. A panic of the error's own methods counts as one of the handler. In every case the queue's Done is called
// exactly once, after all else has been done with the key: a key is with one handler, and its hooks, at a time.
//
// The pool counts failures itself: not every limiter counts by key, and those that do also count AddRateLimited by
// others. [Attempt] returns the number to a handler. Two pools on one queue count each for itself, so that a key
// may fail MaxRetries times in both, unless the queue is a [RequeueCounter]. When the limiter has forgotten a key, for
// example because another pool has handled it, the pool forgets its failures too.
//
// A panic outside the handler and OnStart, in another hook, the logger, the clock, the queue, its limiter or the provider of
// metrics, is a bug without a key to blame: it ends Run like Fatal, with a [PanicError], and skips the key's other hooks.
//
// # The handler's context
//
// A handler's context ends when its call has ended, after the hooks; before that by HandlerTimeout, with the key's lease, with
// the pool, or by [Pool.Cancel]. Its cause says why. It has the values of Run's context, and what [Attempt], [Priority], [Logger]
// and [Causes] return. [UntilAdded] makes one that also ends when the key is added again, for waits worth interrupting:
//
//	select {
//	case <-rolledOut:
//	case <-worker.UntilAdded(ctx).Done():
//		return worker.ErrAdded // The key comes again at once. This is no failure.
//	}
//
// What the handler itself writes often comes back as an add of its key, for example an update of a status. An add that must not
// interrupt says so: see Quiet of [workqueue.Cause], and the example of UntilAdded.
//
// # The end
//
// Run ends when its context does, when [Pool.Stop] is called, at a fatal error, or when somebody else has shut the queue down and
// it has handed out all it had. At the end of the context
//
//  1. Options.Drain decides what is still finished: the handlers that run ([Running]), also what is queued ([All]), or [Nothing];
//  2. that gets Options.DrainTimeout, and the handlers' contexts stay alive for as long;
//  3. then their contexts end, with [ErrDrainTimeout], [ErrStopped] or the cause of Run's context, and handlers get
//     Options.CancelGrace to notice;
//  4. the queue is shut down and emptied, unless Options.KeepQueue is set, and Run returns, whether or not the handlers do.
//
// A fatal error is like Stop(Running), whatever Options.Drain is. The end is no error: Run returns nil, or the fatal error.
// [Pool.Left] and the hook OnLeft have the keys that were left undone. A handler that is left behind keeps its key. When it
// returns after all, hooks and Done are called as always.
//
// A queue may hold keys back, as a priorityqueue does with those of a group at its limit, until a handler that was left behind
// returns. Run waits for them at most a tenth of a second. They are taken out of the queue when that is possible.
//
// # A queue with leases
//
// Over a [workqueue.Leaser], such as a queue that several processes share, the handler's context is the one of the key's
// lease: it ends, with a cause, when another process may have got the key. If it has ended before the handler is called, the
// key is left to the other process. A key that was got too late to be started goes back to the queue. [Pool.Left] has what
// this process left undone; other processes may handle it.
//
// # What a pool knows
//
// [Pool.Stats] are numbers, [Pool.Snapshot] lists keys that run, fail or were dropped, and [Pool.SnapshotKey] shows one key with
// its last calls. A provider of metrics that is a [StatsProvider] or an [InspectorProvider] discovers pools by itself.
//
// # A queue without GetContext
//
// A Get that blocks cannot be interrupted. Over a queue that is not [workqueue.Extended] each getter therefore has a goroutine
// that calls Get for it, and that stays when the getter gives up (because the pool shrinks, pauses or ends) and hands its key to
// the next one. So a pool that is paused may hold as many keys in hand as it had workers. They come first when the pool goes on,
// and are reported as not started when it ends. All these goroutines are gone when Run returns.
//
// # Cost
//
// A key costs less than 200 ns more than Get, Forget and Done by hand (see BenchmarkKey): the pool takes its lock a few times, and
// reads the clock twice. It allocates nothing for a key that has not failed before if there is no Logger, HandlerTimeout, hook or
// priority, but for the contexts: 4 KiB for 256 calls of a worker. A context that a handler keeps keeps those, too. A handler that
// waits for the end of its context, or makes another one from it, costs a few allocations more.
package worker
