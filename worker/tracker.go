package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/observe"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/stablehash"
	"github.com/keyedqueue/workqueue/worker/internal/sketch"
)

// Tracker keeps account of the calls of a handler. A [Pool] has one. [NewTracker] is for programs and
// libraries that have workers of their own:
//
//	call := tracker.Begin(ctx, key)
//	err := handle(call.Context(), key)
//	result := call.End(err)
//
// Then the program does in the queue what result.Next says:
//
//	NextForget             Forget
//	NextRequeue            AddAfter with result.After (AddWithPriority, for a Priority), and then Forget
//	NextInterrupted        Add, unless Interrupted is true
//	NextRetry, NextGiveUp  nothing: End has called the queue's Fail
//	NextLost               nothing
//
// In every case it then calls [Tracked.Done]. When the queue has been shut down, call [Tracker.EndHolds]. Any
// goroutine may call the methods.
type Tracker[T comparable] struct {
	options Options[T]
	argsErr error        // what makes no sense in the queue and the options
	logger  *slog.Logger // with the name as attribute

	// The queue as the program has made it, and as each of the interfaces that it implements. The others are
	// nil.

	queue      workqueue.ExtendedRateLimiting[T] // an empty queue if Run is to refuse the program's
	priorities operate.Operable[T]
	leaser     leasing.Leaser[T]
	answerer   leasing.Answerer[T]

	queueName     string
	knowsAddTimes bool // the queue has metrics, and says when keys were added

	hasher func() (stablehash.Hasher[T], error) // for Every

	pool *Pool[T] // nil without a pool

	// mu is locked for moments only, and never while foreign code runs.
	mu struct {
		sync.Mutex
		// running are the running calls in the order of their beginnings. mu also guards fields of each Tracked.
		running     []*Tracked[T]
		mostRunning int // how many calls have run at once, at most
		records     records[T]
		givenUp     givenUpKeys[T]
		holds       holds[T]
		// counted has the numbers that only grow, and those of the last list: callStatsLocked adds the others.
		counted     Stats
		durations   observe.Histogram
		busiest     sketch.Counts[T]
		retryDelays observe.Histogram // of failures that are retried
		holdTimes   observe.Histogram // how long keys were on hold
		changeTimes observe.Histogram // how long answered changes took, see records.go
		endWatch    func()            // while calls run: ends the watch for stuck ones
	}
}

// NewTracker returns a tracker for the keys of queue. It uses the options Name, MaxRetries, RetryFor,
// HandlerTimeout, StuckAfter, OnFinish, OnStuck, Logger, Clock and, for buckets, MetricsProvider. It panics
// if an option makes no sense, or queue is nil or not of this project (see foreign.RateLimiting).
func NewTracker[T comparable](queue workqueue.TypedRateLimitingInterface[T], options Options[T]) *Tracker[T] {
	t := newTracker(queue, options)
	if t.argsErr != nil {
		panic(t.argsErr)
	}
	t.setLogger()
	return t
}

// checkQueue returns an error that says why nothing works over queue, or nil.
func checkQueue[T comparable](queue workqueue.TypedRateLimitingInterface[T]) error {
	if queue == nil {
		return errors.New("worker: the queue is nil")
	}
	if _, ok := queue.(workqueue.ExtendedRateLimiting[T]); ok {
		return nil
	}
	return fmt.Errorf("worker: the queue, a %T, is no workqueue.ExtendedRateLimiting. If it wraps a queue of "+
		"this project, embed workqueue.ExtendedRateLimiting instead of TypedRateLimitingInterface. Of any other "+
		"queue foreign.RateLimiting makes one: call it once, and use only what it returns", queue)
}

