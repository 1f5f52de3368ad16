package worker

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"time"
)

// InspectorProvider is what a [workqueue.MetricsProvider] implements, beside [workqueue.StatsProvider], to
// discover pools. If it also has a method PoolHistogramBounds() []float64, these are the bounds of the
// buckets, in seconds, of the pools' Durations.
type InspectorProvider interface {
	// InspectPool is called when Run begins, once for each pool with a name. Several pools may have the same
	// one. The functions of i may be called at any time. Snapshot, SnapshotKey and FailingKeys ask the queue:
	// if its server does not answer, for a few seconds at most. When Stats.Ended is set,
	// nothing changes any more, and i should be dropped: until then it keeps the pool in memory.
	InspectPool(name string, i Inspector)
}

// Inspector shows a pool to tools that do not know the type of its keys. Its functions panic if a key is of
// another type.
type Inspector struct {
	// Queue is the queue whose keys the pool handles, to recognize it by.
	Queue any
	// Stats and Snapshot are those of the pool. Only this Snapshot has the stacks of stuck handlers.
	Stats    func() Stats
	Snapshot func(limit int) Snapshot[any]
	// SnapshotKey returns what the pool knows of one key.
	SnapshotKey func(key any) KeySnapshot[any]
	// FailingKeys and GivenUpKeys return up to limit keys of the lists in Snapshot.
	FailingKeys, GivenUpKeys func(limit int) []FailedKey[any]
	// HeldKeys yields all keys on hold, the one whose hold began first at the front.
	HeldKeys func() iter.Seq[HeldKey[any]]
	// Cancel, Forget and Release are those of the pool.
	Cancel  func(key any) bool
	Forget  func(key any)
	Release func(key any) bool
	// Wedged is the pool's method of that name.
	Wedged func(limit time.Duration) error
	// Pause and Resume are those of the pool. They are nil for a [Tracker], which starts no calls itself.
	Pause  func(d time.Duration)
	Resume func()
}

// Inspector returns an Inspector of the tracker.
func (t *Tracker[T]) Inspector() Inspector {
	show := func(key T) any { return key }
	return Inspector{
		Queue:       t.raw,
		Stats:       t.Stats,
		Snapshot:    func(limit int) Snapshot[any] { return snapshotOf(t, limit, show) },
		SnapshotKey: func(key any) KeySnapshot[any] { return snapshotOfKey(t, typed[T](key), key) },
		FailingKeys: func(limit int) []FailedKey[any] { return failingKeys(t, limit, show) },
		GivenUpKeys: func(limit int) []FailedKey[any] { return lastGivenUp(t, limit, show) },
		HeldKeys:    func() iter.Seq[HeldKey[any]] { return slices.Values(heldKeys(t, math.MaxInt, show)) },
		Cancel:      func(key any) bool { return t.Cancel(typed[T](key)) },
		Forget:      func(key any) { t.Forget(typed[T](key)) },
		Release:     func(key any) bool { return t.Release(typed[T](key)) },
		Wedged:      t.Wedged,
	}
}

// typed returns key as a T. It panics if key is of another type.
func typed[T comparable](key any) T {
	k, ok := key.(T)
	// If T is an interface, nil is a T, but no assertion says so.
	if isNilKey := key == nil && any(k) == nil; !ok && !isNilKey {
		panic(fmt.Sprintf("worker: a key of type %T in a pool whose keys are of type %T", key, k))
	}
	return k
}
