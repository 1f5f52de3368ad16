package debug

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// entry is what the list has a row for: a queue with its pools, or pools with one name whose queues are not
// shown.
type entry struct {
	id, name string
	// queueName is the name that the queue itself has, which a pool has by default.
	queueName string
	// queue is zero if only pools are known.
	queue   workqueue.Inspector
	history history
	// pools are all those with its name, if queue is zero. They are guarded by Handler.mu.
	pools []*worker.Inspector
}

func (e *entry) hasQueue() bool { return e.queue.Stats != nil }

func (h *Handler) register(name string, q workqueue.Inspector) (unregister func()) {
	e := &entry{name: name, queueName: name, queue: q}
	own := h.read(e, 0).stats.Name
	e.queueName, e.name = own, short(cmp.Or(name, own), maxName)
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

// addLocked adds e under that id, or a similar one if another entry has it.
func (h *Handler) addLocked(e *entry, id string) {
	for e.id = id; e.id == "" || h.mu.byID[e.id] != nil; e.id = fmt.Sprintf("%s~%d", id, h.mu.madeUp) {
		h.mu.madeUp++
	}
	h.mu.byID[e.id] = e
	h.startLocked()
}

// removeIfEnded removes the queue with that id if it has ended and the sampler has not noticed yet. A queue
// that is made anew under the same name then has the same id, and links to it stay.
func (h *Handler) removeIfEnded(id string) {
	h.mu.Lock()
	old := h.mu.byID[id]
	h.mu.Unlock()
	if old == nil || !old.hasQueue() {
		return
	}
	if h.read(old, 0).hasEnded() {
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
		e = &entry{name: short(name, maxName), queueName: name}
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
	left := slices.DeleteFunc(h.mu.poolsByQueue[key], isP)
	if h.mu.poolsByQueue[key] = left; len(left) == 0 {
		delete(h.mu.poolsByQueue, key)
	}
	h.stopIfEmptyLocked()
}

// entries returns the entries that are shown. A pool is shown by the entry of its queue; if that is not
// shown, by the entries of all queues that have its name, and otherwise by its own.
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
			// If e is not in byQueue, yet or any more, all has its queue's pools already.
			if !slices.Contains(all, p) {
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
