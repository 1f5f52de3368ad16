package worker

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/keyedqueue/workqueue"
)

// Tracked is a call of a handler in [Tracker].
type Tracked[T comparable] struct {
	tracker *Tracker[T]
	// base is the parent of the calls' contexts. A pool's worker uses one entry for all its calls.
	base     context.Context
	contexts []callContext[T] // for the next calls
	// endedCtx is a context that has ended. A call that ends before anybody needed its own context takes this
	// one. Nil after Begin.
	endedCtx *ownContext

	// callState belongs to the goroutine of the call. current is the copy that other goroutines may read,
	// under the tracker's mu.

	callState[T]

	// The tracker's mu guards what follows.

	current struct {
		RunningKey[T]                 // without Duration
		callCtx       *callContext[T] // that of callState from startCall to endCall, otherwise nil
		priority      int
		// reasons delay the Done of the key: the holds of the handler and pauseIfLooping. After the call only
		// its goroutine uses them, without mu.
		reasons []*hold
	}
	place     int    // the index in the tracker's running
	goroutine string // the number of the goroutine that makes the call, empty without StuckAfter
}

// callState is what the goroutine of a call knows. During the call others may read ctx and since, and Forget
// clears since, under mu.
type callState[T comparable] struct {
	result   Result[T] // what hooks see
	answer   answer    // what the handler's error asks for
	callCtx  *callContext[T]
	ctx      context.Context    // callCtx, or made from it
	cancel   context.CancelFunc // nil without a HandlerTimeout or a lease
	lost     bool               // the key's lease had ended before the handler could be called
	crashing bool               // see panicked
	priority int                // of a key of a PriorityQueue
	since    time.Time          // when the change that the call answers began (see changes.go), zero if unknown

	sameFailure bool // it has failed within the delay of the failure before it
}

// Begin begins a call of the handler for key, which the caller has got from the queue. The handler's context,
// [Tracked.Context], is made from ctx. A key may be in one entry at a time. Over a [workqueue.Leaser], such
// as a queue in Redis, that context may have ended already: another process may have got the key. Then the
// handler should not be called, and End ignores what it is given, counts nothing, and returns NextInterrupted
// with the context's cause.
func (t *Tracker[T]) Begin(ctx context.Context, key T) *Tracked[T] {
	e := &Tracked[T]{tracker: t, base: ctx, contexts: make([]callContext[T], 1)}
	e.noteGoroutine()
	t.sweepIfDue()
	e.prepare(key)
	e.callCtx.ensureOwn() // This entry has no endedCtx, so the call must have its own context before it ends.
	if e.lost {
		return e
	}
	t.startCall(e)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.endWatch == nil {
		t.mu.endWatch = t.watchForStuck()
	}
	return e
}

// Context returns the handler's context. [CallOf] works with it. It ends with the call, and earlier as
// Options say and by [Tracker.Cancel].
func (e *Tracked[T]) Context() context.Context { return e.ctx }

// Interrupted reports, before End, whether a context of [Call.UntilAdded] has ended because the key was added
// again. If not and End returns NextInterrupted, ErrAdded came from elsewhere: the caller must add the key,
// unless Begin's context had already ended.
func (e *Tracked[T]) Interrupted() bool { return e.callCtx.wasInterrupted() }

// End ends the call, whose handler has returned err, counts it, logs it and calls the hooks. It must be
// called once, and before the queue's Done. If the handler has panicked, err must be a [*PanicError]; if it
// has called runtime.Goexit, [ErrGoexit].
func (e *Tracked[T]) End(err error) Result[T] {
	defer e.endCall()
	if e.lost {
		e.result.Err, e.result.Next = context.Cause(e.ctx), NextInterrupted
		return e.result
	}
	e.result.Err = err
	e.decide()
	e.tracker.noteOutcome(e)
	e.report()
	return e.result
}

// newTracked returns an entry for many calls, one after the other.
func (t *Tracker[T]) newTracked(base context.Context) *Tracked[T] {
	e := &Tracked[T]{tracker: t, base: base, endedCtx: newOwnContext(base)}
	e.endedCtx.cancel(nil)
	return e
}

// prepare finds out what is known of the key, and makes the handler's context.
func (e *Tracked[T]) prepare(key T) {
	b := e.tracker
	// First: Done needs the key even if the queue panics below.
	e.callState = callState[T]{result: Result[T]{Key: key}}
	failed, _ := b.queue.Failures(key)
	if b.priorities != nil {
		e.priority = b.priorities.PriorityOf(key)
	}
	if b.addTimes {
		e.since = b.queue.AddedAt(key)
	}
	e.result.Attempt, e.result.Started = failed+1, b.options.Clock.Now()
	e.makeContext()
}

// endCall counts the call, after its hooks, ends its contexts, and pauses a key that loops. A call that was
// not started is not counted.
func (e *Tracked[T]) endCall() {
	if e.crashing {
		return
	}
	b := e.tracker
	b.mu.Lock()
	if e.current.callCtx != nil {
		b.countLocked(e)
		b.removeCallLocked(e)
	}
	b.mu.Unlock()
	if e.cancel != nil {
		e.cancel()
	}
	if e.callCtx != nil { // The queue may have panicked before there was one.
		e.callCtx.end()
	}
	if e.result.Next == NextInterrupted && !e.lost {
		e.pauseIfLooping()
	}
}

