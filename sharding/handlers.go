package sharding

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// cells are the keys of one slot that are being handled, as tokens: numbers that differ for different keys, and are not
// zero. They fill a cache line. More keys than that have a chain of cells.
//
// Keys are put and taken out without a lock. A key is put before the slot's state is read, and the state is set before
// cells are looked at, so a member that has made a slot stop sees each key that was handed out before.
type cells struct {
	tokens [7]atomic.Uint64
	next   atomic.Pointer[cells]
}

func (c *cells) put(token uint64) *atomic.Uint64 {
	for ; ; c = c.orNext() {
		for i := range c.tokens {
			if t := &c.tokens[i]; t.Load() == 0 && t.CompareAndSwap(0, token) {
				return t
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
	for s := range m.slots {
		if m.isBusy(s) {
			return true
		}
	}
	return false
}

// holding is the time during which a member holds a slot. The contexts of the slot's handlers end with it.
type holding struct {
	epoch int64

	// shared is a lease that all handlers with the same parent context share: it allocates nothing.
	shared atomic.Pointer[lease]

	mu     sync.Mutex // guards what follows
	cause  error      // why the holding has ended, if it has
	leases map[*lease]struct{}
}

// lease is a context that ends with a holding.
type lease struct {
	context.Context
	epoch  int64
	parent context.Context
	cancel context.CancelCauseFunc
}

type epochKey struct{}

func (l *lease) Value(key any) any {
	if _, ok := key.(epochKey); ok {
		return l
	}
	return l.Context.Value(key)
}

// Epoch returns a number that grows each time that the key's slot gets another holder, and true, if ctx is a handler's
// context (see [Queue.Lease]). A handler that stores it beside what it writes, and refuses to write where a greater one
// is stored, cannot overwrite the work of a later holder although its process was stopped and does not know yet that it
// has lost its lease. It starts at about the milliseconds since 1970 when the group is new. For another context,
// Epoch returns 0 and false.
func Epoch(ctx context.Context) (int64, bool) {
	l, ok := ctx.Value(epochKey{}).(*lease)
	if !ok {
		return 0, false
	}
	return l.epoch, true
}

func newHolding(epoch int64) *holding {
	return &holding{epoch: epoch, leases: make(map[*lease]struct{})}
}

func noRelease() {}

// lease returns a context from ctx that ends with the holding.
func (h *holding) lease(ctx context.Context) (context.Context, context.CancelFunc) {
	if l := h.shared.Load(); l != nil && l.parent == ctx {
		return l, noRelease
	}
	l := newLease(ctx, h.epoch)
	first := h.shared.CompareAndSwap(nil, l)
	if cause := h.add(l); cause != nil {
		l.cancel(cause)
	}
	if first {
		return l, noRelease // It is there for the next one.
	}
	return l, func() { h.release(l) }
}

func newLease(ctx context.Context, epoch int64) *lease {
	l := &lease{epoch: epoch, parent: ctx}
	l.Context, l.cancel = context.WithCancelCause(ctx)
	return l
}

// add makes l end with the holding. It returns the cause if that has ended already.
func (h *holding) add(l *lease) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cause == nil {
		h.leases[l] = struct{}{}
	}
	return h.cause
}

func (h *holding) release(l *lease) {
	h.mu.Lock()
	delete(h.leases, l)
	h.mu.Unlock()
	l.cancel(context.Canceled)
}

func (h *holding) end(cause error) {
	h.mu.Lock()
	leases := h.leases
	if h.cause == nil {
		h.cause = cause
	}
	h.leases = nil
	h.mu.Unlock()
	for l := range leases {
		l.cancel(cause)
	}
}

func (q *queue[T]) Lease(ctx context.Context, key T) (context.Context, context.CancelFunc) {
	slot, token := q.locate(key)
	if !q.cells[slot].has(token) {
		return ctx, noRelease
	}
	m := q.member
	if m.now() >= time.Duration(m.validUntil.Load()) {
		m.look() // The timer is late.
	}
	if h := m.slots[slot].holding.Load(); h != nil {
		return h.lease(ctx)
	}
	l := newLease(ctx, 0)
	l.cancel(ErrNotHeld)
	return l, noRelease
}

func (q *queue[T]) handlers(slot int) int { return q.cells[slot].len() }
