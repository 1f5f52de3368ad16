package worker

import (
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/keyedqueue/workqueue/operate"
)

// InspectorProvider is a [workqueue.MetricsProvider] that discovers pools. A method PoolHistogramBounds()
// []float64 may give the buckets of their histograms, in seconds.
type InspectorProvider interface {
	// InspectPool is called when Run of a pool with a name begins. The name need not be unique. Drop i when
	// Stats.Ended is set: it keeps the pool in memory.
	InspectPool(name string, i Inspector)
}

// KeyState is a state of keys in a pool, see Keys of [Inspector]. A key can be in several.
type KeyState string

// The states of keys.
const (
	KeyRunning KeyState = "running"
	KeyOnHold  KeyState = "on_hold"
	KeyFailing KeyState = "failing"
	KeyGivenUp KeyState = "given_up"
)

// Inspector has a pool's methods for tools that do not know the type of its keys. They panic on a key of
// another type. SnapshotKey and Keys of [KeyFailing] ask the queue, which may take seconds if its server does
// not answer.
type Inspector struct {
	// Queue has the methods of the pool's queue.
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
		SnapshotKey: func(key any) KeySnapshot[any] { return untyped(t.SnapshotKey(key.(T))) },
		Keys:        t.keysIn,
		Busiest: func(limit int) []BusyKey[any] {
			return converted(t.busiestKeys(limit), func(k BusyKey[T]) BusyKey[any] {
				return BusyKey[any]{Key: k.Key, Calls: k.Calls, Share: k.Share, Causes: k.Causes}
			})
		},
		Cancel:  func(key any) bool { return t.Cancel(key.(T)) },
		Forget:  func(key any) { t.Forget(key.(T)) },
		Release: func(key any) bool { return t.Release(key.(T)) },
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
		running = &RunningKey[any]{Key: r.Key, Attempt: r.Attempt, Started: r.Started, Duration: r.Duration,
			Stuck: r.Stuck, Canceled: r.Canceled, Stack: r.Stack}
	}
	if h := k.OnHold; h != nil {
		onHold = &OnHoldKey[any]{Key: h.Key, Reason: h.Reason, Since: h.Since, Until: h.Until}
	}
	failed := func(f *FailedKey[T]) *FailedKey[any] {
		if f == nil {
			return nil
		}
		return &FailedKey[any]{Key: f.Key, Attempt: f.Attempt, Since: f.Since, Err: f.Err, Time: f.Time,
			NextTry: f.NextTry}
	}
	return KeySnapshot[any]{Key: k.Key, Running: running, OnHold: onHold, Failing: failed(k.Failing),
		GivenUp: failed(k.GivenUp), Causes: k.Causes, AtOnce: k.AtOnce, MaxAttempts: k.MaxAttempts}
}
