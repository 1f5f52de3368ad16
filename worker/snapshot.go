package worker

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker/internal/sketch"
)

// RunningKey is a key whose handler is running.
type RunningKey[T comparable] struct {
	Key T `json:"key"`
	// Attempt is [Call.Attempt].
	Attempt int `json:"attempt"`
	// Started is when the call began, and Duration how long ago.
	Started  time.Time     `json:"started"`
	Duration time.Duration `json:"duration_ns"`
	// Stuck reports that the call was reported as stuck, and Canceled that [Pool.Cancel] has ended its context.
	Stuck    bool `json:"stuck"`
	Canceled bool `json:"canceled"`
	// Stack, at most 8 KiB, is the stack of a stuck call's goroutine.
	Stack string `json:"stack,omitempty"`
}

// Snapshot is what a pool does, for display. Its parts are copies, read one after the other.
type Snapshot[T comparable] struct {
	// Stats count all keys, also those that the lists leave out.
	Stats Stats `json:"stats"`
	// Running are the keys that are being handled, and OnHold those on hold, each the oldest first.
	Running []RunningKey[T] `json:"running"`
	OnHold  []OnHoldKey[T]  `json:"on_hold"`
	// Failing are the failing keys of the queue, also those of other pools and processes: 10,000 at most, those
	// with the most failures first.
	Failing []FailedKey[T] `json:"failing"`
	// GivenUp are the keys that were given up, 1,000 at most, the last one first. A key leaves the list when
	// this pool handles it and does not give it up again, and by Forget.
	GivenUp []FailedKey[T] `json:"given_up"`
	// Busiest are the keys with the most calls in the last ten minutes, a hundred at most. Numbers are off by
	// 1 % of all calls at most, and exact if no minute had more than a hundred keys.
	Busiest []BusyKey[T] `json:"busiest,omitempty"`
}

// BusyKey is a key that is called often: see Busiest of [Snapshot].
type BusyKey[T comparable] struct {
	Key T `json:"key"`
	// Calls is how many calls the key had in the last ten minutes, and Share which part of all.
	Calls uint64  `json:"calls"`
	Share float64 `json:"share"`
	// Causes are those of a recent call, if there were two in a minute.
	Causes workqueue.Causes `json:"causes,omitzero"`
}

// KeySnapshot is what a pool knows of a key.
type KeySnapshot[T comparable] struct {
	Key T `json:"key"`
	// Running, OnHold, Failing and GivenUp are nil unless the key is in that state.
	Running *RunningKey[T] `json:"running,omitempty"`
	OnHold  *OnHoldKey[T]  `json:"on_hold,omitempty"`
	Failing *FailedKey[T]  `json:"failing,omitempty"`
	GivenUp *FailedKey[T]  `json:"given_up,omitempty"`
	// Causes are those of the running call.
	Causes workqueue.Causes `json:"causes,omitzero"`
	// AtOnce is how many calls in a row wanted the key again at once, see [Call.AtOnce].
	AtOnce int `json:"at_once,omitempty"`
	// MaxAttempts is how often a failing key is tried, or 0 without a limit.
	MaxAttempts int `json:"max_attempts,omitempty"`
}

// maxFailing bounds the failing keys of a Snapshot.
const maxFailing = 10_000

// Snapshot returns Stats and up to limit keys of each kind. It asks the queue which keys fail.
func (t *Tracker[T]) Snapshot(limit int) Snapshot[T] {
	return Snapshot[T]{Running: t.runningKeys(limit), OnHold: t.keysOnHold(limit), Failing: t.failingKeys(limit),
		GivenUp: t.lastGivenUp(limit), Busiest: t.busiestKeys(limit), Stats: t.Stats()}
}

// first returns the first of all, atMost so many. If that is negative it returns none.
func first[E any](atMost int, all []E) []E { return all[:max(0, min(atMost, len(all)))] }

