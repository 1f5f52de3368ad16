package worker

import (
	"fmt"
	"time"
)

// A handler whose own add interrupts it, such as a status that it writes, would be called again and again
// without a pause. So would one that returns a Hold for what has happened already, but does not show in its
// cache. So a key that was interrupted, or released at once, a few times in a row is slowed down.

const (
	// maxInterruptions is how often in a row a key comes at once after it was interrupted.
	maxInterruptions = 5
	// After that it comes after firstPause, and then each time after twice the last pause, up to lastPause.
	firstPause = 5 * time.Millisecond
	lastPause  = 10 * time.Second
	// shortestHold is how long a hold must last so that its release is no interruption.
	shortestHold = time.Millisecond
)

// pauseIfLooping slows the key down if it was interrupted too often in a row: it puts it on hold for a pause.
// Meanwhile the key still uses its place in a group with a Limit.
func (c *Tracked[T]) pauseIfLooping() {
	if n := c.interruptions; n > maxInterruptions && !c.tracker.queue.ShuttingDown() {
		c.reasons = append(c.reasons, pauseAfter("it was interrupted", n))
	}
}

// hasLasted reports whether h has lasted for shortestHold. Otherwise its end is an interruption.
func (h *hold[T]) hasLasted(now time.Duration) bool { return now-h.since >= shortestHold }

// pauseAfterReleaseLocked is called when no reason of h is open any more. If that is an interruption, and the
// key comes again by itself, it counts it. After too many in a row it returns a pause.
func (h *hold[T]) pauseAfterReleaseLocked(now time.Duration) (pause []*holdReason) {
	rs := &h.tracker.mu.records
	if h.comesAgain && !h.hasLasted(now) && !rs.holds.noPauses {
		if n := rs.countInterruption(&rs.table.At(h.slot).Value); n > maxInterruptions {
			pause = append(pause, pauseAfter("its hold was released at once", n))
		}
	}
	return pause
}

// pauseAfter returns a hold of the pool itself, after an event that has come n times in a row.
func pauseAfter(event string, n int) *holdReason {
	return &holdReason{
		text:  fmt.Sprintf("a pause ends: %s %d times in a row", event, n),
		limit: min(firstPause<<min(n-maxInterruptions-1, 20), lastPause),
		pause: true,
	}
}
