package worker

import (
	"cmp"
	"log/slog"
	"reflect"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/internal/observe"
	"github.com/keyedqueue/workqueue/internal/stablehash"
)

// Books keep account of a handler's calls: which are running and for how long, how often each key has failed in a row and why, which
// keys were given up. A [Pool] keeps them by itself. [NewBooks] is for programs and libraries that have workers of their own:
//
//	entry := books.Begin(ctx, key)
//	err := handle(entry.Context(), key)
//	result := entry.End(err)
//
// The program then does with the key what result.Next says, and calls [Entry.AfterHold], which calls the queue's Done: at once, or later
// if the handler has put the key on hold or the key is interrupted again and again. The books never add a key to the queue, and never
// forget one there. All methods may be called from any goroutine.
//
// A panic of a hook, the queue or its limiter reaches the caller of a method. On a goroutine of the books, which looks for stuck
// handlers, ends holds or asks the queue about failing keys, it is logged.
type Books[T comparable] struct {
	queue     workqueue.ExtendedRateLimiting[T] // made of raw, if that is none
	raw       workqueue.TypedRateLimitingInterface[T]
	queueName string
	options   Options[T]
	logger    *slog.Logger // with the name as attribute
	madeAt    uintptr      // where the program made the books or their pool

	priorities workqueue.Operable[T] // the queue, or nil
	leaser     workqueue.Leaser[T]   // the queue, or nil
	addTimes   bool                  // The queue knows when keys were added.

	holds  *holds[T]
	hasher func() (stablehash.Hasher[T], error) // for Every

	// poolStats sets the numbers of Stats that only a pool knows. It is nil without a pool: see hasPool.
	poolStats func(*Stats)
	// catchPanic runs foreign code on a goroutine of the books. A panic ends the pool. Books without a pool only log it.
	catchPanic func(f func())

	lastSweep atomic.Int64 // when a sweep was last started, in nanoseconds since 1970
	sweeping  atomic.Bool  // a sweep goes on
	sweepFrom int          // where the next sweep begins. Only the goroutine of a sweep uses it.
	sweeps    sync.WaitGroup

	// mu is held for moments only, and never while foreign code runs.
	mu struct {
		sync.Mutex
		// running are the running calls. mu also guards the fields of each Entry from current on.
		running []*Entry[T]
		records records[T]
		// counted has only the counters that countLocked increments.
		counted   Stats
		durations observe.Histogram
		changes   observe.Histogram // see changes.go
		// endWatch ends the watch for stuck calls of books without a pool.
		endWatch func()
	}
}

// NewBooks returns books for the keys of queue. It uses the options that are about calls: Name, MaxRetries, HandlerTimeout, StuckAfter,
// KeepGivenUp, OnFinish, OnGiveUp, OnStuck, Logger, Clock and, for the buckets of histograms, MetricsProvider. That does not discover the
// books: see [Books.Inspector]. NewBooks panics if an option makes no sense, or queue is nil or a nil pointer.
func NewBooks[T comparable](queue workqueue.TypedRateLimitingInterface[T], options Options[T]) *Books[T] {
	if queue = notNilPointer(queue); queue == nil {
		panic("worker: NewBooks without a queue")
	}
	if err := options.check(); err != nil {
		panic(err)
	}
	b := newBooks(queue, options)
	b.lastSweep.Store(b.options.Clock.Now().UnixNano())
	b.setLogger()
	return b
}

func (b *Books[T]) hasPool() bool { return b.poolStats != nil }

// notNilPointer returns queue, or nil if it holds a nil pointer, as when a variable of a concrete type of queue was never set.
func notNilPointer[T comparable](queue workqueue.TypedRateLimitingInterface[T]) workqueue.TypedRateLimitingInterface[T] {
	if v := reflect.ValueOf(queue); v.Kind() == reflect.Pointer && v.IsNil() {
		return nil
	}
	return queue
}

