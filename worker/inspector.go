package worker

import (
	"fmt"
	"iter"
	"math"
	"time"
)

// InspectorProvider is what a [workqueue.MetricsProvider] implements, beside [workqueue.StatsProvider], to
// discover pools. If it also has a method PoolHistogramBounds() []float64, these are the bounds of the
// buckets, in seconds, of the pools' Durations.
type InspectorProvider interface {
	// InspectPool is called when Run begins, once for each pool with a name. Several pools may have the same
	// one. The functions of i may be called at any time. Snapshot, SnapshotKey and Keys of [KeyFailing] ask the
	// queue: if its server does not answer, for a few seconds at most. When Stats.Ended is set, nothing changes
	// any more, and i should be dropped: until then it keeps the pool in memory.
	InspectPool(name string, i Inspector)
}

// KeyState is a state of keys that a pool knows: see Keys of [Inspector].
type KeyState string

// The states of the keys that a pool knows. A key can be in several of them.
const (
	KeyRunning KeyState = "running"
	KeyOnHold  KeyState = "on_hold"
	KeyFailing KeyState = "failing"
	KeyGivenUp KeyState = "given_up"
)

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
	// Keys yields all keys in that state, of failing ones 10,000 at most, in the order of the lists in
	// Snapshot. Each comes with what the pool knows of it.
	Keys func(state KeyState) iter.Seq[KeySnapshot[any]]
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
		Keys:        t.keysIn,
		Cancel:      func(key any) bool { return t.Cancel(typed[T](key)) },
		Forget:      func(key any) { t.Forget(typed[T](key)) },
		Release:     func(key any) bool { return t.Release(typed[T](key)) },
		Wedged:      t.Wedged,
	}
}

// keysIn is Inspector.Keys. A key may leave the state while the others are read: it is yielded as it was.
func (t *Tracker[T]) keysIn(state KeyState) iter.Seq[KeySnapshot[any]] {
	show := func(key T) any { return key }
	var keys []KeySnapshot[any]
	switch state {
	case KeyRunning:
		keys = converted(runningKeys(t, math.MaxInt, show), func(k RunningKey[any]) KeySnapshot[any] {
			return KeySnapshot[any]{Key: k.Key, Running: &k}
		})
	case KeyOnHold:
		keys = converted(keysOnHold(t, math.MaxInt, show), func(k OnHoldKey[any]) KeySnapshot[any] {
			return KeySnapshot[any]{Key: k.Key, OnHold: &k}
		})
	case KeyFailing:
		keys = converted(failingKeys(t, maxFailing, show), func(k FailedKey[any]) KeySnapshot[any] {
			return KeySnapshot[any]{Key: k.Key, Failing: &k}
		})
	case KeyGivenUp:
		keys = converted(lastGivenUp(t, math.MaxInt, show), func(k FailedKey[any]) KeySnapshot[any] {
			return KeySnapshot[any]{Key: k.Key, GivenUp: &k}
		})
	default:
		panic(fmt.Sprintf("worker: no keys of a pool are %q", state))
	}
	return func(yield func(KeySnapshot[any]) bool) {
		for _, k := range keys {
			addKnown(&k, t, typed[T](k.Key))
			if !yield(k) {
				return
			}
		}
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
