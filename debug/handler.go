package debug

import (
	"fmt"
	"net/http"
	"slices"
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
	// Actions lets readers of the page change the queues: retry a key now, remove it, pause and resume a queue. See
	// "Actions" in the package comment.
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
// for each queue that was busy in the last ten minutes, and less than 2 KB for others.
type Handler struct {
	// Times has the methods of a provider that makes no metrics.
	Times

	clock   clock.WithTicker
	every   time.Duration
	metrics workqueue.StatsProvider
	audit   func(*http.Request, Action) // nil without actions

	// sampler counts the goroutine.
	sampler sync.WaitGroup

	// searching bounds the memory that copies of queues take.
	searching sync.Mutex

	// mu guards what follows. No method of a queue is called under it.
	mu sync.Mutex
	// queues are by id, and those that can be compared by themselves, too.
	queues  map[string]*entry
	byQueue map[any]*entry
	// pools are by name.
	pools map[string]*poolGroup
	// seq counts the ids that had to be made up.
	seq int
	// tick counts the samples.
	tick uint32
	// stop ends the goroutine. It is not nil while there are queues or pools.
	stop   chan struct{}
	closed bool
}

// poolGroup is the pools that have one name.
type poolGroup struct {
	pools []*pool
	// entry shows them if no queue has that name.
	entry *entry
}

var _ http.Handler = (*Handler)(nil)

// NewHandler returns a handler that shows no queue yet. Without queues it has no goroutine, and needs no
// Close.
func NewHandler(o Options) *Handler {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.SampleEvery <= 0 {
		o.SampleEvery = 5 * time.Second
	}
	h := &Handler{
		clock: o.Clock, every: o.SampleEvery, metrics: o.Metrics,
		queues: make(map[string]*entry), byQueue: make(map[any]*entry), pools: make(map[string]*poolGroup),
	}
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

func (h *Handler) register(name string, q workqueue.Inspector) (unregister func()) {
	e := &entry{queue: q}
	at := h.clock.Now()
	stats, _ := e.read()
	if name == "" {
		name = stats.Name
	}
	e.name = newLabel(name, maxName).short()
	r := reading{entry: e, at: at, stats: stats}
	return h.add(e, r.measure())
}

// Close forgets all queues and pools and ends the goroutine, which it waits for. h goes on to answer requests, and
// shows no queues. Close may be called any number of times.
func (h *Handler) Close() {
	defer h.sampler.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	clear(h.queues)
	clear(h.byQueue)
	clear(h.pools)
	h.stopIfEmptyLocked()
}

func (h *Handler) add(e *entry, m measure) (remove func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return func() {}
	}
	for _, old := range []any{e.queue.Queue, e.queue.Below} {
		if shown := h.byQueue[hashable(old)]; shown != nil {
			h.removeLocked(shown)
		}
	}
	h.setIDLocked(e)
	h.queues[e.id] = e
	if key := hashable(e.queue.Queue); key != nil {
		h.byQueue[key] = e
	}
	e.history.begin(h.tick, m)
	h.startLocked()
	return func() { h.remove(e) }
}

// setIDLocked gives e its name as its id, or one that is like it.
func (h *Handler) setIDLocked(e *entry) {
	for e.id = e.name; e.id == "" || h.queues[e.id] != nil; e.id = fmt.Sprintf("%s~%d", e.name, h.seq) {
		h.seq++
	}
}

func (h *Handler) remove(e *entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.removeLocked(e)
	h.stopIfEmptyLocked()
}

func (h *Handler) removeLocked(e *entry) {
	if h.queues[e.id] != e {
		return
	}
	delete(h.queues, e.id)
	if key := hashable(e.queue.Queue); h.byQueue[key] == e {
		delete(h.byQueue, key)
	}
}

func (h *Handler) startLocked() {
	if h.stop == nil {
		h.stop = make(chan struct{})
		stop, ticker, now := h.stop, h.clock.NewTicker(h.every), h.clock.Now()
		h.sampler.Go(func() { h.sample(stop, ticker, now) })
	}
}

func (h *Handler) stopIfEmptyLocked() {
	if h.stop != nil && len(h.queues) == 0 && len(h.pools) == 0 {
		close(h.stop)
		h.stop = nil
	}
}

// sample reads the numbers of all queues at every tick until stop is closed. The first tick counts from last.
func (h *Handler) sample(stop <-chan struct{}, ticker clock.Ticker, last time.Time) {
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticker.C():
		}
		// After a tick that was late the next one is early. Few events in a short time would look like a high rate.
		now := h.clock.Now()
		if now.Sub(last) < h.every/2 {
			continue
		}
		last = now
		all := h.readAll()
		h.mu.Lock()
		h.tick++
		tick := h.tick
		h.mu.Unlock()
		for _, r := range all {
			r.entry.history.add(tick, r.measure())
		}
	}
}

func (h *Handler) ticks() uint32 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tick
}

// find returns the entry with that id and its pools, or nil.
func (h *Handler) find(id string) (*entry, []*pool) {
	h.mu.Lock()
	e := h.queues[id]
	h.mu.Unlock()
	if e == nil {
		all := h.entries()
		if i := slices.IndexFunc(all, func(e *entry) bool { return e.id == id }); i >= 0 {
			e = all[i]
		}
	}
	if e == nil {
		return nil, nil
	}
	stats, _ := e.read()
	return e, h.poolsOf(e, stats.Name)
}

// readAll returns all entries, in no order, with their stats, and forgets queues and pools that have ended.
func (h *Handler) readAll() []*reading {
	var live []*reading
	for _, e := range h.entries() {
		at := h.clock.Now()
		stats, err := e.read()
		if ended(stats) {
			h.remove(e)
			continue
		}
		r := &reading{entry: e, at: at, stats: stats, err: err}
		for _, p := range h.poolsOf(e, stats.Name) {
			if s, failure := p.read(0); failure != "" {
				r.err = failure
			} else if s.Stats.Ended {
				h.removePool(s.Stats.Name, p)
			} else {
				r.pools = append(r.pools, s.Stats)
			}
		}
		live = append(live, r)
	}
	return live
}

// entries returns the queues, and an entry for the pools of each name that no queue has.
func (h *Handler) entries() []*entry {
	h.mu.Lock()
	queues := make([]*entry, 0, len(h.queues)+len(h.pools))
	for _, e := range h.queues {
		queues = append(queues, e)
	}
	alone := make(map[string]*entry, len(h.pools))
	for name, g := range h.pools {
		alone[name] = g.entry
	}
	h.mu.Unlock()
	if len(alone) == 0 {
		return queues
	}
	for _, e := range queues {
		delete(alone, e.name)
		if stats, _ := e.read(); stats.Name != e.name {
			delete(alone, stats.Name)
		}
	}
	for _, e := range alone {
		queues = append(queues, e)
	}
	return queues
}

// poolsOf returns the pools that have the name under which e is shown, or that of its queue.
func (h *Handler) poolsOf(e *entry, queueName string) []*pool {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []*pool
	if g := h.pools[e.name]; g != nil {
		all = slices.Clone(g.pools)
	}
	if g := h.pools[queueName]; g != nil && queueName != e.name {
		all = append(all, g.pools...)
	}
	return all
}
