package debug

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/keyedqueue/workqueue"
	"k8s.io/utils/clock"
)

// Options tell [NewHandler] how to look. The zero value is ready to use.
type Options struct {
	// Clock is the clock of the queues. Nil means the real one.
	Clock clock.WithTicker
	// SampleEvery is how often each queue's depth is read. Of these samples 120 are kept, so the lines on
	// the page are 10 minutes long unless it is set. 5 s unless positive.
	SampleEvery time.Duration
}

// Handler is an [http.Handler] that shows the queues that were registered with it. Make it with
// [NewHandler]. All methods may be called by many goroutines at once.
//
// While a queue is registered it has one goroutine, which reads the depth of all queues every few seconds,
// so that the lines are there at the first look. That takes about a millisecond for a thousand queues, and
// up to 500 bytes for each.
type Handler struct {
	clock clock.WithTicker
	every time.Duration

	// sampler counts the goroutine.
	sampler sync.WaitGroup

	// mu guards what follows. No method of a queue is called under it.
	mu sync.Mutex
	// queues are by id.
	queues map[string]*entry
	// seq counts the ids that had to be made up.
	seq int
	// stop ends the goroutine, which there is if it is not nil: while there are queues.
	stop   chan struct{}
	closed bool
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
	return &Handler{clock: o.Clock, every: o.SampleEvery, queues: make(map[string]*entry)}
}

// Register makes h show q under that name, or under the one in its Stats if name is empty. Names may be
// given twice. After Close it does nothing.
//
// h keeps q, so it is not collected while it is registered. It ends when unregister is called (any number
// of times), when h is closed, or by itself within Options.SampleEvery after q has been shut down and has
// no key left.
//
// Of a queue that lacks Stats and Snapshot, which all queues of package workqueue have, only the length is
// shown. A queue that panics is shown as one that panics. The methods String and Error of keys are called
// when a queue's page is asked for, outside of all locks. A pointer that lacks them is shown as an address.
func Register[T comparable](h *Handler, name string, q workqueue.TypedInterface[T]) (unregister func()) {
	e := &entry{stats: func() workqueue.Stats {
		return workqueue.Stats{Queued: q.Len(), ShuttingDown: q.ShuttingDown()}
	}}
	e.keys = func(int) keyLists { return keyLists{} }
	if q, ok := q.(inspectable[T]); ok {
		e.stats = q.Stats
		e.keys = func(limit int) keyLists { return newKeyLists(q.Snapshot(limit), limit) }
	}
	if name == "" {
		s, _ := e.read()
		name = s.Name
	}
	l := newLabel(name, maxName)
	if e.name = l.Text; l.Cut {
		e.name += "…"
	}
	return h.add(e)
}

// inspectable is the part of [workqueue.Extended] that is needed.
type inspectable[T comparable] interface {
	Stats() workqueue.Stats
	Snapshot(limit int) workqueue.Snapshot[T]
}

// Close forgets all queues and ends the goroutine, which it waits for. h goes on to answer requests, and
// shows no queues. Close may be called any number of times.
func (h *Handler) Close() {
	defer h.sampler.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	clear(h.queues)
	h.stopIfEmptyLocked()
}

func (h *Handler) add(e *entry) (remove func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return func() {}
	}
	for e.id = e.name; e.id == "" || h.queues[e.id] != nil; e.id = fmt.Sprintf("%s~%d", e.name, h.seq) {
		h.seq++
	}
	h.queues[e.id] = e
	if h.stop == nil {
		h.stop = make(chan struct{})
		stop, ticker := h.stop, h.clock.NewTicker(h.every)
		h.sampler.Go(func() { h.sample(stop, ticker) })
	}
	return func() { h.remove(e) }
}

func (h *Handler) remove(e *entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.queues[e.id] == e {
		delete(h.queues, e.id)
		h.stopIfEmptyLocked()
	}
}

func (h *Handler) stopIfEmptyLocked() {
	if h.stop != nil && len(h.queues) == 0 {
		close(h.stop)
		h.stop = nil
	}
}

// sample reads the depth of all queues at every tick until stop is closed.
func (h *Handler) sample(stop <-chan struct{}, ticker clock.Ticker) {
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticker.C():
		}
		for _, r := range h.readAll() {
			r.entry.depth.add(r.stats.Queued)
		}
	}
}

// find returns the queue with that id, or nil.
func (h *Handler) find(id string) *entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.queues[id]
}

// readAll returns all queues, in no order, with their stats, and forgets those that have ended.
func (h *Handler) readAll() []*reading {
	var live []*reading
	for _, e := range h.entries() {
		stats, err := e.read()
		if stats.ShuttingDown && stats.Queued == 0 && stats.Processing == 0 && stats.Waiting == 0 {
			h.remove(e)
			continue
		}
		live = append(live, &reading{e, stats, err})
	}
	return live
}

func (h *Handler) entries() []*entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Values(h.queues))
}
