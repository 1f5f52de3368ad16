package worker

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/keyedqueue/workqueue"
)

// Entry is a call of a handler in [Books].
type Entry[T comparable] struct {
	books *Books[T]
	// base is the parent of the calls' contexts. A pool's worker uses one entry for all its calls.
	base     context.Context
	contexts []callContext[T] // for the next calls
	// endedCtx is a context that has ended. A call that ends before anybody needed its own context takes this one. Nil after Begin.
	endedCtx *ownContext

	// callState belongs to the goroutine of the call. current is the copy that other goroutines may read, under the books' mu.

	callState[T]

	// The books' mu guards what follows.

	current struct {
		RunningKey[T]                 // without Duration
		callCtx       *callContext[T] // that of callState from startCall to endCall, otherwise nil
		priority      int
		// parts delay the Done of the key: the holds of the handler and pauseIfLooping. After the call only its goroutine uses them,
		// without mu.
		parts []*hold
	}
	place     int    // the index in the books' running
	goroutine string // the number of the goroutine that makes the call, empty without StuckAfter
}

// callState is what the goroutine of a call knows. During the call others may read ctx and since, and Forget clears since, under mu.
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

// Begin begins a call of the handler for key, which the caller has got from the queue. The handler's context, [Entry.Context], is
// made from ctx. A key may be in one entry at a time. Over a [workqueue.Leaser], such as a queue in Redis, that context may have ended
// already: another process may have got the key. Then the handler should not be called, and End ignores what it is given, counts nothing,
// and returns NextInterrupted with the context's cause.
func (b *Books[T]) Begin(ctx context.Context, key T) *Entry[T] {
	e := &Entry[T]{books: b, base: ctx, contexts: make([]callContext[T], 1)}
	e.noteGoroutine()
	b.sweepIfDue()
	e.prepare(key)
	e.callCtx.ensureOwn() // This entry has no endedCtx, so the call must have its own context before it ends.
	if e.lost {
		return e
	}
	b.startCall(e)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.endWatch == nil {
		b.mu.endWatch = b.watchForStuck()
	}
	return e
}

// Context returns the handler's context. [CallOf] works with it. It ends with the call, and earlier as Options say and by [Books.Cancel].
func (e *Entry[T]) Context() context.Context { return e.ctx }

// Interrupted reports, before End, whether a context of [Call.UntilAdded] has ended because the key was added again. If not and
// End returns NextInterrupted, ErrAdded came from elsewhere: the caller must add the key, unless Begin's context had already ended.
func (e *Entry[T]) Interrupted() bool { return e.callCtx.wasInterrupted() }

// End ends the call, whose handler has returned err, counts it, logs it and calls the hooks. It must be called once, and before the queue's
// Done. If the handler has panicked, err must be a [*PanicError]; if it has called runtime.Goexit, [ErrGoexit].
func (e *Entry[T]) End(err error) Result[T] {
	defer e.endCall()
	if e.lost {
		e.result.Err, e.result.Next = context.Cause(e.ctx), NextInterrupted
		return e.result
	}
	e.result.Err = err
	e.decide()
	e.books.noteOutcome(e)
	e.report()
	return e.result
}

// newEntry returns an entry for many calls, one after the other.
func (b *Books[T]) newEntry(base context.Context) *Entry[T] {
	e := &Entry[T]{books: b, base: base, endedCtx: newOwnContext(base)}
	e.endedCtx.cancel(nil)
	return e
}

// prepare finds out what is known of the key, and makes the handler's context.
func (e *Entry[T]) prepare(key T) {
	b := e.books
	e.callState = callState[T]{result: Result[T]{Key: key}} // First: Done needs the key even if the queue panics below.
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

// endCall counts the call, after its hooks, ends its contexts, and pauses a key that loops. A call that was not started is not counted.
func (e *Entry[T]) endCall() {
	if e.crashing {
		return
	}
	b := e.books
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
func (e *Entry[T]) decide() {
	r := &e.result
	r.Duration = e.books.options.Clock.Since(r.Started)
	e.answer = answer{next: NextForget}
	if r.Err != nil {
		e.classify()
	}
	r.Next, r.After = e.answer.next, e.answer.after
	switch {
	case e.answer.every > 0 && r.Next == NextRequeue:
		e.answer.after = e.books.untilMoment(r.Key, e.answer.every)
		r.After = e.answer.after
	case r.Next == NextRetry || r.Next == NextGiveUp:
		e.fail()
	}
}

// failTimeout bounds how long a server that counts the failures may take. (It gets to know of the failure all the same.)
const failTimeout = time.Second

// fail lets the queue decide what becomes of the key.
func (e *Entry[T]) fail() {
	b, r := e.books, &e.result
	f := workqueue.Failure{Err: r.Err, AtLeast: r.After, MaxRetries: b.options.MaxRetries, Terminal: r.Next == NextGiveUp}
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

// classify sets the answer to what the handler's error asks for. The error's methods are the handler's code: if one of them panics,
// the call has failed with that panic.
func (e *Entry[T]) classify() {
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

// panicked notes that the handler, or a method of its error, has panicked with v. It must be called by the deferred function that has
// recovered v. With CrashOnPanic, in a pool, it panics again, to end the process. Before that the call is not counted, and Done is not
// called, as in a program without this package.
func (e *Entry[T]) panicked(v any) {
	e.result.Err = newPanicError(v)
	if b := e.books; b.options.CrashOnPanic && b.hasPool() {
		e.crashing = true
		b.logger.Error("The handler panicked", "key", e.result.Key, "panic", v)
		panic(v) // The stack that the runtime prints is still that of the handler.
	}
}

// report logs the call, and calls the hooks.
func (e *Entry[T]) report() {
	o := &e.books.options
	e.log()
	if e.result.Next == NextGiveUp && o.OnGiveUp != nil {
		o.OnGiveUp(e.ctx, e.result)
	}
	if o.OnFinish != nil {
		o.OnFinish(e.ctx, e.result)
	}
}

// log logs the call: at level Warn or above if it is a key's first failure, if the attempts have doubled, or if the key is given up.
func (e *Entry[T]) log() {
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
	if !e.books.logger.Enabled(e.base, level) {
		return
	}
	attrs := []slog.Attr{slog.Any("key", r.Key), slog.String("next", r.Next.String()),
		slog.Int("attempt", r.Attempt), slog.Duration("duration", r.Duration), slog.Any("err", r.Err)}
	if p, ok := r.Err.(*PanicError); ok {
		attrs = append(attrs, slog.String("stack", string(p.Stack)))
	}
	e.books.logger.LogAttrs(e.base, level, message, e.books.withCauses(attrs, r.Key)...)
}
