package debug

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
	"k8s.io/utils/clock"
)

// Options configure [NewHandler]. The zero value is ready to use.
type Options struct {
	// Clock is the clock of the queues. Nil means the real one.
	Clock clock.WithTicker
	// SampleEvery is how often each queue's numbers are read: every 5 s unless it is positive. 120 samples are kept, so the charts
	// cover 10 minutes by default.
	SampleEvery time.Duration
	// Metrics is the program's own provider of metrics, if it has one. The handler, which takes its place, passes all
	// queues and pools on to it. See [Handler].
	Metrics workqueue.StatsProvider
	// Actions lets readers of the page change the queues: retry, forget and remove keys, cancel handlers, end holds, pause and
	// resume queues and groups. See "Actions" in the package comment.
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
// holds up no other queue, the list for a second, and its own page for five. It keeps a goroutine until it answers.
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
		// byID has all entries, and byQueue those of queues that can be compared.
		byID    map[string]*entry
		byQueue map[any]*entry
		// poolEntries has the entries of pools, by name. They are in byID too, and hidden while queues show their pools.
		// poolsByQueue has the pools whose queues can be compared.
		poolEntries  map[string]*entry
		poolsByQueue map[any][]*worker.Inspector
		// madeUp counts the ids that had to be made up.
		madeUp int
		// stop ends the sampler, which runs while there are queues or pools. Otherwise it is nil.
		stop   context.CancelFunc
		closed bool
	}
}

// NewHandler returns a handler that shows no queue yet. Without queues it has no goroutine, and needs no Close.
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
	h.mu.byID, h.mu.byQueue = make(map[string]*entry), make(map[any]*entry)
	h.mu.poolEntries, h.mu.poolsByQueue = make(map[string]*entry), make(map[any][]*worker.Inspector)
	if o.Actions {
		if h.audit = o.Audit; h.audit == nil {
			h.audit = logAction
		}
	}
	return h
}

