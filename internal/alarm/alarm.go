// Package alarm starts the timers of goroutines that wait for keys to come due.
package alarm

import (
	"time"

	"k8s.io/utils/clock"
)

// MaxSleep is the longest time for which such a goroutine sleeps while a key waits. A clock that was set
// forward without its timers noticing delays a key by no more than that.
const MaxSleep = 10 * time.Second

// maxStarts is how often a timer is started for one sleep.
const maxStarts = 10

// Set makes timer fire when no time is left, or returns false if none is. What timer has fired before is gone.
//
// A fake clock may be stepped after left has read it and before the timer runs, which then ends too late by that
// step. So where the clock has moved, the timer is started again; a bound keeps clocks that always move from
// doing so forever. The real clock cannot be stepped.
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
