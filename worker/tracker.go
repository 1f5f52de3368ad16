package worker

import (
	"cmp"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/internal/observe"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/operate"
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
// Then the program does in the queue what result.Next says:
//
//	NextForget             Forget
//	NextRequeue            AddAfter with result.After (AddWithPriority, for a Priority), and then Forget
//	NextHold               Add
//	NextInterrupted        Add, unless Interrupted was true before End, or the lease was lost: see Begin
//	NextRetry, NextGiveUp  nothing: End has called the queue's Fail
//
// In every case it calls [Tracked.Done] then, which calls the queue's Done, perhaps later: the key may be on
// hold, or be interrupted again and again. All methods may be called from any goroutine.
//
// A queue that is not of this project counts no failures. So make it an [workqueue.ExtendedRateLimiting] by
// [workqueue.ExtendRateLimiting], and use only that, for the tracker and for the workers.
//
// A panic of a hook, the queue or its limiter reaches the caller of a method. On a goroutine of the
// tracker, and in Done at the end of a hold, it is logged.
type Tracker[T comparable] struct {
	options    Options[T]
	optionsErr error        // what makes no sense in the options
	logger     *slog.Logger // with the name as attribute
	madeAt     uintptr      // where the program made the tracker or its pool

	raw           workqueue.TypedRateLimitingInterface[T] // the queue as the program has made it
	queue         workqueue.ExtendedRateLimiting[T]       // raw, or made of it by ExtendRateLimiting
	priorities    operate.Operable[T]                     // raw, or nil if it has none
	leaser        leasing.Leaser[T]                       // raw, or nil
	answers       leasing.Answerer[T]                     // raw, or nil
	knowsAllKeys  bool                                    // raw is Extended by itself
	knowsAddTimes bool                                    // the queue has metrics, and says when keys were added
	queueName     string

	loop   *dueloop.Loop                        // ends the holds at their limits
	hasher func() (stablehash.Hasher[T], error) // for Every

	readStats func() Stats // returns Stats without OldestUnanswered: Pool.readStats or ownStats
	panicked  func(v any)  // gets what catchPanic has recovered: Pool.panicked or logPanic

	lastSweep atomic.Int64 // when sweepIfDue last started a sweep, on the loop's clock
	sweeping  atomic.Bool  // a sweep goes on
	sweepSkip int          // how many keys the next sweep skips. Only the goroutine of a sweep uses it.
	sweeps    sync.WaitGroup

	// mu is locked for moments only, and never while foreign code runs.
	mu struct {
		sync.Mutex
		// running are the running calls. mu also guards fields of each Tracked.
		running []*Tracked[T]
		records records[T]
		// counted has the numbers that only grow, and those of the last list: callStats adds the others.
		counted     Stats
		durations   observe.Histogram
		changeTimes observe.Histogram // how long answered changes took, see unanswered.go
		endWatch    func()            // in a tracker without a pool, while calls run: ends the watch for stuck ones
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
	t := newTracker(queue, options)
	if t.optionsErr != nil {
		panic(t.optionsErr)
	}
	t.lastSweep.Store(int64(t.loop.Now()))
	t.setLogger()
	return t
}

// notNilPointer returns queue, or nil if it is a nil pointer: a variable of a concrete type that was not set.
func notNilPointer[T comparable](queue workqueue.TypedRateLimitingInterface[T]) workqueue.TypedRateLimitingInterface[T] {
	if v := reflect.ValueOf(queue); v.Kind() == reflect.Pointer && v.IsNil() {
		return nil
	}
	return queue
}

// newTracker returns a tracker that still needs setLogger. The queue of a pool may be nil: Run refuses it.
func newTracker[T comparable](queue workqueue.TypedRateLimitingInterface[T], options Options[T]) *Tracker[T] {
	t := &Tracker[T]{raw: queue, options: options, madeAt: callerOutside()}
	t.options.setDefaults()
	t.mu.records.maxGivenUp = t.options.KeepGivenUp
	buckets, err := t.options.durationBuckets()
	t.optionsErr = errors.Join(options.check(), err)
	t.mu.durations, t.mu.changeTimes = observe.NewHistogram(buckets), observe.NewHistogram(buckets)
	t.panicked, t.readStats = t.logPanic, t.ownStats
	t.hasher = sync.OnceValues(stablehash.New[T])
	t.loop = dueloop.New(t.options.Clock, t.endDue)
	if queue != nil {
		t.queue = workqueue.ExtendRateLimiting(queue)
		_, t.knowsAllKeys = queue.(workqueue.Extended[T])
		t.priorities, _ = queue.(operate.Operable[T])
		t.leaser, _ = queue.(leasing.Leaser[T])
		t.answers, _ = queue.(leasing.Answerer[T])
		stats := t.queue.Stats()
		t.knowsAddTimes, t.queueName = stats.Latency != nil, stats.Name
		t.options.Name = cmp.Or(t.options.Name, stats.Name)
	}
	return t
}

// addRunning makes c one of the running calls. From here on others see it.
func (t *Tracker[T]) addRunning(c *Tracked[T]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.stuck, c.canceled, c.stack = false, false, ""
	if _, rec := t.mu.records.find(c.result.Key); rec != nil && !c.changeSince.IsZero() {
		c.changeSince = cmp.Or(rec.changeSince, c.changeSince) // An unanswered change goes on.
	}
	c.index = len(t.mu.running)
	t.mu.running = append(t.mu.running, c)
	c.running = true
}

// removeRunningLocked removes c from running, where the last one takes its place. After the last one it ends
// the watch of a tracker without a pool.
func (t *Tracker[T]) removeRunningLocked(c *Tracked[T]) {
	end := len(t.mu.running) - 1
	last := t.mu.running[end]
	t.mu.running[c.index], last.index = last, c.index
	t.mu.running = slices.Delete(t.mu.running, end, end+1)
	c.running = false
	if end == 0 && t.mu.endWatch != nil {
		t.mu.endWatch()
		t.mu.endWatch = nil
	}
}

// findRunningLocked returns the running call of key, or nil.
func (t *Tracker[T]) findRunningLocked(key T) *Tracked[T] {
	for _, c := range t.mu.running {
		if c.result.Key == key {
			return c
		}
	}
	return nil
}

// Cancel ends the context of the handler that has key, with the cause [ErrCanceled], and reports whether
// there is one. What the handler returns then decides as always: an error is a failure. Cancel does not wait.
func (t *Tracker[T]) Cancel(key T) bool {
	var callCtx *callContext[T]
	t.mu.Lock()
	if c := t.findRunningLocked(key); c != nil {
		c.canceled, callCtx = true, c.callCtx
	}
	t.mu.Unlock()
	if callCtx != nil {
		callCtx.ensureStd().cancel(ErrCanceled) // Not under mu: this runs what waits for the context.
	}
	return callCtx != nil
}

// Forget makes the queue and the tracker forget that key has failed or was given up: for a program that
// removes a key, or handles it, by itself.
func (t *Tracker[T]) Forget(key T) {
	if t.queue != nil { // New takes a nil queue, and Run refuses it.
		t.queue.Forget(key)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.findRunningLocked(key); c != nil {
		c.changeSince = time.Time{}
	}
	t.mu.records.noteAtRest(key)
}
