package handlertest

import (
	"context"
	"time"

	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/operate"
)

// The other interfaces that a perturbed queue may have: for operators, and leases, some of which end early.

// operable is what operators do to the queue below.
type operable[K comparable] struct {
	operate.Operable[K]
	q *perturbed[K]
}

func (o operable[K]) AddWithPriority(key K, priority int, after time.Duration) {
	if after > 0 {
		after += o.q.decide(late, key)
	}
	add := func() { o.Operable.AddWithPriority(key, priority, after) }
	switch {
	case after <= 0:
		o.q.addLate(key, add)
	case !o.q.dead():
		add()
	}
}

type operableQueue[K comparable] struct {
	*perturbed[K]
	operable[K]
}

type operableLeasedQueue[K comparable] struct {
	leasedQueue[K]
	operable[K]
}

func (q operableLeasedQueue[K]) Below() any { return q.operable.Below() }

// leasedQueue is a queue that takes keys away.
type leasedQueue[K comparable] struct {
	leasing.UnimplementedLeaser[K]
	*perturbed[K]
	below leasing.Leaser[K] // nil if the queue below has no leases
}

// Lease is the lease of the queue below, if it has any, which a disturbance may end early.
func (q leasedQueue[K]) Lease(ctx context.Context, key K) (context.Context, context.CancelFunc) {
	release := func() {}
	if q.below != nil {
		ctx, release = q.below.Lease(ctx, key)
	}
	return q.lease(ctx, key, release)
}

// LeaseOnHold is Lease for a key on hold. If the lease ended while the handler ran, so does the hold at once.
func (q leasedQueue[K]) LeaseOnHold(ctx context.Context, key K) (context.Context, context.CancelFunc) {
	q.mu.Lock()
	isLost := q.mu.stale[key] > 0
	q.mu.Unlock()
	if isLost {
		ctx, end := context.WithCancelCause(ctx)
		end(ErrLeaseEnded)
		return ctx, func() {}
	}
	release := func() {}
	if q.below != nil {
		ctx, release = q.below.LeaseOnHold(ctx, key)
	}
	return q.lease(ctx, key, release)
}

// Facts are those of the queue below.
func (q leasedQueue[K]) Facts() (facts []operate.Fact) {
	if q.below != nil {
		facts = q.below.Facts()
	}
	return facts
}

// Below returns what the queue below wraps, or nil.
func (q leasedQueue[K]) Below() (queue any) {
	if q.below != nil {
		queue = q.below.Below()
	}
	return queue
}

// lease ends a lease of key when that is decided.
func (q leasedQueue[K]) lease(ctx context.Context, key K, release func()) (context.Context,
	context.CancelFunc) {
	q.mu.Lock()
	l := q.mu.leases[key]
	if l != nil {
		ctx, l.end = context.WithCancelCause(ctx)
	}
	q.mu.Unlock()
	if l == nil {
		return ctx, release
	}
	// Only now: a worker that does not call Lease would not learn of the end, and its Done would give back what
	// another one holds.
	if l.ends > 0 {
		q.after(l.ends, key, func() { q.endLease(key, l) })
	}
	return ctx, func() {
		q.mu.Lock()
		if l.lost {
			q.mu.stale[key]++ // The Done that follows.
		}
		q.mu.Unlock()
		l.end(nil)
		release()
	}
}
