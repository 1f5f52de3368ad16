package debug

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/worker"
)

// entry is what the list has a row for: a queue with its pools.
type entry struct {
	id, name string
	queue    operate.Inspector
	history  history
	// pools are those of the queue. They are guarded by Handler.mu.
	pools []*worker.Inspector
	// forPools: the queue is shown because a pool handles its keys, and goes with the last pool.
	forPools bool
}

func (h *Handler) register(name string, q operate.Inspector) (unregister func()) {
	e := &entry{name: short(cmp.Or(name, q.Stats().Name), maxName), queue: q}
	h.show(e)
	return func() { h.remove(e) }
}

// show adds e to the list.
func (h *Handler) show(e *entry) {
	h.removeIfEnded(e.name)
	h.insert(e)
	first := h.read(context.Background(), e)
	e.history.add(first.sample(), first.times())
}

// insert puts e in the place of the same queue or of the queue that it wraps, whose pools it takes over. Its
// id is its name, or a similar one if another entry has that.
func (h *Handler) insert(e *entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.closed {
		return
	}
	for _, queue := range []any{e.queue.Queue, e.queue.Below} {
		if old := h.mu.byQueue[queue]; old != nil {
			e.pools = append(e.pools, old.pools...)
			e.forPools = e.forPools && old.forPools
			h.removeLocked(old)
		}
	}
	e.id = e.name
	for e.id == "" || h.mu.byID[e.id] != nil {
		h.mu.madeUp++
		e.id = fmt.Sprintf("%s~%d", e.name, h.mu.madeUp)
	}
	h.mu.byID[e.id], h.mu.byQueue[e.queue.Queue] = e, e
}

// removeIfEnded removes the queue with that id if it has ended and the sampler has not noticed yet. A queue
// that is made anew under the same name then has the same id, and links to it stay.
func (h *Handler) removeIfEnded(id string) {
	h.mu.Lock()
	old := h.mu.byID[id]
	h.mu.Unlock()
	if old != nil && hasEnded(old.queue.Stats()) {
		h.remove(old)
	}
}

func (h *Handler) remove(e *entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.removeLocked(e)
}

func (h *Handler) removeLocked(e *entry) {
	if h.mu.byID[e.id] == e {
		delete(h.mu.byID, e.id)
	}
	if h.mu.byQueue[e.queue.Queue] == e {
		delete(h.mu.byQueue, e.queue.Queue)
	}
}

// addPool shows a pool with its queue, and returns false if that is not shown.
func (h *Handler) addPool(p *worker.Inspector) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.mu.byQueue[p.Queue.Queue]
	if e != nil {
		e.pools = append(e.pools, p)
	}
	return e != nil
}

// removePool removes a pool that has ended.
func (h *Handler) removePool(e *entry, p *worker.Inspector) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e.pools = slices.DeleteFunc(e.pools, func(have *worker.Inspector) bool { return have == p })
	if e.forPools && len(e.pools) == 0 {
		h.removeLocked(e)
	}
}

// entries returns all entries.
func (h *Handler) entries() []*entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Values(h.mu.byID))
}

// find returns the entry with that id, or nil.
func (h *Handler) find(id string) *entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.byID[id]
}

// poolsOf returns the pools of e.
func (h *Handler) poolsOf(e *entry) []*worker.Inspector {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(e.pools)
}