// decide decides, by the error that the handler has returned, what becomes of the key.
func (e *Tracked[T]) decide() {
	r := &e.result
	r.Duration = e.tracker.options.Clock.Since(r.Started)
	e.answer = answer{next: NextForget}
	if r.Err != nil {
		e.classify()
	}
	r.Next, r.After = e.answer.next, e.answer.after
	switch {
	case e.answer.every > 0 && r.Next == NextRequeue:
		e.answer.after = e.tracker.untilMoment(r.Key, e.answer.every, e.tracker.options.Clock.Now())
		r.After = e.answer.after
	case r.Next == NextRetry || r.Next == NextGiveUp:
		e.fail()
	}
}

// failTimeout bounds how long a server that counts the failures may take. (It gets to know of the failure all
// the same.)
const failTimeout = time.Second

// fail lets the queue decide what becomes of the key.
func (e *Tracked[T]) fail() {
	b, r := e.tracker, &e.result
	f := workqueue.Failure{Err: r.Err, AtLeast: r.After, MaxRetries: b.options.MaxRetries,
		Terminal: r.Next == NextGiveUp}
	if e.base.Err() != nil {
		f.MaxRetries = UnlimitedRetries // The pool has ended, and the call may have failed only because of that.
	}
	ctx := context.Background()
	if b.leaser != nil {
		timed, cancel := context.WithTimeout(ctx, failTimeout)
		defer cancel()
		ctx = timed
	}
	retry, err := b.queue.Fail(ctx, r.Key, f)
	if err != nil {
		b.logger.Debug("The queue's server has not answered to a failure", "key", r.Key, "err", err)
	}
	r.Attempt, e.sameFailure = retry.Attempt, retry.Same
	if retry.GivenUp {
		r.Next = NextGiveUp
	}
}

// classify sets the answer to what the handler's error asks for. The error's methods are the handler's code:
// if one of them panics, the call has failed with that panic.
func (e *Tracked[T]) classify() {
	defer func() {
		if v := recover(); v != nil {
			e.panicked(v)
			e.answer = answer{next: NextRetry}
		}
	}()
	var holds []*hold
	e.answer, holds = classify(e.result.Err, e.callCtx.wasInterrupted())
	for _, h := range holds {
		if h.returned.Swap(true) {
			e.result.Err, e.answer = fmt.Errorf("%w: %w", errHoldTwice, e.result.Err), answer{next: NextRetry}
		} else {
			e.callCtx.addHold(h)
		}
	}
}

// panicked notes that the handler, or a method of its error, has panicked with v. It must be called by the
// deferred function that has recovered v. With CrashOnPanic it panics again, to end the process. Before that
// the call is not counted, and Done is not called, as in a program without this package.
func (e *Tracked[T]) panicked(v any) {
	e.result.Err = newPanicError(v)
	if b := e.tracker; b.options.CrashOnPanic {
		e.crashing = true
		b.logger.Error("The handler panicked", "key", e.result.Key, "panic", v)
		panic(v) // The stack that the runtime prints is still that of the handler.
	}
}

// report logs the call, and calls the hooks.
func (e *Tracked[T]) report() {
	o := &e.tracker.options
	e.log()
	if e.result.Next == NextGiveUp && o.OnGiveUp != nil {
		o.OnGiveUp(e.ctx, e.result)
	}
	if o.OnFinish != nil {
		o.OnFinish(e.ctx, e.result)
	}
}

// log logs the call: at level Warn or above if it is a key's first failure, if the attempts have doubled, or
// if the key is given up.
func (e *Tracked[T]) log() {
	r := &e.result
	level, message := slog.LevelDebug, "Handled a key"
	switch r.Next {
	case NextHold:
		message = "The handler has put its key on hold"
	case NextRetry:
		message = "The handler failed, its key comes again"
		if r.Attempt&(r.Attempt-1) == 0 && !e.sameFailure { // The attempt is a power of two.
			level = slog.LevelWarn
		}
	case NextGiveUp:
		level, message = slog.LevelError, "The handler failed, its key is given up"
	case NextInterrupted:
		message = "The handler was interrupted, its key was added again"
	}
	// Not the handler's context, which may have ended.
	if !e.tracker.logger.Enabled(e.base, level) {
		return
	}
	attrs := []slog.Attr{slog.Any("key", r.Key), slog.String("next", r.Next.String()),
		slog.Int("attempt", r.Attempt), slog.Duration("duration", r.Duration), slog.Any("err", r.Err)}
	if p, ok := r.Err.(*PanicError); ok {
		attrs = append(attrs, slog.String("stack", string(p.Stack)))
	}
	e.tracker.logger.LogAttrs(e.base, level, message, e.tracker.withCauses(attrs, r.Key)...)
}
