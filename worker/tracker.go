package worker

import (
	"cmp"
	"errors"
	"log/slog"
	"reflect"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/internal/observe"
	"github.com/keyedqueue/workqueue/stablehash"
)

// Tracker keeps account of the calls of a handler: which are running and for how long, why keys have failed,
// which are on hold, which were given up. A [Pool] has one. [NewTracker] is for programs and libraries that
// have workers of their own:
//
//	call := tracker.Begin(ctx, key)
//	err := handle(call.Context(), key)
//	result := call.End(err)
//
// If the call has failed, End has called the queue's Fail: the key comes again, or was given up. After
// [NextForget] the program calls the queue's Forget, after [NextRequeue] its AddAfter with result.After and
// then Forget, after [NextHold] its Add. Then, in every case, it calls [Tracked.Done], which calls the
// queue's Done: at once, or later if the handler has put the key on hold or the key is interrupted again and
// again. All methods may be called from any goroutine.
//
// A queue that is not of this project counts no failures. So make it an [workqueue.ExtendedRateLimiting] by
// [workqueue.ExtendRateLimiting], and use only that, for the tracker and for the workers.
//
// A panic of a hook, the queue or its limiter reaches the caller of a method. On a goroutine of the tracker,
// which looks for stuck handlers, ends holds or asks the queue about records, it is logged.
type Tracker[T comparable] struct {
	queue     workqueue.ExtendedRateLimiting[T] // made of raw, if that is none
	raw       workqueue.TypedRateLimitingInterface[T]
	queueName string
	madeAt    uintptr // where the program made the tracker or its pool
	options   Options[T]
	logger    *slog.Logger // with the name as attribute
	wrong     error        // what makes no sense in the options

	priorities workqueue.Operable[T] // the queue, or nil
	leaser     workqueue.Leaser[T]   // the queue, or nil
	// knowsItsKeys: the queue is an Extended by itself, so a Get that is given up keeps no key.
	knowsItsKeys bool
	addTimes     bool // The queue knows when keys were added.

	loop   *dueloop.Loop                        // of the holds
	hasher func() (stablehash.Hasher[T], error) // for Every

	// readStats returns Stats without OldestUnanswered.
	readStats func() Stats
	// catchPanic runs foreign code on a goroutine of the tracker. A panic ends the pool. A Tracker without a
	// pool only logs it.
	catchPanic func(f func())

	lastSweep atomic.Int64 // when a sweep was last started, in nanoseconds since 1970
	sweeping  atomic.Bool  // a sweep goes on
	sweepFrom int          // where the next sweep begins. Only the goroutine of a sweep uses it.
	sweeps    sync.WaitGroup

	// mu is held for moments only, and never while foreign code runs.
	mu struct {
		sync.Mutex
		// running are the running calls. mu also guards the fields of each Tracked from current on.
		running []*Tracked[T]
		records records[T]
		holds   holds
		// counted has only the counters that countLocked increments.
		counted   Stats
		durations observe.Histogram
		changes   observe.Histogram // see changes.go
		// endWatch ends the watch for stuck calls of a tracker without a pool.
		endWatch func()
	}
}

// NewTracker returns a tracker for the keys of queue. It uses the options that are about calls: Name,
// MaxRetries, HandlerTimeout, StuckAfter, KeepGivenUp, OnFinish, OnGiveUp, OnStuck, Logger, Clock and, for
// the buckets of histograms, MetricsProvider. That does not discover the tracker: see [Tracker.Inspector].
// NewTracker panics if an option makes no sense, or queue is nil or a nil pointer.
func NewTracker[T comparable](queue workqueue.TypedRateLimitingInterface[T], options Options[T]) *Tracker[T] {
	if queue = notNilPointer(queue); queue == nil {
		panic("worker: NewTracker without a queue")
	}
	options.CrashOnPanic = false // The caller calls the handler.
	b := newTracker(queue, options)
	if b.wrong != nil {
		panic(b.wrong)
	}
	b.lastSweep.Store(b.options.Clock.Now().UnixNano())
	b.setLogger()
	return b
}

// notNilPointer returns queue, or nil if it holds a nil pointer, as when a variable of a concrete type of
// queue was never set.
func notNilPointer[T comparable](queue workqueue.TypedRateLimitingInterface[T]) workqueue.TypedRateLimitingInterface[T] {
	if v := reflect.ValueOf(queue); v.Kind() == reflect.Pointer && v.IsNil() {
		return nil
	}
	return queue
}

// newTracker returns a tracker that still needs setLogger. New may pass a nil queue, which Run refuses.
func newTracker[T comparable](queue workqueue.TypedRateLimitingInterface[T], options Options[T]) *Tracker[T] {
	b := &Tracker[T]{raw: queue, options: options, madeAt: callerOutside()}
	b.options.setDefaults()
	b.mu.records.maxGivenUp = b.options.KeepGivenUp
	buckets, err := b.options.durationBuckets()
	b.wrong = errors.Join(options.check(), err)
	b.mu.durations, b.mu.changes = observe.NewHistogram(buckets), observe.NewHistogram(buckets)
	b.catchPanic, b.readStats = b.logPanics, b.ownStats
	b.hasher = sync.OnceValues(stablehash.New[T])
	b.loop = dueloop.New(b.options.Clock, b.endDue)
	if queue != nil {
		b.queue = workqueue.ExtendRateLimiting(queue)
		_, b.knowsItsKeys = queue.(workqueue.Extended[T])
		b.priorities, _ = queue.(workqueue.Operable[T])
		b.leaser, _ = queue.(workqueue.Leaser[T])
		stats := b.queue.Stats()
		b.addTimes, b.queueName = stats.Latency != nil, stats.Name
		b.options.Name = cmp.Or(b.options.Name, stats.Name)
	}
	return b
}

