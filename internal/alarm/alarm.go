// Package alarm starts the timers of goroutines that wait for keys to come due.
package alarm

import (
	"time"

	"k8s.io/utils/clock"
)

// MaxSleep is the longest time for which such a goroutine sleeps while a key waits. If a clock is set forward and its
// timers do not notice, keys are late by no more than that.
const MaxSleep = 10 * time.Second

// maxStarts is how often Set starts a timer at most.
const maxStarts = 10

// Set makes timer fire after the time that left returns, and returns false if that is not positive. It takes out of the
// timer's channel what was fired before.
//
// A fake clock may be stepped after left has read it and before the timer starts, which then fires too late by that
// step. So Set starts the timer again if left returns something else now. The number of starts is bounded, because
// some clocks always move. The real clock cannot be stepped.
func Set(timer clock.Timer, isReal bool, left func() time.Duration) bool {
	d := left()
	for range maxStarts {
		restart(timer, d)
		before := d
		if d = left(); isReal || d == before {
			break
		}
	}
	return d > 0
}

// restart makes timer fire after d from now on, and not for anything before.
func restart(timer clock.Timer, d time.Duration) {
	if !timer.Stop() {
		// A fake timer keeps what it has fired, and its clock blocks when it fires a second time.
		select {
		case <-timer.C():
		default:
		}
	}
	timer.Reset(d)
}
