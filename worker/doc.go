// Package worker runs a handler over the keys of a work queue: the loop of get, handle, forget or
// requeue, give up, recover, done and wait for the end that each user of a queue would write by hand.
//
//	err := worker.Run(ctx, queue, func(ctx context.Context, key string) error {
//		return reconcile(ctx, key)
//	}, worker.Options[string]{Workers: 4, MaxRetries: 5, DrainTimeout: 10 * time.Second})
//
// The queue is any [workqueue.TypedRateLimitingInterface], client-go's own included. Those of this
// module are [workqueue.Extended] and are used as such.
//
// # What becomes of a key
//
// The handler's answer decides:
//
//	nil                 the key is forgotten
//	RequeueAfter(d)     it comes again after d; this is no failure, and earlier ones are forgotten
//	Terminal(err)       it does not come again; OnDrop is told
//	Fatal(err)          it does not come again, and Run ends with err
//	any other error     it comes again when the queue's limiter says, until it has failed MaxRetries
//	                    times in a row and fails once more: then it is dropped, and OnDrop is told
//	a panic             is such an error, a *PanicError with the value and the stack
//	runtime.Goexit      is such an error, ErrGoexit; another goroutine takes the worker's place
//
// RequeueAfter, Terminal and Fatal are also recognised when they are wrapped (%w, [errors.Join]); if several
// are, Fatal beats Terminal and Terminal beats RequeueAfter. In every case the queue's Done is called exactly
// once, after all else has been done with the key: a key is with one handler, and its hooks, at a time.
//
// Failures are counted here, not taken from the queue's NumRequeues: not every limiter counts by key,
// and those that do also count AddRateLimited by others. [Attempt] tells a handler the number. Two pools on
// one queue count each for itself, so that a key may fail MaxRetries times in both.
//
// A panic that is not the handler's, one of a hook, of the logger, or of the queue or its limiter, is a
// bug without a key to blame: it ends Run like Fatal, with a [PanicError]. A runtime.Goexit there ends the
// call, and nothing else. In both cases the hooks that would have followed for the key are skipped.
//
// # The end
//
// Run ends when its context does, when [Pool.Stop] is called, at a fatal error (like Stop(Running): the
// queue is not finished then, whatever Options.Drain says), or when somebody else shuts the queue down and
// it has handed out all it had. At the end of the context
//
//  1. no more keys are started, or, with Options.Drain [All], the queue is shut down and handled to
//     its end;
//  2. handlers that run get Options.DrainTimeout, and their contexts stay alive for as long;
//  3. then their contexts end (with [ErrDrainTimeout] as the cause), the queue is shut down, and Run
//     returns, whether or not the handlers do.
//
// A handler that is left behind goes on holding its key. When it returns after all, hooks and Done are
// called as always. Run returns nil if nothing was left undone, and otherwise a [ShutdownError] that
// has the keys; see [OnlyLeft] for programs to which that is no failure. The queue is shut down in every case, and the keys that were queued are taken out of it.
//
// # A queue without GetContext
//
// A Get that blocks cannot be interrupted. Over a queue that is not Extended each getter therefore has
// a goroutine that calls Get for it, and when a getter gives up (because the pool shrinks, pauses or
// ends) that goroutine stays and hands its key to the next one. So a pool that is paused may hold as many
// keys in hand as it had workers. They are not lost: they come first when the pool goes on, and are
// reported as not started when it ends. All these goroutines are gone when Run returns.
//
// # Cost
//
// A key costs about 140 ns more than Get, Forget and Done by hand (see BenchmarkKey): the pool's lock is taken
// three times, and the clock is read twice. There is no allocation without a Logger, HandlerTimeout and hooks if the
// key has not failed before.
package worker
