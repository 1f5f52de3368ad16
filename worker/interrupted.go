package worker

import (
	"fmt"
	"time"
)

// A handler whose own add interrupts it, such as one that writes a status and does not mark that add as Quiet, would be called again
// and again without a pause. So would one that returns a Hold for what has happened already, but does not show in the cache that it
// reads. So a key that was interrupted, or released at once, a few times in a row is slowed down as if it had failed.

const (
	// maxInterruptions is how often in a row a key comes at once after it was interrupted.
	maxInterruptions = 5
	// After that it comes after firstPause, and then each time after twice the last pause, up to lastPause.
	firstPause = 5 * time.Millisecond
	lastPause  = 10 * time.Second
	// shortestHold is how long a hold must last so that its release is no interruption.
	shortestHold = time.Millisecond
	// keepInterruptions is for how many keys interruptions are counted: those that were interrupted last.
	keepInterruptions = 10_000
)

// countInterruptionLocked counts a call that was interrupted, and returns how many were in a row.
func (b *Books[T]) countInterruptionLocked(key T) (n int) {
	n, _ = b.mu.interruptions.take(key)
	n++
	b.mu.interruptions.put(key, n, 1)
	return n
}

// interruptions returns how often in a row the last calls of key were interrupted.
func (b *Books[T]) interruptions(key T) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, _ := b.mu.interruptions.get(key)
	return n
}

// forgetInterruptions forgets that key was interrupted.
func (b *Books[T]) forgetInterruptions(key T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.interruptions.take(key)
}

// looping returns how many keys were interrupted too often in a row. It forgets those that were removed from the queue.
func (b *Books[T]) looping() (n int) {
	var keys []T
	b.mu.Lock()
	for key, inARow := range b.mu.interruptions.all() {
		if inARow > maxInterruptions {
			keys = append(keys, key)
		}
	}
	b.mu.Unlock()
	for _, key := range keys {
		if b.isRemoved(key) {
			b.forgetInterruptions(key)
		} else {
			n++
		}
	}
	return n
}

// pauseIfLooping holds the key if it was interrupted too often in a row. While it pauses, the key still uses its place in a group with a
// Limit.
func (e *Entry[T]) pauseIfLooping() {
	if n := e.books.interruptions(e.result.Key); n > maxInterruptions && !e.books.queue.ShuttingDown() {
		e.current.parts = append(e.current.parts, pauseAfter("it was interrupted", n))
	}
}

// pauseAfterReleaseLocked is called when all parts of k are released. If that was at once, and the key comes again by itself, it counts as
// an interruption; after too many in a row pauseAfterReleaseLocked returns a pause, otherwise nil.
func (k *held[T]) pauseAfterReleaseLocked(now time.Duration) []*hold {
	if !k.wantsAgain || now-k.since >= shortestHold {
		return nil
	}
	k.releasedAtOnce = true
	b := k.holds.books
	b.mu.Lock()
	n := b.countInterruptionLocked(k.key)
	b.mu.Unlock()
	if n <= maxInterruptions {
		return nil
	}
	return []*hold{pauseAfter("its hold was released at once", n)}
}

// pauseAfter returns what holds a key for a pause because that has happened n times in a row.
func pauseAfter(what string, n int) *hold {
	return &hold{
		reason: fmt.Sprintf("a pause ends: %s %d times in a row", what, n),
		limit:  doubled(firstPause, n-maxInterruptions-1, lastPause),
		pause:  true,
	}
}
