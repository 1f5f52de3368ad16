package worker

import "time"

// This file measures how long users wait. A change of a key begins when the key is added or comes due. Later
// adds belong to it until the key is handed out. It ends with the first call that answers it: one that
// returns nil or asks for the key again. A failure or an interruption is no answer, so the change continues.
// It ends unanswered, and is not counted, if the key is given up or forgotten, or removed from the queue. An
// add during a call begins the key's next change. When a change began is in Tracked.changeSince during a
// call, and in the key's record between calls. If the key comes much later than it was due, the record is
// gone: see recordLife. Then its change begins when it was due.

// UnansweredKey is a key that was added, and that no call has answered since.
type UnansweredKey[T comparable] struct {
	Key   T         `json:"key"`
	Since time.Time `json:"since"`
}

// oldestUnanswered returns the oldest change of all keys and its age. If a queued key's change is older, it
// returns nil and that age: the queue's Stats name no key, see oldestQueued. Keys on hold do not count. It
// asks the queue, which is in memory, whether others have dealt with the key of a record that may be the
// oldest.
func (t *Tracker[T]) oldestUnanswered() (_ *UnansweredKey[T], age time.Duration) {
	if !t.knowsAddTimes {
		return nil, 0
	}
	var oldest *UnansweredKey[T] // of the running calls, and then of the records
	isOlder := func(since time.Time) bool {
		return !since.IsZero() && (oldest == nil || since.Before(oldest.Since))
	}
	t.mu.Lock()
	for _, c := range t.mu.running {
		if isOlder(c.changeSince) {
			oldest = &UnansweredKey[T]{c.result.Key, c.changeSince}
		}
	}
	t.mu.Unlock()
	for change := range t.unansweredKeys() {
		if isOlder(change.Since) && !t.forgetIfOver(change) {
			oldest = &change
		}
	}
	if oldest != nil {
		age = max(0, t.options.Clock.Since(oldest.Since))
	}
	if queuedAge := t.queue.Stats().OldestQueued; queuedAge > age {
		return nil, queuedAge
	}
	return oldest, age
}

// oldestQueued returns the key at the head of the queue, if it is at least as old as age, or nil.
func (t *Tracker[T]) oldestQueued(age time.Duration) *UnansweredKey[T] {
	now := t.options.Clock.Now()
	for _, k := range t.queue.Snapshot(1).Queued {
		if now.Sub(k.Since) >= age {
			return &UnansweredKey[T]{k.Key, k.Since}
		}
	}
	return nil
}
