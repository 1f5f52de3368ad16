package worker

import (
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/keyedqueue/workqueue/operate"
)

// InspectorProvider is a [workqueue.MetricsProvider] that discovers pools. It may have a method
// PoolHistogramBounds() []float64, for the buckets of their histograms in seconds.
type InspectorProvider interface {
	// InspectPool is called when Run begins, once for each pool with a name, which need not be unique. i should
	// be dropped when Stats.Ended is set: it keeps the pool in memory.
	InspectPool(name string, i Inspector)
}

// KeyState is a state of keys that a pool knows. A key can be in several of them.
type KeyState string

// The states of keys, see Keys of [Inspector].
const (
	KeyRunning KeyState = "running"
	KeyOnHold  KeyState = "on_hold"
	KeyFailing KeyState = "failing"
	KeyGivenUp KeyState = "given_up"
)

// Inspector has a pool's methods for tools that do not know the type of its keys. They panic on a key of
// another type. Snapshot, SnapshotKey and Keys of [KeyFailing] ask the queue, which may take seconds if its
// server does not answer.
type Inspector struct {
	// Queue has the methods of the queue whose keys the pool handles.
	Queue       operate.Inspector
	Stats       func() Stats
	Snapshot    func(limit int) Snapshot[any]
	SnapshotKey func(key any) KeySnapshot[any]
	// Keys yields all keys in that state, of failing ones 10,000 at most, in the order of Snapshot's lists.
	Keys    func(state KeyState) iter.Seq[KeySnapshot[any]]
	Cancel  func(key any) bool
	Forget  func(key any)
	Release func(key any) bool
	Wedged  func(limit time.Duration) error
	// Pause and Resume are nil for a [Tracker], which starts no calls itself.
	Pause  func(d time.Duration)
	Resume func()
}

// Inspector returns an Inspector of the tracker.
func (t *Tracker[T]) Inspector() Inspector {
	show := func(key T) any { return key }
	return Inspector{
		Queue:       operate.Inspect[T](t.queue),
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
func typed[T comparable](key any) (k T) {
	if key == nil && any(k) == nil {
		return k // T is an interface type, and a nil has no type to assert.
	}
	return key.(T)
}
