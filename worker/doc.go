// Package worker runs a handler over the keys of a work queue: the loop that every user of a queue would
// otherwise write by hand. It gets, handles, retries, gives up, recovers and calls Done, and ends in order.
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
//   - The calls for a key do not overlap. After each one the queue's Done is called exactly once, and last.
//   - A key that is added while its handler runs is handled again, unless the queue was shut down before.
//   - The handler's panic or [runtime.Goexit] fails its key alone. A panic of a hook ends the program.
//
// # What becomes of a key
//
// The handler's error decides. [errors.As] looks in it for these, also wrapped or joined, and the first row
// that is found counts:
//
//	(the lease was lost)   another process may have the key: the answer is ignored, but Fatal still ends Run
//	nil                    it is done: its failures are forgotten
//	Fatal(err)             the key is given up: it is not retried. Run ends with err
//	Terminal(err)          the key is given up
//	RetryAfter(err, d)     a failure, but the key is not retried before d by itself
//	RequeueAfter(d)        it is due again after d, earlier failures are forgotten; beside another error, as in
//	                       errors.Join(err, RequeueAfter(d)), it is RetryAfter(err, d)
//	Requeue{...}           the same, with another priority
//	Every(period)          it is due again at its own moment of each period; beside another error, only
//	                       that error counts
//	ErrAdded               it was interrupted (so is context.Canceled after an add has ended UntilAdded): it
//	                       comes at once, no failure is counted or forgotten
//	any other error        a failure: the key is retried when the queue's limiter says
//
// A key is given up when it has failed MaxRetries times in a row, or for longer than RetryFor, and fails once
// more. The queue counts the failures, in all processes that share it. A failure before the delay of the last
// one has passed, because an event came, does not count.
//
// If the end of the pool has ended the handler's context, an error that would be retried is no failure: the
// key is handed back as it came, with its failures, priority and causes.
//
// # The handler's context
//
// A handler's context has the values of Run's context. It ends after the call, and earlier at HandlerTimeout,
// when the key's lease or the pool ends, and by [Pool.Cancel]. Its cause says why. [Call.UntilAdded] makes a
// context that also ends when the key is added again:
//
//	select {
//	case <-rolledOut:
//	case <-worker.CallOf(ctx).UntilAdded().Done():
//		return worker.ErrAdded // The key is handled again at once. This is no failure.
//	}
//
// Do not give that context to a write: the next call must look at the world anew. What a handler writes often
// comes back as an add of its key. Make such adds Quiet, see [workqueue.Cause], or the handler interrupts
// itself. examples/rollout does so in Kubernetes.
//
// # On hold
//
// A handler that must wait for the world calls [Call.Hold] and returns, and its worker is free. Until the
// hold ends no worker gets the key, and its adds are merged. The queue counts it as being processed: in a
// priorityqueue it takes one place in the Limit of its group.
//
// A hold ends early by [Pool.Release], with the key's lease, when a [leasing.Leaser] wants the key back, when
// Drain All begins, when the queue is shut down and has nothing queued, and with Run. So a key may come too
// early.
//
// # The beginning and the end
//
// Run calls Options.Ready, and then starts the workers. It ends when its context does, by [Pool.Stop], or at
// a fatal error, in three steps:
//
//  1. Options.Drain decides what is still finished, for up to Options.DrainTimeout.
//  2. The handlers' contexts end, and handlers get Options.CancelGrace to notice.
//  3. Unless Options.KeepQueue is set, the queue is shut down, and emptied if no others, such as another
//     pool, have keys of it. Run waits for each Done, the server and List, up to one second or CancelGrace if
//     that is longer. [Pool.Left] and the log have what is left undone.
//
// If somebody else shuts the queue down, all that is queued is handled first, and step 3 follows. A handler
// that is left behind keeps its key. When it returns after all, OnFinish and Done are called as always.
package worker
