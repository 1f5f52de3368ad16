package workqueue

import "iter"

// Inspector shows a queue to tools, such as package debug, that do not know the type of its keys. Add and Remove panic
// if the key is of another type.
type Inspector struct {
	// Queue is the queue itself, to recognize it by.
	Queue any
	// Below is the queue that the program has put this one on top of, so that tools show only one of them. It is
	// nil if the queue has made its lower layers itself.
	Below any
	// Stats are the queue's numbers, as [Extended] has them. A queue that lacks them has only Queued and
	// ShuttingDown.
	Stats func() Stats
	// Snapshot is that of [Extended]. It is nil if the queue lacks it.
	Snapshot func(limit int) Snapshot[any]
	// SnapshotKey and SnapshotKeys are those of [KeyReader]. They are nil if the queue is none.
	SnapshotKey  func(key any) (KeySnapshot[any], bool)
	SnapshotKeys func() iter.Seq[KeySnapshot[any]]
	// Add is the queue's own.
	Add func(key any)
	// Remove takes a key out of the queue and reports whether it was there. It is nil unless the queue is a
	// [KeyRemover].
	Remove func(key any) bool
	// Pause and Resume are the queue's own. They are nil if it cannot be paused.
	Pause, Resume func()
}

// InspectorProvider is a [StatsProvider] that looks at keys, too.
type InspectorProvider interface {
	StatsProvider
	// InspectQueue is called once for each queue that is made with that name. For a queue of several layers it
	// is called for the outermost one. What WatchQueue says of its function holds for those of q, except that a
	// Snapshot takes longer.
	InspectQueue(name string, q Inspector)
}

// KeyRemover is a queue from which keys can be removed, as those of package priorityqueue.
type KeyRemover[T comparable] interface {
	// Discard takes key out of the queue and reports whether it was there. A key that a worker holds stays with
	// that worker, but does not come again. Its failures are forgotten.
	Discard(key T) bool
}

// KeyReader is a queue that shows one key, or all of its keys in steps.
type KeyReader[T comparable] interface {
	// SnapshotKey returns what the queue knows of key, and whether key is in the queue. A key that a worker holds
	// or that is queued, and that waits for its time as well, is shown as processing or queued with the Due of its
	// waiting.
	SnapshotKey(key T) (k KeySnapshot[T], found bool)
	// SnapshotKeys yields the keys of every state, in no particular order. It copies a few hundred keys at a time and
	// holds no lock while it yields them. A key that is in two states is yielded once for each. A key that moves
	// meanwhile may be yielded twice, or not at all.
	SnapshotKeys() iter.Seq[KeySnapshot[T]]
}

// Inspect returns an Inspector of q.
func Inspect[T comparable](q TypedInterface[T]) Inspector {
	i := Inspector{
		Queue: q,
		Stats: func() Stats { return Stats{Queued: q.Len(), ShuttingDown: q.ShuttingDown()} },
		Add:   func(key any) { q.Add(key.(T)) },
	}
	if q, ok := q.(interface {
		Stats() Stats
		Snapshot(limit int) Snapshot[T]
	}); ok {
		i.Stats = q.Stats
		i.Snapshot = func(limit int) Snapshot[any] { return q.Snapshot(limit).untyped() }
	}
	if q, ok := q.(KeyReader[T]); ok {
		i.SnapshotKey = func(key any) (KeySnapshot[any], bool) {
			k, found := q.SnapshotKey(key.(T))
			return k.untyped(), found
		}
		i.SnapshotKeys = func() iter.Seq[KeySnapshot[any]] {
			return func(yield func(KeySnapshot[any]) bool) {
				for k := range q.SnapshotKeys() {
					if !yield(k.untyped()) {
						return
					}
				}
			}
		}
	}
	if q, ok := q.(KeyRemover[T]); ok {
		i.Remove = func(key any) bool { return q.Discard(key.(T)) }
	}
	if q, ok := q.(interface {
		Pause()
		Resume()
	}); ok {
		i.Pause, i.Resume = q.Pause, q.Resume
	}
	return i
}

func (k KeySnapshot[T]) untyped() KeySnapshot[any] {
	return KeySnapshot[any]{
		Key: k.Key, State: k.State, Since: k.Since, Due: k.Due, Again: k.Again, Requeues: k.Requeues,
		Priority: k.Priority, Group: k.Group, Blocked: k.Blocked,
	}
}

func (s Snapshot[T]) untyped() Snapshot[any] {
	keys := func(typed []KeySnapshot[T]) []KeySnapshot[any] {
		all := make([]KeySnapshot[any], len(typed))
		for i, k := range typed {
			all[i] = k.untyped()
		}
		return all
	}
	return Snapshot[any]{
		Stats: s.Stats, Processing: keys(s.Processing), Queued: keys(s.Queued), Waiting: keys(s.Waiting), Failing: keys(s.Failing),
		FailingUnlisted: s.FailingUnlisted,
	}
}

// inspected lets an InspectorProvider look at q, the outermost layer of a queue, and returns q.
func inspected[T comparable, Q TypedInterface[T]](q Q, name string, provider MetricsProvider, below any) Q {
	if p, ok := provider.(InspectorProvider); ok {
		i := Inspect[T](q)
		i.Below = below
		p.InspectQueue(name, i)
	}
	return q
}
