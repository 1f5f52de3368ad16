package workqueue

import (
	"context"
	"iter"
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
)

// QueueInspector is a [StatsProvider] that looks at the queues themselves as well.
type QueueInspector interface {
	StatsProvider
	// InspectQueue is WatchQueue for each layer of a queue that has a name, the inner one first: q itself, to
	// recognize it by, and q for keys of any type, from [Untyped] or operate.Untyped.
	InspectQueue(name string, q any, untyped Extended[any])
}

// inspect lets a QueueInspector look at q.
func inspect[T comparable](q TypedInterface[T], name string, provider MetricsProvider) {
	extended, isExtended := q.(Extended[T])
	if p, ok := provider.(QueueInspector); ok && isExtended {
		p.InspectQueue(name, q, Untyped(extended))
	}
}

// Untyped returns q for tools that do not know T. It panics on a key of another type. It is an
// [ExtendedRateLimiting] if q is. Of an operate.Operable it hides Pause and Remove: use operate.Untyped.
func Untyped[T comparable](q Extended[T]) Extended[any] {
	if q, ok := q.(ExtendedRateLimiting[T]); ok {
		return untypedRateLimiting[T]{untyped[T]{q}, q}
	}
	return untyped[T]{q}
}

// untyped has the methods of Extended that T stands in. The others are those of the queue.
type untyped[T comparable] struct{ Extended[T] }

func (q untyped[T]) mustEmbed(any) {}

func (q untyped[T]) Add(key any)               { q.Extended.Add(keytable.Typed[T](key)) }
func (q untyped[T]) AddCause(key any, c Cause) { q.Extended.AddCause(keytable.Typed[T](key), c) }
func (q untyped[T]) Causes(key any) Causes     { return q.Extended.Causes(keytable.Typed[T](key)) }
func (q untyped[T]) AddedAgain(key any) <-chan struct{} {
	return q.Extended.AddedAgain(keytable.Typed[T](key))
}
func (q untyped[T]) AddedAt(key any) time.Time     { return q.Extended.AddedAt(keytable.Typed[T](key)) }
func (q untyped[T]) PutOnHold(key any)             { q.Extended.PutOnHold(keytable.Typed[T](key)) }
func (q untyped[T]) Done(key any)                  { q.Extended.Done(keytable.Typed[T](key)) }
func (q untyped[T]) Get() (key any, shutdown bool) { return q.Extended.Get() }

func (q untyped[T]) GetContext(ctx context.Context) (any, error) { return q.Extended.GetContext(ctx) }

func (q untyped[T]) Next(ctx context.Context) (HandOut[any], error) {
	h, err := q.Extended.Next(ctx)
	return HandOut[any]{h.Key, h.Failures, h.Priority, h.AddedAt, h.HasCauses, h.AtOnce}, err
}

func (q untyped[T]) DropQueued() (keys []any) {
	for _, key := range q.Extended.DropQueued() {
		keys = append(keys, key)
	}
	return keys
}

func (q untyped[T]) Snapshot(limit int) Snapshot[any] {
	s := q.Extended.Snapshot(limit)
	return Snapshot[any]{
		Stats: s.Stats, Processing: untypedKeys(s.Processing), Queued: untypedKeys(s.Queued),
		Waiting: untypedKeys(s.Waiting), Failing: untypedKeys(s.Failing),
	}
}

func (q untyped[T]) SnapshotKey(key any) (KeySnapshot[any], bool) {
	k, found := q.Extended.SnapshotKey(keytable.Typed[T](key))
	return k.untyped(), found
}

func (q untyped[T]) SnapshotKeys() iter.Seq[KeySnapshot[any]] {
	return keytable.Map(q.Extended.SnapshotKeys(), KeySnapshot[T].untyped)
}

// untypedRateLimiting is untyped of a rate-limiting queue.
type untypedRateLimiting[T comparable] struct {
	untyped[T]
	q ExtendedRateLimiting[T]
}

func (q untypedRateLimiting[T]) AddAfter(key any, d time.Duration) {
	q.q.AddAfter(keytable.Typed[T](key), d)
}
func (q untypedRateLimiting[T]) AddRateLimited(key any) { q.q.AddRateLimited(keytable.Typed[T](key)) }
func (q untypedRateLimiting[T]) Forget(key any)         { q.q.Forget(keytable.Typed[T](key)) }
func (q untypedRateLimiting[T]) NumRequeues(key any) int {
	return q.q.NumRequeues(keytable.Typed[T](key))
}
func (q untypedRateLimiting[T]) Failures(key any) Failures {
	return q.q.Failures(keytable.Typed[T](key))
}

func (q untypedRateLimiting[T]) FailingKeys(limit int) []KeySnapshot[any] {
	return untypedKeys(q.q.FailingKeys(limit))
}

func (q untypedRateLimiting[T]) Fail(ctx context.Context, key any, f Failure) (Retry, error) {
	return q.q.Fail(ctx, keytable.Typed[T](key), f)
}

func untypedKeys[T comparable](keys []KeySnapshot[T]) []KeySnapshot[any] {
	all := make([]KeySnapshot[any], len(keys))
	for i, k := range keys {
		all[i] = k.untyped()
	}
	return all
}

func (k KeySnapshot[T]) untyped() KeySnapshot[any] {
	return KeySnapshot[any]{ // Without names, so that none is forgotten.
		k.Key, k.State, k.Since, k.Due, k.Again, k.OnHold, k.Requeues, k.Failures, k.Priority, k.Group, k.Blocked,
		k.Causes,
	}
}