// Register makes h show q under that name, or under the one in its Stats if name is empty. Names may be given twice. A queue
// that is shown already, because h is its MetricsProvider, gets the new name. After Close Register does nothing.
//
// h keeps q alive until unregister is called (any number of times), h is closed, or, within Options.SampleEvery, q is shut down and
// empty. Register asks q for its Stats, for up to five seconds, and so does the constructor of a queue that has h as its
// MetricsProvider.
//
// Of a queue that lacks Stats and Snapshot, which all queues of package workqueue have, only the length is
// shown. A queue that panics is shown as one that panics. The methods of keys by which package fmt prints them (String, Error, Format,
// GoString) are called when a queue's page is asked for, outside of all locks. A pointer that lacks them is shown as an address.
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
	clear(h.mu.byID)
	clear(h.mu.byQueue)
	clear(h.mu.poolEntries)
	clear(h.mu.poolsByQueue)
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
	if h.mu.stop != nil && len(h.mu.byID) == 0 {
		h.mu.stop()
		h.mu.stop = nil
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

// entry is what the list has a row for: a queue with its pools, or pools with one name whose queues are not shown.
type entry struct {
	id, name string
	// queueName is the name that the queue itself has, which a pool has by default.
	queueName string
	// queue is zero if only pools are known. Its functions are foreign code, which may panic or block.
	queue   workqueue.Inspector
	history history
	// asking has a token while the queue is being read, so that one that does not answer is asked once.
	asking chan struct{}
	// asked is when the call began that goes on, in real time, or nil. last is the last answer, without keys, or nil.
	asked atomic.Pointer[time.Time]
	last  atomic.Pointer[reading]

	// pools are all those with its name, if queue is zero. They are guarded by Handler.mu.
	pools []*worker.Inspector

	mu struct {
		sync.Mutex
		// found are keys that were searched for, by their texts and ids: to look them up again needs no search.
		found map[[2]string][]any
	}
}

func (e *entry) hasQueue() bool { return e.queue.Stats != nil }

func (h *Handler) register(name string, q workqueue.Inspector) (unregister func()) {
	e := &entry{name: name, queueName: name, queue: q, asking: make(chan struct{}, 1)}
	own := h.readOne(context.Background(), e, 0).stats.Name
	h.mu.Lock() // A call that has not answered may read them yet.
	e.queueName, e.name = own, short(cmp.Or(name, own), maxName)
	h.mu.Unlock()
	h.removeIfEnded(e.name)
	h.insert(e)
	return func() { h.remove(e) }
}

// insert shows e, in the place of the same queue or of the one that it is made of.
func (h *Handler) insert(e *entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.closed {
		return
	}
	for _, old := range []any{e.queue.Queue, e.queue.Below} {
		if shown := h.mu.byQueue[hashable(old)]; shown != nil {
			h.removeLocked(shown)
		}
	}
	h.addLocked(e, e.name)
	if key := hashable(e.queue.Queue); key != nil {
		h.mu.byQueue[key] = e
	}
}

// addLocked adds e under that id, or one that is like it if another entry has it.
func (h *Handler) addLocked(e *entry, id string) {
	for e.id = id; e.id == "" || h.mu.byID[e.id] != nil; e.id = fmt.Sprintf("%s~%d", id, h.mu.madeUp) {
		h.mu.madeUp++
	}
	h.mu.byID[e.id] = e
	h.startLocked()
}

// removeIfEnded removes the queue with that id if it has ended and the sampler has not noticed yet. A queue that is made anew under
// the same name then has the same id, and links to it stay.
func (h *Handler) removeIfEnded(id string) {
	h.mu.Lock()
	old := h.mu.byID[id]
	h.mu.Unlock()
	if old == nil || !old.hasQueue() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if h.readOne(ctx, old, 0).hasEnded() {
		h.remove(old)
	}
}

func (h *Handler) remove(e *entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.removeLocked(e)
	h.stopIfEmptyLocked()
}

func (h *Handler) removeLocked(e *entry) {
	if h.mu.byID[e.id] != e {
		return
	}
	delete(h.mu.byID, e.id)
	if key := hashable(e.queue.Queue); h.mu.byQueue[key] == e {
		delete(h.mu.byQueue, key)
	}
}

// addPool shows a pool, on the page of its queue.
func (h *Handler) addPool(name string, p worker.Inspector) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.closed {
		return
	}
	e := h.mu.poolEntries[name]
	if e == nil {
		e = &entry{name: short(name, maxName), queueName: name, asking: make(chan struct{}, 1)}
		h.mu.poolEntries[name] = e
		// The prefix leaves the id to a queue with this name, which may come later.
		h.addLocked(e, "pool "+e.name)
	}
	e.pools = append(e.pools, &p)
	if key := hashable(p.Queue); key != nil {
		h.mu.poolsByQueue[key] = append(h.mu.poolsByQueue[key], &p)
	}
}

func (h *Handler) removePool(p *worker.Inspector) {
	h.mu.Lock()
	defer h.mu.Unlock()
	isP := func(q *worker.Inspector) bool { return q == p }
	for name, e := range h.mu.poolEntries { // Its Stats may have another name.
		if e.pools = slices.DeleteFunc(e.pools, isP); len(e.pools) == 0 {
			delete(h.mu.poolEntries, name)
			h.removeLocked(e)
		}
	}
	key := hashable(p.Queue)
	if h.mu.poolsByQueue[key] = slices.DeleteFunc(h.mu.poolsByQueue[key], isP); len(h.mu.poolsByQueue[key]) == 0 {
		delete(h.mu.poolsByQueue, key)
	}
	h.stopIfEmptyLocked()
}

// entries returns the entries that are shown. A pool is shown by the entry of its queue; if that is not shown, by the entries of
// all queues that have its name, and otherwise by its own.
func (h *Handler) entries() []*entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*entry, 0, len(h.mu.byID))
	withQueue := make(map[string]bool, len(h.mu.poolEntries))
	for _, e := range h.mu.byID {
		if e.hasQueue() {
			all = append(all, e)
			if len(h.mu.poolEntries) > 0 {
				withQueue[e.name], withQueue[e.queueName] = true, true
			}
		}
	}
	for name, e := range h.mu.poolEntries {
		if !withQueue[name] && len(h.namedLocked(name)) > 0 {
			all = append(all, e)
		}
	}
	return all
}

// find returns the entry with that id, or nil.
func (h *Handler) find(id string) *entry {
	h.mu.Lock()
	e := h.mu.byID[id]
	h.mu.Unlock()
	if e == nil || e.hasQueue() || slices.Contains(h.entries(), e) {
		return e
	}
	return nil
}

