package worker

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/observe"
)

// Books keep account of a handler's calls: which go on and for how long, how often each key has failed in a row and why, which
// keys were given up. A [Pool] keeps them by itself. [NewBooks] is for programs and libraries that have workers of their own:
//
//	entry := books.Begin(ctx, key)
//	err := handle(entry.Context(), key)
//	result := entry.End(err)
//
// Then they do with the key what result.Next says, and call the queue's Done, by [Entry.AfterHold] if handlers may return [Hold]. The books never add a key to the queue, and never
// forget one there. All methods may be called from any goroutine.
type Books[T comparable] struct {
	queue   workqueue.TypedRateLimitingInterface[T]
	reader  workqueue.Extended[T] // queue, or made of it
	options Options[T]
	logger  *slog.Logger // with the name as attribute

	// These are the queue, or nil if it does not have their methods. (Methods that few keys need are asserted where they are called.)

	priorities PriorityQueue[T]
	leaser     workqueue.Leaser[T]
	addTimes   workqueue.AddTimes[T]

	holds *holds[T]

	// pool is nil without one. It sets the numbers of Stats that books do not know.
	pool func(*Stats)

	failures failures[T]
	// lastSweep is when sweepNow has looked through the failures, in nanoseconds since 1970.
	lastSweep atomic.Int64
	// anyFailing has one element when keys begin to fail, for a pool's drain.
	anyFailing chan struct{}

	// mu is held for moments only, and never while foreign code runs.
	mu struct {
		sync.Mutex
		// running has the calls that go on. Their fields current and place are guarded, too.
		running []*Entry[T]
		closed  bool // no call begins any more
		// interruptions has how often in a row the last call of a key was interrupted.
		interruptions map[T]int
		// counted has what countLocked counts; the rest is zero.
		counted   Stats
		durations observe.Histogram
		changes   changes[T]
		// endWatch ends the watch for stuck calls of books without a pool.
		endWatch func()
	}
}

// Entry is a call of a handler in [Books].
type Entry[T comparable] struct {
	books *Books[T]
	// parent is that of the contexts of all calls: a pool uses an entry again. ended is for calls that have ended before they
	// needed a context of their own.
	parent context.Context
	ended  *ownContext

	// Only the goroutine that makes the call writes what follows. Others may read ctx under the books' mu while it goes on.

	result   Result[T]
	answer   answer
	base     *callContext[T]
	ctx      context.Context    // base, or made from it
	cancel   context.CancelFunc // nil without a HandlerTimeout or a lease
	lost     bool               // the key's lease had ended before the handler could be called
	priority int                // of a key of a PriorityQueue
	failed   failureCount       // of the calls before
	same     bool               // the call has failed before the delay of the failure before it has passed
	left     time.Duration      // if same: what is left of that delay
	since    time.Time          // when the change began that the call is for, zero if that is not known
	contexts []callContext[T]   // for the next calls
	holds    []*hold            // for which the key is not Done after the call

	// What follows is guarded by the books' mu.

	current struct {
		RunningKey[T] // without Duration
		base          *callContext[T]
		priority      int
		holds         []*hold // what the handler has asked for by Call.Hold
	}
	place     int    // in running
	calls     int    // how many have begun
	goroutine string // the number of the goroutine that makes the call, empty without StuckAfter
}

// NewBooks returns books for the keys of queue, which must not be nil. Of the options, those that are about calls count: Name,
// MaxRetries, HandlerTimeout, StuckAfter, KeepGivenUp, OnFinish, OnGiveUp, OnStuck, Logger and Clock. It panics if one of them makes no
// sense. A provider of metrics does not discover the books: see [Books.Inspector].
func NewBooks[T comparable](queue workqueue.TypedRateLimitingInterface[T], options Options[T]) *Books[T] {
	if queue == nil {
		panic("worker: NewBooks without a queue")
	}
	if err := options.check(); err != nil {
		panic(err)
	}
	b := newBooks(queue, options)
	b.setLogger()
	return b
}

