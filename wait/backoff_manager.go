package wait

import (
	"math"
	"time"

	"k8s.io/utils/clock"
)

// BackoffManager decides how long [BackoffUntil] pauses. The managers of this package may be shared by
// several goroutines and loops. Those of other packages may forbid that.
type BackoffManager interface {
	// Backoff returns a timer, already running, that fires when the pause is over.
	//
	// The managers of this package return a new timer each time, which its caller waits for or stops. Another
	// manager may return one timer again and again, as apimachinery's do; then it must have been received from
	// before the next call.
	Backoff() clock.Timer
}

// NewExponentialBackoffManager returns a manager whose pauses start with initBackoff and grow by
// backoffFactor up to maxBackoff, each with a random addition of up to jitter times its length; [Backoff] has
// the formula and says what odd values mean. Growth does not end before maxBackoff is reached; without one
// (maxBackoff ≤ 0) it ends at the largest Duration. The random addition is not subject to maxBackoff, nor is
// an initBackoff that exceeds it.
//
// A manager that has not been used for more than resetDuration starts again with initBackoff, because what
// failed has worked for a while. Idle time begins at the end of the last pause (the latest end, if goroutines
// share the manager). Apimachinery measures from the beginning: there, pauses that grow past resetDuration
// fall back to initBackoff while the failures continue, and the service is retried at the highest rate.
// If resetDuration is not positive, every pause is the first one.
//
// The manager reads c, which also makes its timers; nil is the real clock. Goroutines may share it: they
// share one sequence of pauses, and each call returns a new timer.
func NewExponentialBackoffManager(initBackoff, maxBackoff, resetDuration time.Duration, backoffFactor,
	jitter float64, c clock.Clock) BackoffManager {
	first := Backoff{Duration: initBackoff, Factor: backoffFactor, Jitter: jitter, Steps: math.MaxInt,
		Cap: maxBackoff}
	c = orReal(c)
	pauses := &restarting{first: first, clock: c, after: resetDuration, fromEnd: true, next: first}
	return delayManager{c, pauses.step}
}

// delayManager makes a BackoffManager of a function that goroutines may share.
type delayManager struct {
	clock clock.Clock
	delay DelayFunc
}

func (m delayManager) Backoff() clock.Timer { return m.clock.NewTimer(m.delay()) }

// NewJitteredBackoffManager returns a manager whose pauses all last duration, plus a random addition of up to
// jitter·duration each time if jitter is positive. It waits on c; nil is the real clock. It may be shared by
// several goroutines.
func NewJitteredBackoffManager(duration time.Duration, jitter float64, c clock.Clock) BackoffManager {
	pause := Backoff{Duration: duration, Jitter: jitter}
	return delayManager{orReal(c), pause.DelayFunc().Concurrent()}
}