// setLogger sets the logger. A pool does that in Run, so that a slog.SetDefault between New and Run counts.
func (t *Tracker[T]) setLogger() {
	t.logger = t.options.Logger
	if t.logger == nil {
		t.logger = slog.Default()
	}
	t.logger = slog.New(logHandler{t.logger.Handler(), t.madeAt})
	if t.options.Name != "" { // The logger's handler is foreign code.
		t.catchPanic(func() { t.logger = t.logger.With("queue", t.options.Name) })
	}
}

// logPanics runs f, and logs a panic: without a pool there is nothing that it could end.
func (t *Tracker[T]) logPanics(f func()) {
	defer func() {
		if v := recover(); v != nil {
			t.logger.Error("A hook, the queue or its limiter panicked", "panic", v, "stack", string(debug.Stack()))
		}
	}()
	f()
}

// startCall makes e one of the running calls. From here on others see it.
func (t *Tracker[T]) startCall(e *Tracked[T]) {
	r := &e.result
	t.mu.Lock()
	defer t.mu.Unlock()
	e.current.RunningKey = RunningKey[T]{Key: r.Key, Attempt: r.Attempt, Started: r.Started}
	e.current.priority = e.priority
	if _, rec := t.mu.records.find(r.Key); rec != nil && !rec.since.IsZero() && !e.since.IsZero() {
		e.since = rec.since // The change goes on that earlier calls did not answer.
	}
	e.place = len(t.mu.running)
	t.mu.running = append(t.mu.running, e)
	e.current.callCtx = e.callCtx // Last: it marks the call as running.
}

// noteKey notes the key of e, whose call does not begin.
func (t *Tracker[T]) noteKey(e *Tracked[T]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.current.RunningKey = RunningKey[T]{Key: e.result.Key}
}

// removeCallLocked removes e from running, where the last one takes its place.
func (t *Tracker[T]) removeCallLocked(e *Tracked[T]) {
	end := len(t.mu.running) - 1
	last := t.mu.running[end]
	t.mu.running[e.place], last.place = last, e.place
	t.mu.running[end] = nil
	t.mu.running = t.mu.running[:end]
	e.current.callCtx = nil
	if end == 0 && t.mu.endWatch != nil {
		t.mu.endWatch()
		t.mu.endWatch = nil
	}
}

// findLocked returns the running call of key, or nil.
func (t *Tracker[T]) findLocked(key T) *Tracked[T] {
	for _, e := range t.mu.running {
		if e.current.Key == key {
			return e
		}
	}
	return nil
}

// noteOutcome writes down how the call of e has ended.
func (t *Tracker[T]) noteOutcome(e *Tracked[T]) {
	r, all := &e.result, &t.mu.records
	answered := r.Next == NextForget || r.Next == NextRequeue
	if answered && !all.some.Load() {
		return
	}
	var call FailedCall
	if r.Next == NextRetry || r.Next == NextGiveUp {
		call = e.failedCall() // Not under mu: foreign code.
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch s, rec := all.find(r.Key); {
	case answered && rec != nil:
		all.end(s)
	case answered:
	case r.Next == NextRetry:
		all.noteFailure(r.Key, failing, call, e.since)
	case r.Next == NextGiveUp:
		all.noteFailure(r.Key, givenUp, call, e.since)
	default:
		all.noteNoAnswer(r.Key, e.since, r.Started.Add(r.Duration).UnixNano(), r.Next == NextInterrupted)
	}
}

// withCauses appends to attrs the causes of a key that a worker has, if there are any.
func (t *Tracker[T]) withCauses(attrs []slog.Attr, key T) []slog.Attr {
	if causes := t.queue.Causes(key); !causes.IsZero() {
		attrs = append(attrs, slog.String("causes", causes.String()))
	}
	return attrs
}

// countLocked counts a call that has ended.
func (t *Tracker[T]) countLocked(e *Tracked[T]) {
	n, r := &t.mu.counted, &e.result
	n.Handled++
	if _, panicked := r.Err.(*PanicError); panicked {
		n.Panicked++
	}
	if t.options.HandlerTimeout > 0 && r.Duration >= t.options.HandlerTimeout {
		n.TimedOut++
	}
	t.mu.durations.Observe(r.Duration)
	if answered := r.Next == NextForget || r.Next == NextRequeue; answered && !e.since.IsZero() {
		t.mu.changes.Observe(max(0, r.Started.Add(r.Duration).Sub(e.since)))
	}
	switch r.Next {
	case NextRequeue:
		n.Requeued++
		if e.answer.after > 0 {
			n.RequeuedAfter++
		}
	case NextHold:
		n.Holds++
	case NextInterrupted:
		n.Interrupted++
	case NextRetry:
		n.Failed++
	case NextGiveUp:
		n.Failed++
		n.GivenUp++
	}
}
