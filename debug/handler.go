package debug

import (
	"context"
	"net/http"
	"sync"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/operate"
	"k8s.io/utils/clock"
)

// Options configure [NewHandler]. The zero value is ready to use.
type Options struct {
	// Clock is the clock of the queues. Nil means the real one.
	Clock clock.WithTicker
	// Metrics is the program's own provider of metrics, or nil. The handler takes its place, and passes all
	// queues and pools on to it.
	Metrics workqueue.StatsProvider
	// Actions lets readers of the page change the queues: retry, forget and remove keys, cancel handlers, end
	// holds, pause and resume queues and groups. See "Actions" in the package comment.
	Actions bool
	// Audit is called for each request for an action before it is answered, also if it was refused or has
	// failed. Several goroutines may call it at once. Nil means a line in the log of [log/slog].
	Audit func(r *http.Request, a Action)
}

// Handler is an [http.Handler] that shows queues and worker pools. Make it with [NewHandler]. All methods may
// be called by many goroutines at once.
//
// It is also a [workqueue.StatsProvider]: queues that have it as their MetricsProvider, and pools, appear by
// themselves if they have a name. One line is enough for all of a program:
//
//	workqueue.SetProvider(h)
//
// [Register] shows other queues.
//
// A goroutine of the handler reads the numbers of all queues every five seconds, so that the charts are there
// at the first look. For a thousand queues that takes a few milliseconds. Each queue takes 30 KB.
type Handler struct {
	// Times has the methods of a provider that makes no metrics.
	Times

	clock   clock.WithTicker
	metrics workqueue.StatsProvider
	audit   func(*http.Request, Action) // nil without actions

	// stop ends the sampler, and running waits for it.
	stop    context.CancelFunc
	running sync.WaitGroup
	// turn has a place for the page that goes over all keys of a queue: see takeTurn.
	turn chan struct{}

	// No method of a queue is called under mu. An entry is a row of the list.
	mu struct {
		sync.Mutex
		byID    map[string]*entry
		byQueue map[any]*entry // the same entries, by Queue of their Inspectors
		// madeUp counts the ids that had to be made up.
		madeUp int
		closed bool
	}
}

// NewHandler returns a handler that shows no queue yet. Close it to end its goroutine.
func NewHandler(o Options) *Handler {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Metrics == nil {
		o.Metrics = Times{}
	}
	h := &Handler{clock: o.Clock, metrics: o.Metrics, turn: make(chan struct{}, 1)}
	h.mu.byID = make(map[string]*entry)
	h.mu.byQueue = make(map[any]*entry)
	if o.Actions {
		if h.audit = o.Audit; h.audit == nil {
			h.audit = logAction
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	ticker := h.clock.NewTicker(sampleEvery)
	h.running.Go(func() { h.sampleAll(ctx, ticker) })
	return h
}

// Register makes h show q under that name, or under the one in its Stats if name is empty. Several queues may
// have one name. A queue that is shown already, because h is its MetricsProvider, gets the new name. After
// Close Register does nothing.
//
// h keeps q alive until unregister is called (any number of times), h is closed, or q is shut down and empty,
// which h notices within five seconds. Then h forgets its pools as well.
//
// Register panics if q is no [workqueue.Extended]: package foreign makes one of other queues. Keys are
// printed as package fmt does, so that their methods (String, Error, Format, GoString) are called when a page
// is asked for, outside of all locks. A pointer without such a method is shown as an address.
func Register[T comparable](h *Handler, name string, q workqueue.TypedInterface[T]) (unregister func()) {
	return h.register(name, operate.Inspect(q))
}

// Close forgets all queues and pools. When it returns, h has no goroutine. h still answers requests, and
// shows no queues. Close may be called any number of times.
func (h *Handler) Close() {
	defer h.running.Wait()
	h.stop()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.closed = true
	clear(h.mu.byID)
	clear(h.mu.byQueue)
}
