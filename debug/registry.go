package debug

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// entry is what the list has a row for: a queue with its pools, or the pools of a queue that is not shown.
type entry struct {
	id, name string
	// of is the queue itself, to recognize it by: see identity.
	of any
	// queue is zero if only pools are known.
	queue   workqueue.Inspector
	history history
	// pools are those of an entry in poolEntries. They are guarded by Handler.mu.
	pools []*worker.Inspector
}

func (e *entry) hasQueue() bool { return e.queue.Stats != nil }

// identity returns queue, or something unique if it is nil.
func identity(queue any) any { return cmp.Or(queue, any(new(int))) }

func (h *Handler) register(name string, q workqueue.Inspector) (unregister func()) {
	e := &entry{of: identity(q.Queue), queue: q}
	first := h.read(context.Background(), e)
	e.history.add(first.sample(), first.times())
	e.name = short(cmp.Or(name, first.Stats.Name), maxName)
	h.removeIfEnded(e.name)
	h.insert(e)
	return func() { h.remove(e) }
}

// insert shows e, in the place of the same queue or of the queue that it wraps.
func (h *Handler) insert(e *entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.closed {
		return
	}
	for _, old := range []any{e.of, identity(e.queue.Below)} {
		if shown := h.mu.byQueue[old]; shown != nil {
			h.removeLocked(shown)
		}
	}
	h.addLocked(e, e.name)
	h.mu.byQueue[e.of] = e
}

// addLocked adds e under that id, or a similar one if another entry has it.
func (h *Handler) addLocked(e *entry, id string) {
	for e.id = id; e.id == "" || h.mu.byID[e.id] != nil; e.id = fmt.Sprintf("%s~%d", id, h.mu.madeUp) {
		h.mu.madeUp++
	}
	h.mu.byID[e.id] = e
}

// removeIfEnded removes the queue with that id if it has ended and the sampler has not noticed yet. A queue
// that is made anew under the same name then has the same id, and links to it stay.
func (h *Handler) removeIfEnded(id string) {
	h.mu.Lock()
	old := h.mu.byID[id]
	h.mu.Unlock()
	if old != nil && old.hasQueue() && hasEnded(old.queue.Stats()) {
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
	if h.mu.byQueue[e.of] == e {
		delete(h.mu.byQueue, e.of)
	}
}

// addPool shows a pool: on the page of its queue or, while that is not shown, on a page of its own.
func (h *Handler) addPool(name string, p worker.Inspector) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.closed {
		return
	}
	of := identity(p.Queue)
	e := h.mu.poolEntries[of]
	if e == nil {
		e = &entry{name: short(name, maxName), of: of}
		h.mu.poolEntries[of] = e
		// The prefix leaves the id to a queue with this name, which may come later.
		h.addLocked(e, "pool "+e.name)
	}
	e.pools = append(e.pools, &p)
}

// removePool removes a pool of the queue that of identifies.
func (h *Handler) removePool(of any, p *worker.Inspector) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.mu.poolEntries[of]
	if e == nil {
		return
	}
	e.pools = slices.DeleteFunc(e.pools, func(have *worker.Inspector) bool { return have == p })
	if len(e.pools) == 0 {
		delete(h.mu.poolEntries, of)
		h.removeLocked(e)
	}
}

// entries returns the entries that are shown.
func (h *Handler) entries() []*entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*entry, 0, len(h.mu.byID))
	for _, e := range h.mu.byID {
		if !h.isHiddenLocked(e) {
			all = append(all, e)
		}
	}
	return all
}

// isHiddenLocked reports whether e has pools alone, which the page of their queue shows.
func (h *Handler) isHiddenLocked(e *entry) bool { return !e.hasQueue() && h.mu.byQueue[e.of] != nil }

// find returns the entry with that id, or nil.
func (h *Handler) find(id string) *entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.mu.byID[id]; e != nil && !h.isHiddenLocked(e) {
		return e
	}
	return nil
}

// poolsOf returns the pools of e.
func (h *Handler) poolsOf(e *entry) []*worker.Inspector {
	h.mu.Lock()
	defer h.mu.Unlock()
	if of := h.mu.poolEntries[e.of]; of != nil {
		return slices.Clone(of.pools)
	}
	return nil
}
