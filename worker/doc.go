// Package worker runs a handler over the keys of a work queue: the loop that every user of a queue would
// otherwise write. It gets, handles, retries, gives up, recovers and calls Done, and ends in order.
//
//	err := worker.Run(ctx, queue, func(ctx context.Context, key string) error {
//		return reconcile(ctx, key)
//	}, worker.Options[string]{Workers: 4, MaxRetries: 5, DrainTimeout: 10 * time.Second})
//
// A key whose handler fails is retried when the queue's limiter says. When ctx ends, Run lets the running
// handlers finish and returns nil. Most programs need no more than that and [RequeueAfter].
//
// # What it promises
//
//   - Calls for one key do not overlap. After each the queue's Done is called once, and last.
//   - A key that is added during its call is handled again, unless the queue was shut down before.
//   - The handler's panic or [runtime.Goexit] fails its key alone. A panic of a hook ends the program.
//
// # What becomes of a key
//
// The handler's error decides. [errors.As] looks in it for these, and the first row that is found counts:
//
//	(the lease was lost)   another process may have the key: the answer is ignored, but Fatal still ends Run
//	nil                    it is done: its failures are forgotten
//	Fatal(err)             the key is given up: it is not retried. Run ends with err
//	Terminal(err)          the key is given up
//	RetryAfter(err, d)     a failure, but the key is not retried before d by itself. Of several delays in a
//	                       failure, also those of Requeue, the longest counts
//	RequeueAfter(d)        it is due again after d, earlier failures are forgotten; beside another error, as in
//	                       errors.Join(err, RequeueAfter(d)), it is RetryAfter(err, d)
//	Requeue{...}           the same, with another priority
//	Every(period)          it is due again at its own moment of each period; beside another error, only
//	                       that error counts
//	ErrAdded               it was interrupted, also beside another error (so is context.Canceled after an add
//	                       has ended UntilAdded): it comes at once, no failure is counted or forgotten
//	any other error        a failure: the key is retried when the queue's limiter says
//
// A key is given up when it has failed MaxRetries times in a row, or for longer than RetryFor, and fails once
// more. The queue counts the failures, for all processes that share it. If an event brings a failing key
// before its delay has passed, and it fails, that is the same failure.
//
// If the end of the pool has ended the handler's context, an error that would be retried is no failure: the
// key is handed back as it came, with its failures, priority and causes.
//
// # The handler's context
//
// A handler's context has the values of Run's. It ends after the call, and earlier at HandlerTimeout, when
// the key's lease or the pool ends, and by [Pool.Cancel]. Its cause says why. [Call.UntilAdded] makes a
// context that also ends when the key is added again:
//
//	select {
//	case <-rolledOut:
//	case <-worker.CallOf(ctx).UntilAdded().Done():
//		return worker.ErrAdded // The key is handled again at once. This is no failure.
//	}
//
// Do not give that context to a write. What a handler writes often comes back as an add of its key: make such
// adds Quiet, see [workqueue.Cause], or the handler interrupts itself. examples/rollout does so in
// Kubernetes.
//
// A handler that must wait for the world without a worker calls [Call.Hold] and returns.
//
// # The beginning and the end
//
// Run calls Options.Ready, then starts the workers. It ends with its context, by [Pool.Stop], or at a fatal
// error, in three steps:
//
//  1. Options.Drain decides what is still finished, for up to Options.DrainTimeout.
//  2. The handlers' contexts end, and handlers get Options.CancelGrace to notice.
//  3. All holds end. Unless Options.KeepQueue is set, the queue is shut down, and emptied if no others, such
//     as another pool, have keys of it. Run waits for each Done, the server and List, up to one second or
//     CancelGrace if that is longer, and without a bound for workers that are getting a key. [Pool.Left] and
//     the log have what is left undone.
//
// If somebody else shuts the queue down, all that is queued is handled, and step 3 follows. A handler that is
// left behind keeps its key. When it returns after all, OnFinish and Done are called as always.
package worker
