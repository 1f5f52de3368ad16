package worker

import (
	"iter"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/keytable"
)

// RunningKey is a key whose handler is running.
type RunningKey[T comparable] struct {
	Key T `json:"key"`
	// Attempt is 1, and one more for each failure in a row before this call.
	Attempt int `json:"attempt"`
	// Started is when the call began, and Duration how long ago.
	Started  time.Time     `json:"started"`
	Duration time.Duration `json:"duration_ns"`
	// Stuck reports that the call has taken too long. See Options.StuckAfter.
	Stuck bool `json:"stuck"`
	// Canceled reports that [Pool.Cancel] has ended the call's context.
	Canceled bool `json:"canceled"`
	// Stack is that of the handler's goroutine when it was found stuck, at most 8 KiB of it. OnStuck and
	// [Pool.SnapshotKey] have it; in [Pool.Snapshot], which may list many keys, it is empty.
	Stack string `json:"stack,omitempty"`
}

// Snapshot is what a pool does, for people: copies, read one after the other, Stats and Unanswered last.
type Snapshot[T comparable] struct {
	// Stats count all keys, also those that the lists leave out.
	Stats Stats `json:"stats"`
	// Running are the keys that are being handled, the one that started first at the front.
	Running []RunningKey[T] `json:"running"`
	// Held are the keys that are on hold, the one whose hold began first at the front.
	Held []HeldKey[T] `json:"held"`
	// Failing are the keys whose last call has failed, the last failure first. The errors of 10,000 are kept.
	Failing []FailedKey[T] `json:"failing"`
	// GivenUp are the last keys that were given up, the last one first: Options.KeepGivenUp at most. A key
	// leaves the list when this pool handles it and does not give it up again, and by Forget.
	GivenUp []FailedKey[T] `json:"given_up"`
	// Busiest are the keys with the most calls in the last ten minutes, as keys that come through their own
	// writes: a hundred at most, the one with the most first. Numbers are off by 1 % of all calls at most, and
	// exact if no minute had more than a hundred different keys.
	Busiest []BusyKey[T] `json:"busiest,omitempty"`
	// Unanswered is the key of the oldest change in Stats.OldestUnanswered. It is nil if there is none, and
	// if the queue cannot name it: with priorities or an order of its own it may have queued it behind others.
	Unanswered *UnansweredKey[T] `json:"unanswered,omitempty"`
}

// KeySnapshot is what a pool knows of a key. It holds copies.
type KeySnapshot[T comparable] struct {
	Key T `json:"key"`
	// Running is the running call, or nil.
	Running *RunningKey[T] `json:"running,omitempty"`
	// Held is set while the key is on hold.
	Held *HeldKey[T] `json:"held,omitempty"`
	// Failing is set if the last call has failed and the key is to come again, GivenUp if it was given up.
	Failing *FailedKey[T] `json:"failing,omitempty"`
	GivenUp *FailedKey[T] `json:"given_up,omitempty"`
	// FailedCalls are the first and the last four calls that have failed in a row, the last one last. The pool
	// keeps them of the 10,000 failing keys that failed last and of Options.KeepGivenUp that were given up, 16
	// MiB in all: beyond that, those of failing keys go, the oldest first, and then given-up keys as a whole.
	FailedCalls []FailedCall `json:"failed_calls,omitempty"`
	// Causes are why the running call came.
	Causes workqueue.Causes `json:"causes,omitzero"`
	// AtOnce is how many calls in a row wanted the key again at once. After five the key is slowed down: see
	// [Call.AtOnce].
	AtOnce int `json:"at_once,omitempty"`
	// MaxAttempts is how often the key is tried before it is given up, or 0 without a limit.
	MaxAttempts int `json:"max_attempts,omitempty"`
}

// maxSnapshot bounds the failing keys of a Snapshot, because it asks the queue about each.
const maxSnapshot = 512

// Snapshot returns Stats and up to limit keys of each kind, and at most 512 failing ones. It asks the queue
// about each failing key: one that others have removed or handled is dropped, of any other it shows when it
// comes due. After a second it returns the rest as the pool knows them. Stats may ask for another second.
func (t *Tracker[T]) Snapshot(limit int) Snapshot[T] {
	s := snapshotOf(t, limit, maxSnapshot, func(key T) T { return key })
	for i := range s.Running {
		s.Running[i].Stack = ""
	}
	return s
}

// SnapshotKey returns what the pool knows of one key, after asking the queue. It looks through the workers.
func (t *Tracker[T]) SnapshotKey(key T) KeySnapshot[T] { return snapshotOfKey(t, key, key) }

// What follows is written once for T and for the keys of an [Inspector], which are of type any: show returns
// a key as it is to be shown, and shown is such a key.