// runningKeys returns the keys that are being handled, the oldest first.
func (t *Tracker[T]) runningKeys(atMost int) []RunningKey[T] {
	t.mu.Lock()
	keys := converted(t.mu.running, (*Tracked[T]).snapshotLocked)
	t.mu.Unlock()
	now := t.options.Clock.Now() // After the keys were read: none of them has started since.
	for i := range keys {
		keys[i].Duration = now.Sub(keys[i].Started)
	}
	slices.SortStableFunc(keys, func(a, b RunningKey[T]) int { return a.Started.Compare(b.Started) })
	return first(atMost, keys)
}

// snapshotLocked describes a running call, without its Duration.
func (c *Tracked[T]) snapshotLocked() RunningKey[T] {
	return RunningKey[T]{Key: c.result.Key, Attempt: c.handOut.Failures.Count + 1, Started: c.result.Started,
		Stuck: c.stuck, Canceled: c.canceled, Stack: c.stack}
}

// failingKeys returns keys that fail, as the queue knows them.
func (t *Tracker[T]) failingKeys(atMost int) []FailedKey[T] {
	if atMost <= 0 {
		return []FailedKey[T]{}
	}
	return converted(t.queue.FailingKeys(min(atMost, maxFailing)), newFailingKey[T])
}

// fewCalls are too few to say that one key takes most of them.
const fewCalls = 100

// busiestShareLocked returns which part of the last calls the key with the most calls takes, or zero if there
// were few calls.
func (t *Tracker[T]) busiestShareLocked(now time.Time) float64 {
	counts, total := t.mu.busiest.Sum(now)
	if total < fewCalls {
		return 0
	}
	most := uint64(0)
	for _, c := range counts {
		most = max(most, c.N)
	}
	return float64(most) / float64(total)
}

// busiestKeys returns the keys with the most calls. A key that was called once is not busy.
func (t *Tracker[T]) busiestKeys(atMost int) []BusyKey[T] {
	now := t.options.Clock.Now()
	t.mu.Lock()
	counts, total := t.mu.busiest.Sum(now)
	t.mu.Unlock()
	sorted := slices.Collect(maps.Keys(counts))
	sortByText(sorted) // Keys with equally many calls stay in their places from one Snapshot to the next.
	slices.SortStableFunc(sorted, func(a, b T) int { return cmp.Compare(counts[b].N, counts[a].N) })
	keys := []BusyKey[T]{}
	for _, key := range first(min(atMost, sketch.MaxKeys), sorted) {
		if c := counts[key]; c.N > 1 {
			keys = append(keys, BusyKey[T]{key, c.N, float64(c.N) / float64(total), c.Causes})
		}
	}
	return keys
}

// SnapshotKey returns what is known of one key, after asking the queue.
func (t *Tracker[T]) SnapshotKey(key T) KeySnapshot[T] {
	s := KeySnapshot[T]{Key: key}
	if inQueue, _ := t.queue.SnapshotKey(key); inQueue.Failures.Count > 0 {
		failing := newFailingKey(inQueue)
		s.Failing = &failing
	}
	t.addKnown(&s)
	return s
}

// addKnown adds to s what is known of its key without asking the queue's server.
func (t *Tracker[T]) addKnown(s *KeySnapshot[T]) {
	if t.options.MaxRetries != UnlimitedRetries {
		s.MaxAttempts = max(t.options.MaxRetries, 0) + 1 // NoRetries is negative.
	}
	now := t.options.Clock.Now() // Not under mu: foreign code.
	causes := t.queue.Causes(s.Key)
	t.mu.Lock()
	defer t.mu.Unlock()
	s.AtOnce = t.mu.records.find(s.Key).atOnce
	if c := t.findRunningLocked(s.Key); c != nil {
		running := c.snapshotLocked()
		running.Duration = max(0, now.Sub(running.Started))
		s.Running, s.AtOnce, s.Causes = &running, c.atOnce, causes
	}
	if h := t.holdOfLocked(s.Key); h != nil {
		onHold := h.snapshot()
		s.OnHold = &onHold
	}
	if f, isGivenUp := t.mu.givenUp.keys[s.Key]; isGivenUp && s.Failing == nil {
		s.GivenUp = &f.FailedKey
	}
}
