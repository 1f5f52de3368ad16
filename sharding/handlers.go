package sharding

import (
	"context"
	"reflect"
	"sync"
	"sync/atomic"
)

// cells are the keys of one slot that are being handled, as tokens: numbers that are not zero, and almost
// always differ for different keys. They fill a cache line. More keys than that have a chain of cells.
//
// Cells need no lock. A key is put before the slot's state is read, and the state is set before the cells are
// counted, so a member that has made a slot stop sees each key that was handed out before.
type cells struct {
	tokens [7]atomic.Uint64
	next   atomic.Pointer[cells]
}

func (c *cells) put(token uint64) {
	for ; ; c = c.orNext() {
		for i := range c.tokens {
			if t := &c.tokens[i]; t.Load() == 0 && t.CompareAndSwap(0, token) {
				return
			}
		}
	}
}

func (c *cells) orNext() *cells {
	if c.next.Load() == nil {
		c.next.CompareAndSwap(nil, new(cells))
	}
	return c.next.Load()
}

// remove takes one of the tokens out. It does nothing if there is none.
func (c *cells) remove(token uint64) {
	for ; c != nil; c = c.next.Load() {
		for i := range c.tokens {
			if t := &c.tokens[i]; t.Load() == token && t.CompareAndSwap(token, 0) {
				return
			}
		}
	}
}

func (c *cells) has(token uint64) bool {
	for ; c != nil; c = c.next.Load() {
		for i := range c.tokens {
			if c.tokens[i].Load() == token {
				return true
			}
		}
	}
	return false
}

func (c *cells) len() (n int) {
	for ; c != nil; c = c.next.Load() {
		for i := range c.tokens {
			if c.tokens[i].Load() != 0 {
				n++
			}
		}
	}
	return n
}

func (m *Member) isBusy(slot int) bool { return m.handlers(slot) > 0 }

func (m *Member) handlers(slot int) (n int) {
	for _, q := range *m.queues.Load() {
		n += q.handlers(slot)
	}
	return n
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

// holding is a time during which handlers of a slot may run. Their contexts end with it.
type holding struct {
	epoch int64
	// cause is why the holding has ended, if it has. leases has its *lease of handlers.
	cause  atomic.Pointer[error]
	leases sync.Map
	// shared is a lease that all handlers with the same parent context share: it allocates nothing.
	shared atomic.Pointer[lease]
	// onHold is the lease of all keys on hold, or nil. It also ends when the slot is to move.
	onHold atomic.Pointer[lease]
}

// lease is a context that ends with a holding. Leases of keys on hold have no parent.
type lease struct {
	context.Context
	parent context.Context
	end    context.CancelCauseFunc
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

// end ends the holding and its leases with that cause, unless it has ended already.
func (h *holding) end(cause error) {
	h.cause.CompareAndSwap(nil, &cause)
	h.leases.Range(func(l, _ any) bool {
		l.(*lease).end(cause)
		return true
	})
	h.endOnHold(cause)
}

// leaseOnHold returns the context of keys on hold.
func (h *holding) leaseOnHold() context.Context {
	for {
		if l := h.onHold.Load(); l != nil {
			return l
		}
		ctx, end := context.WithCancelCause(context.Background())
		h.onHold.CompareAndSwap(nil, &lease{Context: ctx, end: end})
	}
}

// endOnHold ends the context of keys on hold. Those that come later have another one.
func (h *holding) endOnHold(cause error) {
	if l := h.onHold.Swap(nil); l != nil {
		l.end(cause)
	}
}

// lease returns a context from ctx that ends with the holding.
func (h *holding) lease(ctx context.Context) (context.Context, context.CancelFunc) {
	if l := h.shared.Load(); l != nil && l.parent == ctx {
		return l, noRelease
	}
	leased, end := context.WithCancelCause(context.WithValue(ctx, fenceKey{}, h.epoch))
	l := &lease{leased, ctx, end}
	if !reflect.ValueOf(ctx).Comparable() {
		l.parent = nil // == would panic.
	}
	h.leases.Store(l, nil)
	if cause := h.cause.Load(); cause != nil { // after the Store
		end(*cause)
	}
	if h.shared.CompareAndSwap(nil, l) {
		return l, noRelease // It is there for the next one.
	}
	return l, func() {
		h.leases.Delete(l)
		end(nil)
	}
}

func noRelease() {}

func (q *queue[T]) Lease(ctx context.Context, key T) (context.Context, context.CancelFunc) {
	_ = q.leased.Load() || q.leased.CompareAndSwap(false, true) // for Done
	slot, token := q.locate(key)
	if !q.cells[slot].has(token) {
		return ctx, noRelease
	}
	return q.member.holdingOf(slot).lease(ctx)
}

// holdingOf returns the holding of the slot, or one that has ended.
func (m *Member) holdingOf(slot int) *holding {
	if m.expired() {
		m.updateSlots() // The timer is late.
	}
	h := m.slots[slot].holding.Load()
	if h == nil {
		h = new(holding)
		h.end(ErrNotHeld)
	}
	return h
}

// LeaseHeld is that of [leasing.Leaser]: its context also ends when the slot is to move. So keys on hold do
// not delay a handover. It takes nothing from ctx, and the keys of a slot share one context.
func (q *queue[T]) LeaseHeld(ctx context.Context, key T) (context.Context, context.CancelFunc) {
	slot, token := q.locate(key)
	if !q.cells[slot].has(token) {
		return ctx, noRelease
	}
	h := q.member.holdingOf(slot)
	leased := h.leaseOnHold()
	// After leaseOnHold: whatever ends that context from now on ends this one, too.
	if cause := h.cause.Load(); cause != nil {
		h.endOnHold(*cause)
	} else if q.member.state(slot) != held {
		h.endOnHold(ErrHandover)
	}
	return leased, noRelease
}

func (q *queue[T]) handlers(slot int) int { return q.cells[slot].len() }