// newBooks returns books without a logger. New passes a nil queue, too, which Run refuses.
func newBooks[T comparable](queue workqueue.TypedRateLimitingInterface[T], options Options[T]) *Books[T] {
	b := &Books[T]{queue: queue, options: options, anyFailing: make(chan struct{}, 1)}
	b.options.setDefaults()
	b.failures.mu.failing.max, b.failures.mu.givenUp.max = keepErrors, b.options.KeepGivenUp
	buckets := b.options.durationBuckets()
	b.mu.durations, b.mu.changes.took = observe.NewHistogram(buckets), observe.NewHistogram(buckets)
	b.holds = newHolds(b)
	if queue != nil {
		b.reader = workqueue.Extend[T](queue)
		b.priorities, _ = queue.(PriorityQueue[T])
		b.leaser, _ = queue.(workqueue.Leaser[T])
		b.addTimes = addTimesOf(queue, b.reader)
		if b.options.Name == "" {
			b.options.Name = b.reader.Stats().Name
		}
	}
	return b
}

func (b *Books[T]) setLogger() {
	b.logger = b.options.Logger
	if b.logger == nil {
		b.logger = slog.Default()
	}
	if b.options.Name != "" {
		b.logger = b.logger.With("queue", b.options.Name)
	}
}

// Begin begins a call of the handler for key, which the caller has got from the queue. The handler's context, [Entry.Context], is
// made from ctx. A key may be in one entry at a time. If the queue is a [workqueue.Leaser], as one in Redis, that context may have ended
// already: then another process may have got the key, and the handler should not be called. Whatever End gets, it returns
// NextInterrupted with the context's cause, and counts nothing.
func (b *Books[T]) Begin(ctx context.Context, key T) *Entry[T] {
	e := &Entry[T]{books: b, parent: ctx, contexts: make([]callContext[T], 1)}
	e.noteGoroutine()
	b.sweepNow()
	e.prepare(key)
	e.base.need() // The parent knows it from the beginning, so that it ends with the call in any case.
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.lost {
		return e
	}
	if b.beginLocked(e); b.mu.endWatch == nil {
		b.mu.endWatch = b.watchForStuck(func(watch func()) { watch() })
	}
	return e
}

// Context returns the handler's context. It ends with the call, and before that as Options say and by [Books.Cancel]. [CallOf] works
// with it.
func (e *Entry[T]) Context() context.Context { return e.ctx }

// Interrupted reports, before End, whether a context of [Call.UntilAdded] has ended because the key was added again. If it has
// not and End returns NextInterrupted, the handler has ErrAdded from elsewhere, and the caller has to add the key.
func (e *Entry[T]) Interrupted() bool { return e.base.interrupted() }

// End ends the call, whose handler has returned err, counts it, logs it and calls the hooks. It must be called once, and before
// the queue's Done. For a handler that has panicked err is a [*PanicError], and for one that has called runtime.Goexit it is
// [ErrGoexit].
func (e *Entry[T]) End(err error) Result[T] {
	defer e.leave()
	if e.lost {
		e.result.Err, e.result.Next = context.Cause(e.ctx), NextInterrupted
		return e.result
	}
	e.result.Err = err
	e.decide()
	switch r := &e.result; r.Next {
	case NextRetry:
		e.books.retried(e)
	case NextGiveUp:
		e.books.gaveUp(e)
	case NextForget, NextRequeue:
		e.books.Forget(r.Key)
	}
	e.report()
	return e.result
}

// newEntry returns an entry for many calls, one after the other.
func (b *Books[T]) newEntry(parent context.Context) *Entry[T] {
	e := &Entry[T]{books: b, parent: parent, ended: newOwnContext(parent)}
	e.ended.end(nil)
	return e
}

// leave is finish of a call that Begin began.
func (e *Entry[T]) leave() {
	e.finish()
	b := e.books
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.mu.running) == 0 && b.mu.endWatch != nil {
		b.mu.endWatch()
		b.mu.endWatch = nil
	}
}

// prepare finds out what is known of the key, and makes the handler's context.
func (e *Entry[T]) prepare(key T) {
	b := e.books
	e.failed = b.failuresOf(context.Background(), key)
	if b.priorities != nil {
		e.priority = b.priorities.PriorityOf(key)
	}
	if b.addTimes != nil {
		e.since = b.addTimes.AddedAt(key)
	}
	e.result, e.same = Result[T]{Key: key, Attempt: e.failed.calls + 1, Started: b.options.Clock.Now()}, false
	e.makeContext()
}