// poolsOf returns the pools that e shows.
func (h *Handler) poolsOf(e *entry) (all []*worker.Inspector) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !e.hasQueue() {
		return h.namedLocked(e.queueName)
	}
	if key := hashable(e.queue.Queue); key != nil {
		all = slices.Clone(h.mu.poolsByQueue[key])
	}
	for _, name := range slices.Compact([]string{e.name, e.queueName}) {
		for _, p := range h.namedLocked(name) {
			if !slices.Contains(all, p) { // If e is not in byQueue, yet or any more, all has its queue's pools already.
				all = append(all, p)
			}
		}
	}
	return all
}

// namedLocked returns the pools with that name whose queues are not shown.
func (h *Handler) namedLocked(name string) (all []*worker.Inspector) {
	if e := h.mu.poolEntries[name]; e != nil {
		for _, p := range e.pools {
			if h.mu.byQueue[hashable(p.Queue)] == nil {
				all = append(all, p)
			}
		}
	}
	return all
}

// hashable returns v, or nil if it cannot be the key of a map.
func hashable(v any) any {
	if v == nil || !reflect.ValueOf(v).Comparable() {
		return nil
	}
	return v
}

var (
	_ http.Handler                = (*Handler)(nil)
	_ workqueue.InspectorProvider = (*Handler)(nil)
	_ worker.InspectorProvider    = (*Handler)(nil)
)

// Metrics returns Options.Metrics, or a provider that makes no metrics: h passes on to it what it is asked to show.
func (h *Handler) Metrics() workqueue.StatsProvider {
	if h == nil {
		return Times{}
	}
	return h.metrics
}

// HistogramBounds returns those of Options.Metrics.
func (h *Handler) HistogramBounds() []float64 { return h.Metrics().HistogramBounds() }

// WatchQueue passes the queue on to Options.Metrics.
func (h *Handler) WatchQueue(name string, stats func() workqueue.Stats) {
	h.Metrics().WatchQueue(name, stats)
}

// InspectQueue shows a queue under that name. A nil Handler shows nothing: a program without a page can have a variable for one.
func (h *Handler) InspectQueue(name string, q workqueue.Inspector) {
	if h == nil {
		return
	}
	if p, ok := h.metrics.(workqueue.InspectorProvider); ok {
		p.InspectQueue(name, q)
	}
	h.register(name, q)
}

// PoolHistogramBounds returns those of Options.Metrics.
func (h *Handler) PoolHistogramBounds() []float64 {
	if p, ok := h.Metrics().(interface{ PoolHistogramBounds() []float64 }); ok {
		return p.PoolHistogramBounds()
	}
	return nil
}

// InspectPool shows a pool, on the page of its queue. A nil Handler shows nothing.
func (h *Handler) InspectPool(name string, p worker.Inspector) {
	if h == nil {
		return
	}
	if below, ok := h.metrics.(worker.InspectorProvider); ok {
		below.InspectPool(name, p)
	}
	h.addPool(name, p)
}

// Times is a MetricsProvider for programs that have no other: a queue that has it (and a name) reads the
// clock, so that the page shows for how long keys have been there. It makes no metrics.
//
//	workqueue.SetProvider(debug.Times{})
type Times struct{}

var _ workqueue.StatsProvider = Times{}

// timesBounds are for people who look at a page: they reach the ages of keys in an outage.
var timesBounds = []float64{1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600}

// HistogramBounds returns bounds from a microsecond to an hour.
func (Times) HistogramBounds() []float64 { return timesBounds }

// WatchQueue does nothing.
func (Times) WatchQueue(string, func() workqueue.Stats) {}

// NewDepthMetric and the methods below return nil: without metrics.
func (Times) NewDepthMetric(string) workqueue.GaugeMetric                         { return nil }
func (Times) NewAddsMetric(string) workqueue.CounterMetric                        { return nil }
func (Times) NewLatencyMetric(string) workqueue.HistogramMetric                   { return nil }
func (Times) NewWorkDurationMetric(string) workqueue.HistogramMetric              { return nil }
func (Times) NewUnfinishedWorkSecondsMetric(string) workqueue.SettableGaugeMetric { return nil }
func (Times) NewRetriesMetric(string) workqueue.CounterMetric                     { return nil }
func (Times) NewLongestRunningProcessorSecondsMetric(string) workqueue.SettableGaugeMetric {
	return nil
}