// newBooks returns books that still need setLogger. New may pass a nil queue, which Run refuses.
func newBooks[T comparable](queue workqueue.TypedRateLimitingInterface[T], options Options[T]) *Books[T] {
	b := &Books[T]{raw: queue, options: options, madeAt: callerOutside()}
	b.options.setDefaults()
	b.mu.records.maxGivenUp = b.options.KeepGivenUp
	buckets := b.options.durationBuckets()
	b.mu.durations, b.mu.changes = observe.NewHistogram(buckets), observe.NewHistogram(buckets)
	b.catchPanic = b.logPanics
	b.hasher = sync.OnceValues(stablehash.New[T])
	b.holds = &holds[T]{books: b}
	b.holds.loop = dueloop.New(b.options.Clock, b.holds.endDue)
	if queue != nil {
		b.queue = workqueue.ExtendRateLimiting(queue)
		b.priorities, _ = queue.(workqueue.Operable[T])
		b.leaser, _ = queue.(workqueue.Leaser[T])
		stats := b.queue.Stats()
		b.addTimes, b.queueName = stats.Latency != nil, stats.Name
		b.options.Name = cmp.Or(b.options.Name, stats.Name)
	}
	return b
}

// setLogger sets the logger. A pool does that in Run, so that a slog.SetDefault between New and Run counts.
func (b *Books[T]) setLogger() {
	b.logger = b.options.Logger
	if b.logger == nil {
		b.logger = slog.Default()
	}
	b.logger = slog.New(logHandler{b.logger.Handler(), b.madeAt})
	if b.options.Name != "" {
		b.logger = b.logger.With("queue", b.options.Name)
	}
}

// logPanics runs f, and logs a panic: without a pool there is nothing that it could end.
func (b *Books[T]) logPanics(f func()) {
	defer func() {
		if v := recover(); v != nil {
			b.logger.Error("A hook, the queue or its limiter panicked", "panic", v, "stack", string(debug.Stack()))
		}
	}()
	f()
}

// startCall makes e one of the running calls. From here on others see it.
func (b *Books[T]) startCall(e *Entry[T]) {
	r := &e.result
	b.mu.Lock()
	defer b.mu.Unlock()
	e.current.RunningKey = RunningKey[T]{Key: r.Key, Attempt: r.Attempt, Started: r.Started}
	e.current.priority = e.priority
	if _, rec := b.mu.records.find(r.Key); rec != nil && !rec.since.IsZero() && !e.since.IsZero() {
		e.since = rec.since // The change goes on that earlier calls did not answer.
	}
	e.place = len(b.mu.running)
	b.mu.running = append(b.mu.running, e)
	e.current.callCtx = e.callCtx // Last: it marks the call as running.
}

// removeCallLocked removes e from running, where the last one takes its place.
func (b *Books[T]) removeCallLocked(e *Entry[T]) {
	end := len(b.mu.running) - 1
	last := b.mu.running[end]
	b.mu.running[e.place], last.place = last, e.place
	b.mu.running[end] = nil
	b.mu.running = b.mu.running[:end]
	e.current.callCtx = nil
	if end == 0 && b.mu.endWatch != nil {
		b.mu.endWatch()
		b.mu.endWatch = nil
	}
}

// findLocked returns the running call of key, or nil.
func (b *Books[T]) findLocked(key T) *Entry[T] {
	for _, e := range b.mu.running {
		if e.current.Key == key {
			return e
		}
	}
	return nil
}

// noteOutcome writes down how the call of e has ended.
func (b *Books[T]) noteOutcome(e *Entry[T]) {
	r, all := &e.result, &b.mu.records
	answered := r.Next == NextForget || r.Next == NextRequeue
	if answered && !all.some.Load() {
		return
	}
	var call FailedCall
	if r.Next == NextRetry || r.Next == NextGiveUp {
		call = e.failedCall() // Not under mu: foreign code.
	}
	b.mu.Lock()
	defer b.mu.Unlock()
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
func (b *Books[T]) withCauses(attrs []slog.Attr, key T) []slog.Attr {
	if causes := b.queue.Causes(key); !causes.IsZero() {
		attrs = append(attrs, slog.String("causes", causes.String()))
	}
	return attrs
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
	if answered := r.Next == NextForget || r.Next == NextRequeue; answered && !e.since.IsZero() {
		b.mu.changes.Observe(max(0, r.Started.Add(r.Duration).Sub(e.since)))
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
