package debug

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/keyedqueue/workqueue"
	"k8s.io/utils/clock"
)

// Options configure [NewHandler]. The zero value is ready to use.
type Options struct {
	// Clock is the clock of the queues. Nil means the real one.
	Clock clock.WithTicker
	// SampleEvery is how often each queue's numbers are read. Of these samples 120 are kept, so the charts on
	// the page cover 10 minutes unless it is set. 5 s unless positive.
	SampleEvery time.Duration
	// Metrics is the program's own provider of metrics, if it has one. The handler, which takes its place, passes all
	// queues and pools on to it. See [Handler].
	Metrics workqueue.StatsProvider
	// Actions lets readers of the page change the queues: retry, forget and remove keys, cancel handlers, pause and resume
	// queues and groups. See "Actions" in the package comment.
	Actions bool
	// Audit is called for each request for an action, also for those that were refused or have failed, before it is
	// answered. Several goroutines may call it at once. Nil means a line in the log of [log/slog].
	Audit func(r *http.Request, a Action)
}

// Handler is an [http.Handler] that shows queues and worker pools. Make it with [NewHandler]. All methods may be
// called by many goroutines at once.
//
// It is also a [workqueue.StatsProvider]: queues that have it as their MetricsProvider, and pools, appear by themselves
// if they have a name. One line is enough for all of a program:
//
//	workqueue.SetProvider(h)
//
// [Register] shows other queues.
//
// While something is shown the handler has one goroutine, which reads the numbers of all queues every few seconds,
// so that the charts are there at the first look. That takes a few milliseconds for a thousand queues, up to 10 KB
// for each queue that was busy in the last ten minutes, and less than 2 KB for others. A queue that does not answer
// holds up neither the others nor a page for more than a second. It keeps a goroutine until it does.
type Handler struct {
	// Times has the methods of a provider that makes no metrics.
	Times

	clock   clock.WithTicker
	every   time.Duration
	metrics workqueue.StatsProvider
	audit   func(*http.Request, Action) // nil without actions

	// running counts the goroutines. It grows under mu, and not after Close.
	running sync.WaitGroup
	// searching has one token, so that one search runs at a time. acting has one for actions, which no reader holds up.
	searching, acting chan struct{}

	// No method of a queue is called under mu.
	mu struct {
		sync.Mutex
		// queues are by id, and those that can be compared by themselves, too.
		queues  map[string]*entry
		byQueue map[any]*entry
		// pools are by name. Each entry has those of one name, and is shown if no queue has it.
		pools map[string]*entry
		// madeUp counts the ids that had to be made up.
		madeUp int
		// stop ends the sampler. It is nil if there is none, because there are no queues and no pools.
		stop   context.CancelFunc
		closed bool
	}
}

var _ http.Handler = (*Handler)(nil)

// NewHandler returns a handler that shows no queue yet. Without queues it has no goroutine, and needs no
// Close.
func NewHandler(o Options) *Handler {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Metrics == nil {
		o.Metrics = Times{}
	}
	if o.SampleEvery <= 0 {
		o.SampleEvery = 5 * time.Second
	}
	h := &Handler{clock: o.Clock, every: o.SampleEvery, metrics: o.Metrics, searching: make(chan struct{}, 1), acting: make(chan struct{}, 1)}
	h.mu.queues, h.mu.byQueue, h.mu.pools = make(map[string]*entry), make(map[any]*entry), make(map[string]*entry)
	if o.Actions {
		if h.audit = o.Audit; h.audit == nil {
			h.audit = logAction
		}
	}
	return h
}

// Register makes h show q under that name, or under the one in its Stats if name is empty. Names may be
// given twice. A queue that is shown already, because h is its MetricsProvider, gets the new name. After Close
// Register does nothing.
//
// h keeps q, so it is not collected while it is registered. It ends when unregister is called (any number
// of times), when h is closed, or by itself within Options.SampleEvery after q has been shut down and has
// no key left.
//
// Of a queue that lacks Stats and Snapshot, which all queues of package workqueue have, only the length is
// shown. A queue that panics is shown as one that panics. The methods String and Error of keys are called
// when a queue's page is asked for, outside of all locks. A pointer that lacks them is shown as an address.
func Register[T comparable](h *Handler, name string, q workqueue.TypedInterface[T]) (unregister func()) {
	return h.register(name, workqueue.Inspect(q))
}

// Close forgets all queues and pools and ends the goroutines, which it waits for: when it returns, no method of a queue
// is being called. h goes on to answer requests, and shows no queues. Close may be called any number of times.
func (h *Handler) Close() {
	defer h.running.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.closed = true
	clear(h.mu.queues)
	clear(h.mu.byQueue)
	clear(h.mu.pools)
	h.stopIfEmptyLocked()
}

// startLocked starts the sampler unless it runs.
func (h *Handler) startLocked() {
	if h.mu.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		h.mu.stop = stop
		ticker, now := h.clock.NewTicker(h.every), h.clock.Now()
		h.running.Go(func() { h.sample(ctx, ticker, now) })
	}
}

func (h *Handler) stopIfEmptyLocked() {
	if h.mu.stop != nil && len(h.mu.queues) == 0 && len(h.mu.pools) == 0 {
		h.mu.stop()
		h.mu.stop = nil
	}
}

// sample reads the numbers of all queues at every tick until ctx ends. The first tick counts from last.
func (h *Handler) sample(ctx context.Context, ticker clock.Ticker, last time.Time) {
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		// After a tick that was late the next one is early. Few events in a short time would look like a high rate.
		now := h.clock.Now()
		if now.Sub(last) < h.every/2 {
			continue
		}
		last = now
		for _, r := range h.readAll(ctx) {
			if !r.at.IsZero() {
				r.entry.history.add(r.measure())
			}
		}
	}
}

// goUnlessClosed calls f in a goroutine for which Close waits. After Close it returns false.
func (h *Handler) goUnlessClosed(f func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.mu.closed {
		h.running.Go(f)
	}
	return !h.mu.closed
}
