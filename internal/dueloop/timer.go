package dueloop

import (
	"time"

	"k8s.io/utils/clock"
)

// Timer is what the goroutine of a [Loop] sleeps by.
type Timer struct {
	loop  *Loop
	timer clock.Timer
}

// NewTimer returns a Timer for the loop's goroutine.
func (l *Loop) NewTimer() Timer { return Timer{loop: l, timer: l.clock.NewTimer(MaxSleep)} }

// Stop ends the use of the timer.
func (t Timer) Stop() { t.timer.Stop() }

// Sleep waits until that time or until Wake, whichever is first.
func (t Timer) Sleep(until time.Duration) {
	if !t.set(until) {
		return
	}
	select {
	case <-t.timer.C():
	case <-t.loop.wakeUps:
	}
}

// maxStarts is how often set starts the timer at most.
const maxStarts = 10

// set makes the timer fire at that time, and returns false if it is past.
//
// A fake clock may be stepped after it was read and before the timer starts, which then fires too late by that step. So
// set reads the clock again, and starts the timer again if the time has changed. The number of starts is bounded,
// because some clocks always move. The real clock cannot be stepped.
func (t Timer) set(until time.Duration) bool {
	_, isReal := t.loop.clock.(clock.RealClock)
	left := until - t.loop.Now()
	for n, before := 0, time.Duration(0); left > 0 && left != before && n < maxStarts; n++ {
		t.restart(left)
		if isReal {
			break
		}
		left, before = until-t.loop.Now(), left
	}
	return left > 0
}

// restart makes the timer fire after d, and not for anything before.
func (t Timer) restart(d time.Duration) {
	if !t.timer.Stop() {
		// A fake timer keeps what it has fired, and its clock blocks when it fires a second time.
		select {
		case <-t.timer.C():
		default:
		}
	}
	t.timer.Reset(d)
}
