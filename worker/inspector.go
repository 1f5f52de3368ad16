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
// another type. SnapshotKey and Keys of [KeyFailing] ask the queue, which may take seconds if its
// server does not answer.
type Inspector struct {
	// Queue has the methods of the queue whose keys the pool handles.
	Queue       operate.Inspector
	Stats       func() Stats
	SnapshotKey func(key any) KeySnapshot[any]
	// Keys yields all keys in that state, of failing ones 10,000 at most, in the order of Snapshot's lists.
	Keys func(state KeyState) iter.Seq[KeySnapshot[any]]
	// Busiest is Busiest of [Snapshot].
	Busiest func(limit int) []BusyKey[any]
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
	return Inspector{
		Queue:       operate.Inspect[T](t.queue),
		Stats:       t.Stats,
		SnapshotKey: func(key any) KeySnapshot[any] { return untyped(t.SnapshotKey(typed[T](key))) },
		Keys:        t.keysIn,
		Busiest: func(limit int) []BusyKey[any] {
			return converted(t.busiestKeys(limit), func(k BusyKey[T]) BusyKey[any] {
				return BusyKey[any]{k.Key, k.Calls, k.Share, k.Causes}
			})
		},
		Cancel:  func(key any) bool { return t.Cancel(typed[T](key)) },
		Forget:  func(key any) { t.Forget(typed[T](key)) },
		Release: func(key any) bool { return t.Release(typed[T](key)) },
		Wedged:  t.Wedged,
	}
}

// keysIn is Inspector.Keys. A key may leave the state while the others are read: it is yielded as it was.
func (t *Tracker[T]) keysIn(state KeyState) iter.Seq[KeySnapshot[any]] {
	var keys []KeySnapshot[T]
	switch state {
	case KeyRunning:
		for _, k := range t.runningKeys(math.MaxInt) {
			keys = append(keys, KeySnapshot[T]{Key: k.Key, Running: &k})
		}
	case KeyOnHold:
		for _, k := range t.keysOnHold(math.MaxInt) {
			keys = append(keys, KeySnapshot[T]{Key: k.Key, OnHold: &k})
		}
	case KeyFailing:
		for _, k := range t.failingKeys(maxFailing) {
			keys = append(keys, KeySnapshot[T]{Key: k.Key, Failing: &k})
		}
	case KeyGivenUp:
		for _, k := range t.lastGivenUp(math.MaxInt) {
			keys = append(keys, KeySnapshot[T]{Key: k.Key, GivenUp: &k})
		}
	default:
		panic(fmt.Sprintf("worker: no keys of a pool are %q", state))
	}
	return func(yield func(KeySnapshot[any]) bool) {
		for _, k := range keys {
			t.addKnown(&k)
			if !yield(untyped(k)) {
				return
			}
		}
	}
}

// untyped returns k with its key as an any.
func untyped[T comparable](k KeySnapshot[T]) KeySnapshot[any] {
	var (
		running *RunningKey[any]
		onHold  *OnHoldKey[any]
	)
	if r := k.Running; r != nil {
		running = &RunningKey[any]{r.Key, r.Attempt, r.Started, r.Duration, r.Stuck, r.Canceled, r.Stack}
	}
	if h := k.OnHold; h != nil {
		onHold = &OnHoldKey[any]{h.Key, h.Reason, h.Since, h.Until}
	}
	failed := func(f *FailedKey[T]) *FailedKey[any] {
		if f == nil {
			return nil
		}
		return &FailedKey[any]{f.Key, f.Attempt, f.Since, f.Err, f.Time, f.NextTry}
	}
	return KeySnapshot[any]{k.Key, running, onHold, failed(k.Failing), failed(k.GivenUp), k.Causes, k.AtOnce,
		k.MaxAttempts}
}

// typed returns key as a T. It panics if key is of another type.
func typed[T comparable](key any) (k T) {
	if key == nil && any(k) == nil {
		return k // T is an interface type, and a nil has no type to assert.
	}
	return key.(T)
}