// begin makes e one of the calls that go on, or returns false if no call begins any more.
func (b *Books[T]) begin(e *Entry[T]) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.closed {
		return false
	}
	b.beginLocked(e)
	return true
}

func (b *Books[T]) beginLocked(e *Entry[T]) {
	r := &e.result
	e.current.RunningKey = RunningKey[T]{Key: r.Key, Attempt: r.Attempt, Started: r.Started}
	e.current.base, e.current.priority = e.base, e.priority
	if b.addTimes != nil {
		b.mu.changes.begin(e)
	}
	e.place = len(b.mu.running)
	e.calls++
	b.mu.running = append(b.mu.running, e)
}

// finish counts the call, which has ended with all hooks, and ends its contexts. A call that has not begun is not counted.
func (e *Entry[T]) finish() {
	b := e.books
	b.mu.Lock()
	if running := b.mu.running; e.place < len(running) && running[e.place] == e {
		b.countLocked(e)
		last := running[len(running)-1]
		running[e.place], last.place = last, e.place
		running[len(running)-1] = nil
		b.mu.running = running[:len(running)-1]
		e.current.base = nil
		if e.current.holds != nil {
			e.holds, e.current.holds = append(e.holds, e.current.holds...), nil
		}
	}
	b.mu.Unlock()
	e.endContext()
}

// close makes begin return false from now on, and returns the keys whose calls go on.
func (b *Books[T]) close() (running []T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.closed = true
	for _, e := range b.mu.running {
		running = append(running, e.current.Key)
	}
	return running
}

// findLocked returns the call of key that goes on, nil if there is none.
func (b *Books[T]) findLocked(key T) *Entry[T] {
	i := slices.IndexFunc(b.mu.running, func(e *Entry[T]) bool { return e.current.Key == key })
	if i < 0 {
		return nil
	}
	return b.mu.running[i]
}

// decide finds out what becomes of the key, from what the handler has returned.
func (e *Entry[T]) decide() {
	b, r := e.books, &e.result
	r.Duration = b.options.Clock.Since(r.Started)
	e.answer = answer{next: NextForget}
	if r.Err != nil {
		e.classify()
	}
	if e.answer.hold != nil {
		e.takeHold()
	}
	r.Next, r.After = e.answer.next, e.answer.after
	// A handler that was cut short by the end of the pool has not had its last attempt.
	if r.Next != NextRetry || e.sameFailure() || b.options.MaxRetries == UnlimitedRetries || e.parent.Err() != nil {
		return
	}
	if e.failed.calls >= b.options.MaxRetries {
		r.Next = NextGiveUp
	}
}

// sameFailure reports whether the delay of the failure before has not passed yet: then this one is the same. So events that
// bring a key early cannot inflate its delay (kubernetes/kubernetes#132805).
func (e *Entry[T]) sameFailure() bool {
	r := &e.result
	if q, ok := e.books.queue.(SharedQueue[T]); ok {
		e.askServer(q)
	} else if e.failed.due != 0 {
		e.left = time.Duration(e.failed.due - r.Started.Add(r.Duration).UnixNano())
		// At that very moment the key may be due and still wait.
		e.same = e.left > 0 || e.books.retryAt(r.Key) == e.failed.due
	}
	if e.same {
		r.Attempt = e.failed.calls
	}
	return e.same
}

// askServer asks a SharedQueue for the failures of the key, since it counts those of all processes.
func (e *Entry[T]) askServer(q SharedQueue[T]) {
	if e.books.options.MaxRetries == NoRetries || e.parent.Err() != nil {
		return // Its answer would change nothing.
	}
	// 0 may mean that its limiter does not count by key.
	if n, left, err := q.NumRequeuesContext(context.Background(), e.result.Key); n > 0 && err == nil {
		e.failed.calls, e.failed.limited, e.result.Attempt = n, true, n+1
		e.left, e.same = left, left > 0
	}
}

