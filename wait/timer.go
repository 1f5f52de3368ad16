package wait

import (
	"time"

	"k8s.io/utils/clock"
)

// Timer is what a loop waits on: one interval after the other.
//
// The first interval begins with the first call of C. Then, for each interval, receive from C once, and call Next to
// begin another. A Timer belongs to one goroutine. The timers of this package hold no goroutine, and nothing at all
// before the first C and after Stop.
type Timer interface {
	// C returns the channel that receives when the interval ends, the same one until Stop. It must not be received
	// from after Stop.
	C() <-chan time.Time

	// Next begins the next interval. Call it only when the last interval has ended and its value was received, and not
	// after Stop. On a timer that C has not started, Next does nothing.
	Next()

	// Stop releases what the timer holds. It may be called at any time, and again.
	Stop()
}

// RealTimer returns a clock.Timer that fires once, after the given duration of real time. It is for functions that
// take a function which makes timers.
var RealTimer = clock.RealClock{}.NewTimer

// delayTimer asks a function for the length of each interval.
type delayTimer struct {
	delay DelayFunc
	clock clock.Clock
	timer clock.Timer // nil: not started
}

func (t *delayTimer) C() <-chan time.Time {
	if t.timer == nil {
		t.timer = t.clock.NewTimer(t.delay())
	}
	return t.timer.C()
}

func (t *delayTimer) Next() {
	if t.timer != nil {
		t.timer.Reset(t.delay())
	}
}

func (t *delayTimer) Stop() {
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
}

// tickerTimer fires on a fixed grid. Next has nothing to do: the ticker's next interval has begun with its last tick.
type tickerTimer struct {
	every  time.Duration
	ticker *time.Ticker // nil: not started
}

func (t *tickerTimer) C() <-chan time.Time {
	if t.ticker == nil {
		t.ticker = time.NewTicker(t.every)
	}
	return t.ticker.C
}

func (t *tickerTimer) Next() {}

func (t *tickerTimer) Stop() {
	if t.ticker != nil {
		t.ticker.Stop()
		t.ticker = nil
	}
}
