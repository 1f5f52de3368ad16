package debug

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// entry is what the list has a row for: a queue, with the pools that have its name, or pools whose queue is not
// known.
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

	// pools are those with its name, if queue is zero. They are guarded by Handler.mu.
	pools []*worker.Inspector

	mu struct {
		sync.Mutex
		// found are keys that were searched for, by their texts and ids: to look them up again needs no search.
		found map[[2]string][]any
	}
}

func newEntry(id, name string) *entry {
	return &entry{id: id, name: name, queueName: name, asking: make(chan struct{}, 1)}
}

func (e *entry) hasQueue() bool { return e.queue.Stats != nil }

func (h *Handler) register(name string, q workqueue.Inspector) (unregister func()) {
	e := newEntry("", name)
	e.queue = q
	e.queueName = h.readOne(context.Background(), e, 0).stats.Name
	e.name = short(cmp.Or(name, e.queueName), maxName)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.closed {
		return func() {}
	}
	for _, old := range []any{e.queue.Queue, e.queue.Below} {
		if shown := h.mu.byQueue[hashable(old)]; shown != nil {
			h.removeLocked(shown)
		}
	}
	// The id is the name, or one that is like it.
	for e.id = e.name; e.id == "" || h.mu.queues[e.id] != nil; e.id = fmt.Sprintf("%s~%d", e.name, h.mu.madeUp) {
		h.mu.madeUp++
	}
	h.mu.queues[e.id] = e
	if key := hashable(e.queue.Queue); key != nil {
		h.mu.byQueue[key] = e
	}
	h.startLocked()
	return func() { h.remove(e) }
}

func (h *Handler) remove(e *entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.removeLocked(e)
	h.stopIfEmptyLocked()
}

func (h *Handler) removeLocked(e *entry) {
	if h.mu.queues[e.id] != e {
		return
	}
	delete(h.mu.queues, e.id)
	if key := hashable(e.queue.Queue); h.mu.byQueue[key] == e {
		delete(h.mu.byQueue, key)
	}
}

// addPool shows a pool. Only the Snapshot of p is set if the program knows no more of it.
func (h *Handler) addPool(name string, p worker.Inspector) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.closed {
		return
	}
	e := h.mu.pools[name]
	if e == nil {
		shown := short(name, maxName)
		// The prefix leaves the id to a queue with this name, which may come later.
		e = newEntry("pool "+shown, shown)
		e.queueName = name
		h.mu.pools[name] = e
	}
	e.pools = append(e.pools, &p)
	h.startLocked()
}

func (h *Handler) removePool(name string, p *worker.Inspector) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.mu.pools[name]; e != nil {
		e.pools = slices.DeleteFunc(e.pools, func(q *worker.Inspector) bool { return q == p })
		if len(e.pools) == 0 {
			delete(h.mu.pools, name)
			h.stopIfEmptyLocked()
		}
	}
}

// entries returns the queues, and an entry for the pools of each name that no queue has.
func (h *Handler) entries() []*entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*entry, 0, len(h.mu.queues)+len(h.mu.pools))
	withQueue := make(map[string]bool, len(h.mu.pools))
	for _, e := range h.mu.queues {
		all = append(all, e)
		if len(h.mu.pools) > 0 {
			withQueue[e.name], withQueue[e.queueName] = true, true
		}
	}
	for name, e := range h.mu.pools {
		if !withQueue[name] {
			all = append(all, e)
		}
	}
	return all
}

// find returns the entry with that id, or nil.
func (h *Handler) find(id string) *entry {
	for _, e := range h.entries() {
		if e.id == id {
			return e
		}
	}
	return nil
}

// poolsOf returns the pools with e's name or its queue's, except those that handle the keys of another queue with that name.
func (h *Handler) poolsOf(e *entry) (all []*worker.Inspector) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range slices.Compact([]string{e.name, e.queueName}) {
		if named := h.mu.pools[name]; named != nil {
			for _, p := range named.pools {
				of := h.mu.byQueue[hashable(p.Queue)]
				if of == nil || of == e || !e.hasQueue() {
					all = append(all, p)
				}
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
