package wait

import (
	"time"

	"k8s.io/utils/clock"
)

// Timer is what a loop waits on: one interval after the other.
//
// The first interval begins with the first call of C. Then, for each interval, receive from C once, and call
// Next to begin another. A Timer belongs to one goroutine. The timers of this package hold no goroutine, and
// nothing at all before the first C and after Stop.
type Timer interface {
	// C returns the channel that receives when the interval ends, the same one until Stop. It must not be
	// received from after Stop.
	C() <-chan time.Time

	// Next begins the next interval. Call it only when the last interval has ended and its value was received,
	// and not after Stop. On a timer that C has not started, Next does nothing.
	Next()

	// Stop releases what the timer holds. It may be called at any time, and again.
	Stop()
}

// RealTimer returns a clock.Timer that fires once, after the given duration of real time. It is for functions
// that take a function which makes timers.
var RealTimer = clock.RealClock{}.NewTimer

// startedTimer makes a Timer of clock.Timers.
type startedTimer struct {
	// start returns a timer that has begun an interval: its argument, which may be nil, or a new one.
	start func(clock.Timer) clock.Timer
	timer clock.Timer // nil: not started
}

func (t *startedTimer) C() <-chan time.Time {
	if t.timer == nil {
		t.timer = t.start(nil)
	}
	return t.timer.C()
}

func (t *startedTimer) Next() {
	if t.timer != nil {
		t.timer = t.start(t.timer)
	}
}

// Stop also takes out a tick that was not received, which not every clock's timer drops: a manager that
// returns one timer again and again, as apimachinery's do, would give it to the next loop as the end of a
// pause. If the tick was received already, Stop must not wait for it.
func (t *startedTimer) Stop() {
	if t.timer == nil {
		return
	}
	if !t.timer.Stop() {
		select {
		case <-t.timer.C():
		default:
		}
	}
	t.timer = nil
}

// tickerTimer fires on a fixed grid. Next has nothing to do: the ticker's next interval has begun with its
// last tick.
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
