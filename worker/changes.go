package worker

import "time"

// UnansweredKey is a key that was added and for which no call has succeeded since.
type UnansweredKey[T comparable] struct {
	Key   T         `json:"key"`
	Since time.Time `json:"since"`
}

// A change of a key begins when the key is added or comes due. Later adds belong to it until the key is handed out. It ends
// with the first call that answers it: one that returns nil or asks for the key again. A failure or an interruption is no
// answer, so the change goes on. It ends unanswered, and is not counted, if the key is given up or forgotten, or removed from
// the queue. An add during a call begins the next.

// oldestCalled returns the oldest change for which a handler was called, or nil, and whether its key is being handled.
func (b *Books[T]) oldestCalled() (oldest *UnansweredKey[T], running bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := &b.mu.records; r.unanswered.Len() > 0 {
		first := r.table.At(r.unanswered.First().Slot)
		oldest = &UnansweredKey[T]{first.Key, first.Value.since}
		running = b.findLocked(oldest.Key) != nil
	}
	for _, e := range b.mu.running {
		if !e.since.IsZero() && (oldest == nil || e.since.Before(oldest.Since)) {
			oldest, running = &UnansweredKey[T]{e.current.Key, e.since}, true
		}
	}
	return oldest, running
}

// oldestUnanswered returns the oldest change of all keys and its age. If its key is queued, it returns only the age: see oldestQueued. It
// ends records that are over, for up to sweepFor.
func (b *Books[T]) oldestUnanswered() (oldest *UnansweredKey[T], age time.Duration) {
	if !b.addTimes {
		return nil, 0
	}
	for started := time.Now(); time.Since(started) < sweepFor; {
		var running bool
		oldest, running = b.oldestCalled()
		if oldest == nil || running || !b.endIfOver(oldest.Key) {
			break
		}
		oldest = nil
	}
	if oldest != nil {
		age = max(0, b.options.Clock.Since(oldest.Since))
	}
	if queued := b.queue.Stats().OldestQueued; queued > age {
		return nil, queued
	}
	return oldest, age
}

// oldestQueued returns the key at the head of the queue, if it is as old as age, or nil.
func (b *Books[T]) oldestQueued(age time.Duration) *UnansweredKey[T] {
	now := b.options.Clock.Now()
	for _, k := range b.queue.Snapshot(1).Queued {
		if now.Sub(k.Since) >= age { // Not ==: time has passed since age was read.
			return &UnansweredKey[T]{k.Key, k.Since}
		}
	}
	return nil
}
