package worker

import (
	"fmt"
	"time"
)

// A handler whose own add interrupts it, such as one that writes a status and does not mark that add as
// Quiet, would be called again and again without a pause. So would one that returns a Hold for what has
// happened already, but does not show in the cache that it reads. So a key that was interrupted, or released
// at once, a few times in a row is slowed down as if it had failed.

const (
	// maxInterruptions is how often in a row a key comes at once after it was interrupted.
	maxInterruptions = 5
	// After that it comes after firstPause, and then each time after twice the last pause, up to lastPause.
	firstPause = 5 * time.Millisecond
	lastPause  = 10 * time.Second
	// shortestHold is how long a hold must last so that its release is no interruption.
	shortestHold = time.Millisecond
)

// forgetInterruptions forgets that key was interrupted.
func (t *Tracker[T]) forgetInterruptions(key T) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s, rec := t.mu.records.find(key); rec != nil {
		t.mu.records.clearInterruptions(rec)
		t.mu.records.endIfAtRest(s)
	}
}

// pauseIfLooping holds the key if it was interrupted too often in a row. While it pauses, the key still uses
// its place in a group with a Limit.
func (c *Tracked[T]) pauseIfLooping() {
	t, n := c.tracker, 0
	t.mu.Lock()
	if _, rec := t.mu.records.find(c.result.Key); rec != nil {
		n = int(rec.interruptions)
	}
	t.mu.Unlock()
	if n > maxInterruptions && !t.queue.ShuttingDown() {
		c.reasons = append(c.reasons, pauseAfter("it was interrupted", n))
	}
}

// pauseAfterReleaseLocked is called when all reasons of k are released. If that was at once, and the key
// comes again by itself, it counts as an interruption; after too many in a row pauseAfterReleaseLocked
// returns a pause, otherwise nil.
func (k *held[T]) pauseAfterReleaseLocked(now time.Duration) []*holdReason {
	if !k.wantsAgain || now-k.since >= shortestHold {
		return nil
	}
	k.releasedAtOnce = true
	rs := &k.tracker.mu.records
	n := rs.countInterruption(&rs.table.At(k.slot).Value)
	if n <= maxInterruptions {
		return nil
	}
	return []*holdReason{pauseAfter("its hold was released at once", n)}
}

// pauseAfter returns what holds a key for a pause because that has happened n times in a row.
func pauseAfter(what string, n int) *holdReason {
	return &holdReason{
		reason: fmt.Sprintf("a pause ends: %s %d times in a row", what, n),
		limit:  min(firstPause<<min(n-maxInterruptions-1, 20), lastPause),
		pause:  true,
	}
}
