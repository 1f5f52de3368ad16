package worker

import "time"

// UnansweredKey is a key that was added and for which no call has succeeded since.
type UnansweredKey[T comparable] struct {
	Key   T         `json:"key"`
	Since time.Time `json:"since"`
}

// A change of a key begins when the key is added or comes due. Later adds belong to it until the key is
// handed out. It ends with the first call that answers it: one that returns nil or asks for the key again. A
// failure or an interruption is no answer, so the change goes on. It ends unanswered, and is not counted, if
// the key is given up or forgotten, or removed from the queue. An add during a call begins the next.

// oldestCalled returns the oldest change for which a handler was called, or nil, and whether its key is being
// handled.
func (t *Tracker[T]) oldestCalled() (oldest *UnansweredKey[T], running bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := &t.mu.records; r.unanswered.Len() > 0 {
		first := r.table.At(r.unanswered.First().Slot)
		oldest = &UnansweredKey[T]{first.Key, first.Value.since}
		running = t.findRunningLocked(oldest.Key) != nil
	}
	for _, c := range t.mu.running {
		if !c.since.IsZero() && (oldest == nil || c.since.Before(oldest.Since)) {
			oldest, running = &UnansweredKey[T]{c.result.Key, c.since}, true
		}
	}
	return oldest, running
}

// oldestUnanswered returns the oldest change of all keys and its age, or only the age of the queue's oldest
// key if that is older: see oldestQueued. It ends records that are over, for up to sweepFor.
func (t *Tracker[T]) oldestUnanswered() (oldest *UnansweredKey[T], age time.Duration) {
	if !t.knowsAddTimes {
		return nil, 0
	}
	for started := time.Now(); time.Since(started) < sweepFor; {
		var running bool
		oldest, running = t.oldestCalled()
		if oldest == nil || running || !t.sweepKey(oldest.Key) {
			break
		}
		oldest = nil
	}
	if oldest != nil {
		age = max(0, t.options.Clock.Since(oldest.Since))
	}
	if queued := t.queue.Stats().OldestQueued; queued > age {
		return nil, queued
	}
	return oldest, age
}

// oldestQueued returns the key at the head of the queue, if it is as old as age, or nil.
func (t *Tracker[T]) oldestQueued(age time.Duration) *UnansweredKey[T] {
	now := t.options.Clock.Now()
	for _, k := range t.queue.Snapshot(1).Queued {
		if now.Sub(k.Since) >= age { // Not ==: time has passed since age was read.
			return &UnansweredKey[T]{k.Key, k.Since}
		}
	}
	return nil
}
