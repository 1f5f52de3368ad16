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
	*perturbed[K]
	leasing.Leaser[K] // the queue below, or unleased
}

// Lease is the lease of the queue below, which a disturbance may end early.
func (q leasedQueue[K]) Lease(ctx context.Context, key K) (context.Context, context.CancelFunc) {
	ctx, release := q.Leaser.Lease(ctx, key)
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
	ctx, release := q.Leaser.LeaseOnHold(ctx, key)
	return q.lease(ctx, key, release)
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

// unleased is what a queue without leases says of them.
type unleased[K comparable] struct{ leasing.UnimplementedLeaser[K] }

func (unleased[K]) Lease(ctx context.Context, _ K) (context.Context, context.CancelFunc) {
	return ctx, func() {}
}

func (u unleased[K]) LeaseOnHold(ctx context.Context, key K) (context.Context, context.CancelFunc) {
	return u.Lease(ctx, key)
}

func (unleased[K]) Facts() []operate.Fact { return nil }
func (unleased[K]) Below() any            { return nil }
