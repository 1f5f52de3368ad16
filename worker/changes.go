package worker

import (
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/observe"
	"github.com/keyedqueue/workqueue/internal/slotheap"
)

// UnansweredKey is a key that was added and for which no call has succeeded since.
type UnansweredKey[T comparable] struct {
	Key   T         `json:"key"`
	Since time.Time `json:"since"`
}

// changes has the changes for which a handler was called. The books' mu guards it.
//
// A change of a key begins when the key is added or comes due. Later adds belong to it until the key is handed out. It ends with the first
// call that answers it: one that returns nil or asks for the key again. A failure or an interruption is no answer, so the change goes on. It
// ends unanswered, and is not counted, if the key is given up or forgotten or removed from the queue. An add during a call begins the next.
type changes[T comparable] struct {
	took observe.Histogram
	// unanswered has the keys whose last call was no answer, with the beginning of the change. order has the oldest first.
	unanswered keytable.Table[T, time.Time]
	order      slotheap.Heap
}

// resumeLocked gives e the beginning of a change that earlier calls left unanswered.
func (c *changes[T]) resumeLocked(e *Entry[T]) {
	if c.unanswered.Len() == 0 || e.since.IsZero() {
		return
	}
	if _, found := c.unanswered.Find(keytable.HashOf(e.result.Key), e.result.Key); found != nil {
		e.since = found.Value
	}
}

// noteLocked counts the change that e's call has answered, or keeps when it began for the next call.
func (c *changes[T]) noteLocked(e *Entry[T]) {
	r, isKnown := &e.result, !e.since.IsZero()
	switch r.Next {
	case NextForget, NextRequeue:
		if isKnown {
			c.took.Observe(max(0, r.Started.Add(r.Duration).Sub(e.since)))
		}
		c.removeLocked(r.Key)
	case NextGiveUp:
		c.removeLocked(r.Key)
	default: // No answer. If an earlier call has left the change unanswered, it is there already.
		if !isKnown {
			return
		}
		if s, entry, inserted := c.unanswered.FindOrInsert(keytable.HashOf(r.Key), r.Key); inserted {
			entry.Value = e.since
			c.order.Push(slotheap.Entry{Rank: e.since.UnixNano(), Slot: s})
		}
	}
}

// removeLocked forgets the change of key.
func (c *changes[T]) removeLocked(key T) {
	if c.unanswered.Len() == 0 {
		return
	}
	if s, found := c.unanswered.Find(keytable.HashOf(key), key); found != nil {
		slotheap.Drop(&c.order, &c.unanswered, s)
	}
}

func (b *Books[T]) forgetChange(key T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.changes.removeLocked(key)
}

// oldestCalled returns the oldest change for which a handler was called, or nil, and whether its key is being handled.
func (b *Books[T]) oldestCalled() (oldest *UnansweredKey[T], running bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := &b.mu.changes
	if c.unanswered.Len() > 0 {
		first := c.unanswered.At(c.order.First().Slot)
		oldest = &UnansweredKey[T]{first.Key, first.Value}
		running = b.findLocked(oldest.Key) != nil
	}
	for _, e := range b.mu.running {
		if !e.since.IsZero() && (oldest == nil || e.since.Before(oldest.Since)) {
			oldest, running = &UnansweredKey[T]{e.current.Key, e.since}, true
		}
	}
	return oldest, running
}

// mostRemoved bounds how many keys that were removed from the queue one call forgets.
const mostRemoved = 100

// oldestUnanswered returns the oldest change of all keys and its age. If its key is queued, it returns only the age: see oldestQueued. It
// forgets keys that were removed, mostRemoved at most.
func (b *Books[T]) oldestUnanswered() (oldest *UnansweredKey[T], age time.Duration) {
	if b.addTimes == nil {
		return nil, 0
	}
	for range mostRemoved {
		var running bool
		oldest, running = b.oldestCalled()
		if oldest == nil || running || !b.isRemoved(oldest.Key) {
			break
		}
		b.forgetChange(oldest.Key)
		oldest = nil
	}
	if oldest != nil {
		age = max(0, b.options.Clock.Since(oldest.Since))
	}
	if queued := b.reader.Stats().OldestQueued; queued > age {
		return nil, queued
	}
	return oldest, age
}

// oldestQueued returns the key at the head of the queue, if it is as old as age, or nil.
func (b *Books[T]) oldestQueued(age time.Duration) *UnansweredKey[T] {
	now := b.options.Clock.Now()
	for _, k := range b.reader.Snapshot(1).Queued {
		if now.Sub(k.Since) >= age { // Not ==: time has passed since age was read.
			return &UnansweredKey[T]{k.Key, k.Since}
		}
	}
	return nil
}
