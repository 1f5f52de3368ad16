package sharding

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// running counts the calls of handlers for each key of one slot. A key is put before the slot's state is
// read, and the state is set before the keys are counted, so a member that has made a slot stop sees each key
// that was handed out before. A key counts twice if it is handed out while its last Done still runs.
type running[T comparable] struct {
	mu   sync.Mutex
	keys map[T]int // never has a zero
}

func (r *running[T]) put(key T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.keys == nil {
		r.keys = make(map[T]int)
	}
	r.keys[key]++
}

// remove does nothing for a key that is not there.
func (r *running[T]) remove(key T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.keys[key] > 1 {
		r.keys[key]--
	} else {
		delete(r.keys, key)
	}
}

func (r *running[T]) has(key T) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.keys[key] > 0
}

func (r *running[T]) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.keys)
}

// isBusy reports whether any key of the slot is being handled.
func (m *Member) isBusy(slot int) bool {
	return slices.ContainsFunc(*m.queues.Load(), func(q memberQueue) bool { return q.handlers(slot) > 0 })
}

// anyBusy reports whether any key is being handled.
func (m *Member) anyBusy() bool {
	for i := range m.slots {
		if m.isBusy(i) {
			return true
		}
	}
	return false
}

// tenure is a time for which the member has a slot. Handlers' contexts end with it.
type tenure struct {
	epoch int64
	// cause is why the tenure has ended, if it has. contexts has the *handlerContext of each handler, and of
	// each key on hold.
	cause    atomic.Pointer[error]
	contexts sync.Map
}

// handlerContext is a context that ends with a tenure and, if its key is on hold, when the slot is to move.
type handlerContext struct {
	context.Context
	end    context.CancelCauseFunc
	onHold bool
}

type fenceKey struct{}

// Fence returns a number that grows each time that the key's slot gets another holder, and true, if ctx is a
// handler's context (see Lease of a [Queue]). A handler that stores it beside what it writes, and refuses to
// write where a greater one is stored, cannot overwrite the work of a later holder although its process was
// stopped and does not know yet that it has lost its lease. It starts at about the milliseconds since 1970
// when the group is new. For another context, Fence returns 0 and false.
func Fence(ctx context.Context) (int64, bool) {
	fence, ok := ctx.Value(fenceKey{}).(int64)
	return fence, ok
}

// end ends the tenure and its contexts with that cause, unless it has ended already.
func (t *tenure) end(cause error) {
	t.cause.CompareAndSwap(nil, &cause)
	t.endContexts(cause, false)
}

// endContexts ends all contexts, or those of keys on hold.
func (t *tenure) endContexts(cause error, onHold bool) {
	t.contexts.Range(func(c, _ any) bool {
		if c := c.(*handlerContext); c.onHold || !onHold {
			c.end(cause)
		}
		return true
	})
}

// contextFrom returns a context from ctx that ends with the tenure.
func (t *tenure) contextFrom(ctx context.Context, onHold bool) (context.Context, context.CancelFunc) {
	fenced, end := context.WithCancelCause(context.WithValue(ctx, fenceKey{}, t.epoch))
	c := &handlerContext{fenced, end, onHold}
	t.contexts.Store(c, nil)
	if cause := t.cause.Load(); cause != nil { // after the Store
		end(*cause)
	}
	return c, func() {
		t.contexts.Delete(c)
		end(nil)
	}
}

func (q *queue[T]) Lease(ctx context.Context, key T) (context.Context, context.CancelFunc) {
	if !q.leased.Load() {
		q.leased.Store(true) // Done logs otherwise.
	}
	return q.lease(ctx, key, false)
}

// LeaseOnHold returns a context that also ends when the slot is to move. So keys on hold do not delay a
// handover.
func (q *queue[T]) LeaseOnHold(ctx context.Context, key T) (context.Context, context.CancelFunc) {
	return q.lease(ctx, key, true)
}

func (q *queue[T]) lease(ctx context.Context, key T, onHold bool) (context.Context, context.CancelFunc) {
	slot := q.slotOf(key)
	if !q.running[slot].has(key) {
		return ctx, func() {}
	}
	t := q.member.tenureOf(slot)
	leased, release := t.contextFrom(ctx, onHold)
	if onHold && q.member.state(slot) != serving { // after contextFrom: a later stop ends leased as well
		t.endContexts(ErrHandover, true)
	}
	return leased, release
}

// tenureOf returns the tenure of the slot, or one that has ended.
func (m *Member) tenureOf(slot int) *tenure {
	if m.expired() {
		m.expire() // The timer is late.
	}
	t := m.slots[slot].tenure.Load()
	if t == nil {
		t = new(tenure)
		t.end(ErrNotHeld)
	}
	return t
}

func (q *queue[T]) handlers(slot int) int { return q.running[slot].len() }