// newTracker returns a tracker that still needs setLogger. Run of a pool refuses what argsErr says. Until
// then the pool has an empty queue in place of a wrong one.
func newTracker[T comparable](queue workqueue.TypedRateLimitingInterface[T], options Options[T]) *Tracker[T] {
	t := &Tracker[T]{options: options}
	t.options.setDefaults()
	t.mu.givenUp.keys = make(map[T]givenUpKey[T])
	buckets := t.options.buckets()
	t.argsErr = errors.Join(checkQueue(queue), options.check())
	t.mu.durations, t.mu.changeTimes = observe.NewHistogram(buckets), observe.NewHistogram(buckets)
	t.mu.retryDelays, t.mu.holdTimes = observe.NewHistogram(buckets), observe.NewHistogram(buckets)
	t.hasher = sync.OnceValues(stablehash.New[T])
	if t.queue, _ = queue.(workqueue.ExtendedRateLimiting[T]); t.queue == nil {
		noLimiter := workqueue.NewTypedMaxOfRateLimiter[T]()
		t.queue = workqueue.NewQueue(noLimiter, workqueue.TypedRateLimitingQueueConfig[T]{})
	} else {
		t.priorities, _ = queue.(operate.Operable[T])
		t.leaser, _ = queue.(leasing.Leaser[T])
		t.answerer, _ = queue.(leasing.Answerer[T])
		stats := t.queue.Stats()
		t.knowsAddTimes, t.queueName = stats.Latency != nil, stats.Name
		t.options.Name = cmp.Or(t.options.Name, stats.Name)
	}
	return t
}

// Begin begins a call for key, which the caller has got from the queue. The handler's context,
// [Tracked.Context], is made from ctx. Over a [leasing.Leaser], do not call the handler if that has ended
// already: the lease is lost. End then counts nothing, and returns NextLost with the context's cause.
func (t *Tracker[T]) Begin(ctx context.Context, key T) *Tracked[T] {
	h := workqueue.HandOut[T]{Key: key, Failures: t.queue.Failures(key), AddedAt: t.queue.AddedAt(key)}
	if t.priorities != nil {
		h.Priority = t.priorities.PriorityOf(key)
	}
	c := t.newCall(ctx, h)
	if c.lostBefore {
		return c
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.startLocked(c)
	return c
}

// Context returns the handler's context.
func (c *Tracked[T]) Context() context.Context { return c.ctx }

// Interrupted reports whether a context of [Call.UntilAdded] has ended because the key was added again.
func (c *Tracked[T]) Interrupted() bool {
	c.tracker.mu.Lock()
	defer c.tracker.mu.Unlock()
	return c.adds.wasAdded
}

// End ends the call, whose handler has returned err, counts it, logs it and calls OnFinish. Call it once,
// before Done. Of a panic err is a [*PanicError], and of runtime.Goexit [ErrGoexit].
func (c *Tracked[T]) End(err error) Result[T] {
	if c.lostBefore {
		c.result.Err, c.result.Next = context.Cause(c.ctx), NextLost
		c.endContext()
		return c.result
	}
	c.decide(err)
	c.report()
	c.endCall()
	return c.result
}

// HasHold reports, after End, whether Done may put the key on hold, for the handler or to slow the key down.
func (c *Tracked[T]) HasHold() bool { return c.hold != nil || c.slowDown > 0 }

// Done calls done, which calls the queue's Done, at once or, if the key is put on hold, when the hold ends,
// on any goroutine. Call it after End and the adds of the key.
func (c *Tracked[T]) Done(done func()) { c.doneOrHold(func(T) { done() }) }

// findRunningLocked returns the running call of key, or nil.
func (t *Tracker[T]) findRunningLocked(key T) *Tracked[T] {
	if i := slices.IndexFunc(t.mu.running, func(c *Tracked[T]) bool { return c.result.Key == key }); i >= 0 {
		return t.mu.running[i]
	}
	return nil
}

// Cancel ends the context of the handler that has key, with the cause [ErrCanceled], and reports whether
// there is one. An error that it then returns is a failure. Cancel does not wait.
func (t *Tracker[T]) Cancel(key T) bool {
	t.mu.Lock()
	c := t.findRunningLocked(key)
	if c != nil {
		c.canceled = true
	}
	t.mu.Unlock()
	if c != nil {
		c.cancel(ErrCanceled) // Not under mu: this runs what waits for the context.
	}
	return c != nil
}

// Forget makes the queue and the tracker forget that key has failed or was given up.
func (t *Tracker[T]) Forget(key T) {
	t.queue.Forget(key)
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.findRunningLocked(key); c != nil {
		c.changeSince, c.atOnce = time.Time{}, 0
	}
	t.mu.records.delete(key)
	delete(t.mu.givenUp.keys, key)
}