// retryAt returns when key comes due, in nanoseconds since 1970, or 0 if it does not wait or that is not known.
func (b *Books[T]) retryAt(key T) int64 {
	if _, shared := b.queue.(SharedQueue[T]); shared {
		return 0 // It would have to ask its server, which knows by itself what is the same failure.
	}
	if q, ok := b.queue.(workqueue.KeyReader[T]); ok {
		if k, _ := q.SnapshotKey(key); !k.Due.IsZero() {
			return k.Due.UnixNano()
		}
	}
	return 0
}

// classify is the function classify of the handler's error. The methods of that are the handler's code: if one of them panics,
// the key fails by that.
func (e *Entry[T]) classify() {
	defer func() {
		if v := recover(); v != nil {
			e.result.Err = newPanicError(v)
			e.answer = answer{next: NextRetry}
		}
	}()
	e.answer = classify(e.result.Err, e.base.interrupted())
}

// retried notes a call that has failed and whose key is to come again.
func (b *Books[T]) retried(e *Entry[T]) {
	counted := failureCount{calls: e.failed.calls + 1}
	if e.same {
		counted = e.failed
	}
	b.failures.add(e.result.Key, b.failedCall(e), counted)
	select {
	case b.anyFailing <- struct{}{}:
	default:
	}
}

// gaveUp notes a call that has failed and whose key does not come again.
func (b *Books[T]) gaveUp(e *Entry[T]) {
	b.failures.add(e.result.Key, b.failedCall(e), failureCount{})
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

// log logs the call. A key that fails again and again is logged at its first failure, at each doubling of its attempts, and when
// it is given up.
func (e *Entry[T]) log() {
	r := &e.result
	level, message := slog.LevelDebug, "Handled a key"
	switch r.Next {
	case NextHold:
		message = "The handler has put its key on hold"
	case NextRetry:
		if message = "The handler failed, its key comes again"; r.Attempt&(r.Attempt-1) == 0 && !e.same {
			level = slog.LevelWarn
		}
	case NextGiveUp:
		level, message = slog.LevelError, "The handler failed, its key is given up"
	case NextInterrupted:
		message = "The handler was interrupted, its key was added again"
	}
	// Not the handler's context, which may have ended.
	if !e.books.logger.Enabled(e.parent, level) {
		return
	}
	attrs := []slog.Attr{slog.Any("key", r.Key), slog.String("next", r.Next.String()),
		slog.Int("attempt", r.Attempt), slog.Duration("duration", r.Duration), slog.Any("err", r.Err)}
	if p, ok := r.Err.(*PanicError); ok {
		attrs = append(attrs, slog.String("stack", string(p.Stack)))
	}
	e.books.logger.LogAttrs(e.parent, level, message, e.books.withCauses(attrs, r.Key)...)
}

// withCauses returns attrs and the causes of key, which a worker holds, if there are any.
func (b *Books[T]) withCauses(attrs []slog.Attr, key T) []slog.Attr {
	if causes := b.causesOf(key); !causes.IsZero() {
		attrs = append(attrs, slog.String("causes", causes.String()))
	}
	return attrs
}

// causesOf returns the causes of a key that a worker holds.
func (b *Books[T]) causesOf(key T) (causes workqueue.Causes) {
	if q, ok := b.queue.(workqueue.CauseAdder[T]); ok {
		causes = q.Causes(key)
	}
	return causes
}

// countLocked counts a call that has ended.
func (b *Books[T]) countLocked(e *Entry[T]) {
	n, r := &b.mu.counted, &e.result
	n.Handled++
	if _, panicked := r.Err.(*PanicError); panicked {
		n.Panicked++
	}
	if b.options.HandlerTimeout > 0 && r.Duration >= b.options.HandlerTimeout {
		n.TimedOut++
	}
	b.mu.durations.Observe(r.Duration)
	if b.addTimes != nil {
		b.mu.changes.end(e)
	}
	switch r.Next {
	case NextRequeue:
		n.Requeued++
		if e.answer.after > 0 {
			n.RequeuedAfter++
		}
	case NextHold:
		n.Holds++
		return
	case NextInterrupted:
		n.Interrupted++
		b.countInterruptionLocked(r.Key)
		return
	case NextRetry:
		n.Failed++
	case NextGiveUp:
		n.Failed++
		n.GivenUp++
	}
	if len(b.mu.interruptions) > 0 {
		delete(b.mu.interruptions, r.Key)
	}
}
