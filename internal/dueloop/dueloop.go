// Package dueloop is the part of a delaying queue that knows the clock: the queue's time, and the goroutine
// that sleeps until the next key is due.
package dueloop

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// Loop is the goroutine of a queue that makes keys ready when they are due. It runs only while a key waits.
// The queue has the keys and their lock. When it lets a key wait it calls TendLocked under the lock and, if
// that returns true, Wake, under the lock or not. Times are durations since the Loop first read its clock.
type Loop struct {
	clock   clock.Clock
	epoch   atomic.Pointer[time.Time] // nil until the clock was first read
	moveDue func() (until time.Duration, ok bool)
	wakeUps chan struct{} // has room for one
	done    sync.WaitGroup

	// The queue's lock guards what follows.

	running bool          // the goroutine runs: it does whenever a key waits that will come due
	until   time.Duration // when it looks at the keys again if it is not woken
}

const (
	// Never is the time that does not come.
	Never time.Duration = math.MaxInt64

	// MaxSleep is the longest time for which the goroutine sleeps. If a clock is set forward and its timers do
	// not notice, keys are late by no more than that.
	MaxSleep = 10 * time.Second

	past    = -Never
	horizon = 1<<62 - MaxSleep
)

// New returns a Loop on that clock. Its goroutine calls moveDue whenever keys may be due. This makes them
// ready, and returns the answer of PlanLocked.
func New(c clock.Clock, moveDue func() (until time.Duration, ok bool)) *Loop {
	return &Loop{clock: c, moveDue: moveDue, wakeUps: make(chan struct{}, 1)}
}

// waitingLoop moves due keys and sleeps until the next one is due, until no key waits.
func (l *Loop) waitingLoop() {
	timer := l.NewTimer()
	defer timer.Stop()
	for until, ok := l.moveDue(); ok; until, ok = l.moveDue() {
		timer.Sleep(until)
	}
}

// Now reads the clock. It needs no lock, and the clock is foreign code.
func (l *Loop) Now() time.Duration {
	return min(max(l.clock.Since(l.zero()), -horizon), horizon)
}

// zero returns the time from which the loop's times count. Before a key waits, no clock is read.
func (l *Loop) zero() time.Time {
	if l.epoch.Load() == nil {
		now := l.clock.Now()
		l.epoch.CompareAndSwap(nil, &now)
	}
	return *l.epoch.Load()
}

// Time returns t as the clock shows it.
func (l *Loop) Time(t time.Duration) time.Time { return l.zero().Add(t) }

// TendLocked starts the goroutine if a key waits and it does not run. The first key is due at next, which is
// Never if no key waits. TendLocked reports whether to wake the goroutine, which sleeps beyond next.
func (l *Loop) TendLocked(next time.Duration) (wake bool) {
	switch {
	case next == Never:
		return l.running
	case l.running:
		return next < l.until
	}
	l.running, l.until = true, past // It looks at the keys first of all.
	l.done.Go(l.waitingLoop)
	return false
}

// PlanLocked is called by moveDue when it has looked at the keys: the first is due at next. It
// returns until when the goroutine sleeps, and false if next is Never: then the goroutine ends.
func (l *Loop) PlanLocked(now, next time.Duration) (until time.Duration, ok bool) {
	l.running = next != Never
	l.until = min(next, now+MaxSleep)
	return l.until, l.running
}

// Wake makes the goroutine look at the keys. It does not block.
func (l *Loop) Wake() {
	select {
	case l.wakeUps <- struct{}{}:
	default: // It has not received the last one yet.
	}
}

func (l *Loop) Wait() { l.done.Wait() }

// AddSaturated returns a + b, or the nearest int64 to it.
func AddSaturated[A, B ~int64](a A, b B) A {
	t, d := int64(a), int64(b)
	return A(min(max(t, math.MinInt64-min(d, 0)), math.MaxInt64-max(d, 0)) + d)
}

// Timer is what the goroutine of a [Loop] sleeps by.
type Timer struct {
	loop  *Loop
	timer clock.Timer
}

func (l *Loop) NewTimer() Timer { return Timer{loop: l, timer: l.clock.NewTimer(MaxSleep)} }

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

const maxStarts = 10

// set makes the timer fire at that time, and returns false if it is past.
//
// A fake clock may be stepped after it was read and before the timer starts, which then fires too late. So
// set starts the timer again if the time has changed, up to maxStarts times, because some clocks always move.
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

// Packed is a Duration in two halves, the lower one first.
type Packed [2]uint32

// Pack returns d in two halves.
func Pack(d time.Duration) Packed { return Packed{uint32(d), uint32(d >> 32)} }

// Duration returns what was packed.
func (p Packed) Duration() time.Duration { return time.Duration(p[1])<<32 | time.Duration(p[0]) }