// snapshotOf is Snapshot with stacks. It asks the queue about mostFailing keys at most.
func snapshotOf[T, K comparable](t *Tracker[T], limit, mostFailing int, show func(T) K) Snapshot[K] {
	until := time.Now().Add(askFor)
	s := Snapshot[K]{Running: runningKeys(t, limit, show), Held: heldKeys(t, limit, show),
		Failing: []FailedKey[K]{}}
	for e := range keytable.Take(limit, t.stillFailing(until, mostFailing)) {
		k := newFailedKey(show(e.key), e.calls)
		k.NextTry = t.nextTry(until, e.key)
		s.Failing = append(s.Failing, k)
	}
	s.GivenUp = converted(t.withCalls(givenUp, limit), func(e failedEntry[T]) FailedKey[K] {
		return newFailedKey(show(e.key), e.calls)
	})
	s.Busiest = busiestKeys(t, min(limit, maxBusyKeys), show)
	stats, oldest := t.stats()
	if oldest == nil && stats.OldestUnanswered > 0 {
		oldest = t.oldestQueued(stats.OldestUnanswered)
	}
	s.Stats = stats
	if oldest != nil {
		s.Unanswered = &UnansweredKey[K]{show(oldest.Key), oldest.Since}
	}
	return s
}

// failedEntry is a key that fails or was given up, with its calls.
type failedEntry[T comparable] struct {
	key   T
	calls *failedCalls
}

// stillFailing yields those of the last limit failing keys that still fail, the last failure first. Up to the
// time until it asks the queue, and forgets the others.
func (t *Tracker[T]) stillFailing(until time.Time, limit int) iter.Seq[failedEntry[T]] {
	return func(yield func(failedEntry[T]) bool) {
		for _, e := range t.withCalls(failing, limit) {
			fails := time.Now().After(until) || !t.sweepKey(e.key)
			if fails && !yield(e) {
				return
			}
		}
	}
}

// withCalls returns up to limit keys in a trouble whose calls are kept, the last failure first.
func (t *Tracker[T]) withCalls(in trouble, limit int) (all []failedEntry[T]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	rs := &t.mu.records
	for s := rs.keysIn[in].Last(); s != keytable.None && len(all) < limit; s = rs.links.Prev(s) {
		e := rs.table.At(s)
		all = append(all, failedEntry[T]{e.Key, e.Value.calls})
	}
	return all
}

// nextTry asks the queue, up to the time until, when a key comes due. It is zero if the key does not wait.
func (t *Tracker[T]) nextTry(until time.Time, key T) (due time.Time) {
	if time.Now().Before(until) {
		if k, _ := t.queue.SnapshotKey(key); k.State == workqueue.KeyWaiting {
			due = k.Due
		}
	}
	return due
}

// runningKeys returns up to limit keys that are being handled, the one that started first at the front.
func runningKeys[T, K comparable](t *Tracker[T], limit int, show func(T) K) []RunningKey[K] {
	keys := []RunningKey[K]{}
	t.mu.Lock()
	for _, c := range t.mu.running {
		keys = append(keys, newRunningKeyLocked(c, show(c.result.Key)))
	}
	t.mu.Unlock()
	now := t.options.Clock.Now() // After the keys were read: none of them has started since.
	for i := range keys {
		keys[i].Duration = now.Sub(keys[i].Started)
	}
	slices.SortStableFunc(keys, func(a, b RunningKey[K]) int { return a.Started.Compare(b.Started) })
	return keys[:max(0, min(limit, len(keys)))]
}

// newRunningKeyLocked returns what people see of a running call, without its Duration.
func newRunningKeyLocked[T, K comparable](c *Tracked[T], shown K) RunningKey[K] {
	return RunningKey[K]{Key: shown, Attempt: c.handOut.Failures.Count + 1, Started: c.result.Started,
		Stuck: c.stuck, Canceled: c.canceled, Stack: c.stack}
}

func snapshotOfKey[T, K comparable](t *Tracker[T], key T, shown K) KeySnapshot[K] {
	until := time.Now().Add(askFor)
	t.sweepKey(key)
	s := readKey(t, key, shown)
	if t.options.MaxRetries != UnlimitedRetries {
		s.MaxAttempts = max(t.options.MaxRetries, 0) + 1 // NoRetries is negative.
	}
	if s.Failing != nil {
		if s.Failing.Attempt == 0 && time.Now().Before(until) { // Its calls had to go.
			s.Failing.Attempt = t.queue.Failures(key).Count
		}
		s.Failing.NextTry = t.nextTry(until, key)
	}
	if s.Running != nil {
		s.Running.Duration, s.Causes = t.options.Clock.Since(s.Running.Started), t.queue.Causes(key)
	}
	return s
}

// readKey returns what is known of key here.
func readKey[T, K comparable](t *Tracker[T], key T, shown K) KeySnapshot[K] {
	s := KeySnapshot[K]{Key: shown}
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.findRunningLocked(key); c != nil {
		running := newRunningKeyLocked(c, shown)
		s.Running = &running
	}
	if h := t.holdOfLocked(key); h != nil && h.phase == holdBegun {
		held := newHeldKeyLocked(h, shown)
		s.Held = &held
	}
	_, rec := t.mu.records.find(key)
	if rec == nil {
		return s
	}
	s.AtOnce = int(rec.atOnce)
	failed := FailedKey[K]{Key: shown}
	if rec.calls != nil {
		failed, s.FailedCalls = newFailedKey(shown, rec.calls), slices.Clone(rec.calls.calls)
	}
	switch rec.trouble {
	case failing:
		s.Failing = &failed
	case givenUp:
		s.GivenUp = &failed
	}
	return s
}
