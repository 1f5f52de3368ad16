package wait

import (
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Backoff describes a sequence of delays. With the fields as they were before the
// first step, delay number n, counted from 0, is
//
//	d(0)   = Duration
//	d(n+1) = min(d(n)·Factor, Cap)  while steps are left
//	d(n+1) = d(n)                   afterwards
//
// truncated to nanoseconds at each step, plus jitter: a random share of up to
// Jitter·d(n), drawn anew for each delay, that has no influence on the delays after.
// A delay is never negative and never above the largest Duration.
//
// The zero value yields delays of zero. Every method but Step works on a copy, so a
// Backoff that is kept in a variable can be used any number of times. Step changes
// its receiver: a Backoff that goroutines share needs [DelayFunc.Concurrent] or
// [Backoff.DelayWithReset] in front of it.
type Backoff struct {
	// Duration is the first delay. Step stores the one to come here. Negative
	// counts as zero.
	Duration time.Duration

	// Factor multiplies the delay at each step. Zero leaves the delay as it is, and
	// so does a negative factor or one that is not a number, because a wrong factor
	// should not turn a backoff into a busy loop. Between 0 and 1 the delays shrink.
	Factor float64

	// Jitter is the largest random addition, as a share of the delay: with 0.1 a
	// delay d lasts between d and 1.1·d. The addition comes after Cap, so a capped
	// delay lasts up to Cap + Jitter·Cap. None unless positive.
	Jitter float64

	// Steps counts down. To Step, and to all that is built on it, it is the number
	// of steps in which the delay may still change; what follows are delays of
	// constant length, without end. To ExponentialBackoff and its WithContext form
	// it is moreover the number of tries. (Two meanings of one field:
	// kubernetes/kubernetes#81888.)
	Steps int

	// Cap is an upper bound for the growing delay; none unless positive. The step
	// that would exceed it sets Duration to Cap and Steps to zero. To Step that
	// means Cap from there on; to ExponentialBackoff, that the tries are used up
	// (kubernetes/kubernetes#131122). To go on at Cap for as long as it takes, use
	// DelayFunc().Until. A Duration above Cap from the beginning is not lowered
	// before the first step.
	Cap time.Duration
}

// Step returns the delay that is due and advances b to the one after, by changing
// b.Duration and b.Steps. A nil Backoff returns zero. Step does not sleep and does
// not allocate; b must not be used by another goroutine meanwhile.
func (b *Backoff) Step() time.Duration {
	if b == nil {
		return 0
	}
	b.Duration = max(b.Duration, 0)
	due := b.Duration
	b.advance()
	if b.Jitter > 0 {
		return Jitter(due, b.Jitter)
	}
	return due
}

// advance moves b to the next delay, jitter left aside.
func (b *Backoff) advance() {
	if b.Steps < 1 {
		b.Steps = 0
		return
	}
	b.Steps--
	if !(b.Factor > 0) { // also true of NaN
		return
	}
	b.Duration = scale(b.Duration, b.Factor)
	if b.Cap > 0 && b.Duration > b.Cap {
		b.Duration = b.Cap
		b.Steps = 0
	}
}

// DelayFunc returns a function whose calls return what calls of Step would. It works
// on a copy: b stays as it is, and two functions of one Backoff know nothing of each
// other. The function never runs out; see Steps. It must not be called by several
// goroutines at once, unless through [DelayFunc.Concurrent].
func (b Backoff) DelayFunc() DelayFunc {
	return b.Step // b is this call's own copy
}

// DelayWithReset is DelayFunc with a function that goes back to the first delay
// regularly: a call that comes more than resetInterval after the last time that it
// went back, or after DelayWithReset, gets the first delay. That happens by c alone,
// whether the delays were used or not, and however long they were. For a backoff
// that starts afresh only after a quiet time, see [NewExponentialBackoffManager].
//
// Without growth there is nothing to go back to: if Factor is not positive, the
// function is that of DelayFunc. If resetInterval is not positive, every delay is
// the first one, plus jitter.
//
// The function may be called by several goroutines; they share one sequence. A nil
// clock is the real one. b stays as it is.
func (b Backoff) DelayWithReset(c clock.Clock, resetInterval time.Duration) DelayFunc {
	switch {
	case !(b.Factor > 0):
		return b.DelayFunc().Concurrent()
	case resetInterval <= 0:
		b.Steps = 0
		return b.DelayFunc().Concurrent()
	}
	c = orReal(c)
	p := &periodicReset{first: b, next: b, clock: c, interval: resetInterval, since: c.Now()}
	return p.step
}

// periodicReset is the state behind DelayWithReset.
type periodicReset struct {
	first    Backoff
	clock    clock.Clock
	interval time.Duration

	mu    sync.Mutex // guards the fields below; nothing of the caller's but the clock runs under it
	next  Backoff
	since time.Time // when next last equalled first by a reset, or the beginning
}

func (p *periodicReset) step() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := p.clock.Now(); now.Sub(p.since) > p.interval {
		p.next, p.since = p.first, now
	}
	return p.next.Step()
}

// Timer returns a Timer, not yet started, that fires in real time. With Jitter set,
// or more than one step to go, its intervals are those of DelayFunc. Otherwise it
// fires every Duration like a time.Ticker, which drops ticks for a slow receiver and
// keeps to its grid; Factor then has no effect, not even for a single step, as in
// apimachinery. If there is no positive Duration either, it fires all the time.
func (b Backoff) Timer() Timer {
	switch {
	case b.Steps > 1 || b.Jitter != 0:
		return b.DelayFunc().Timer(nil)
	case b.Duration > 0:
		return &tickerTimer{every: b.Duration}
	default:
		return newReadyTimer()
	}
}

// Jitter returns a random duration between duration and duration + maxFactor·duration,
// so that callers that would act at the same moment spread out. If maxFactor is not
// positive, it is taken as 1. A negative duration counts as zero, and the result never
// exceeds the largest Duration. Jitter may be called by several goroutines.
func Jitter(duration time.Duration, maxFactor float64) time.Duration {
	if !(maxFactor > 0) { // also true of NaN
		maxFactor = 1
	}
	return stretch(duration, maxFactor, rand.Float64())
}

// stretch returns d + share·factor·d, for a share in [0, 1).
func stretch(d time.Duration, factor, share float64) time.Duration {
	d = max(d, 0)
	extra := scale(d, share*factor)
	if extra > math.MaxInt64-d {
		return math.MaxInt64
	}
	return d + extra
}

// scale returns d·factor for a d that is not negative, truncated to nanoseconds and
// held between zero and the largest Duration.
//
// The bounds are tested before the conversion, because a conversion that overflows
// gives a different result on each architecture, on amd64 a negative one. That is how
// a backoff that has grown for long becomes a loop without a pause (juju/worker#12).
func scale(d time.Duration, factor float64) time.Duration {
	switch product := float64(d) * factor; {
	case product >= math.MaxInt64: // as a float64: 2^63, the first value that does not fit
		return math.MaxInt64
	case product > 0:
		return time.Duration(product)
	default: // also 0·∞, which is not a number
		return 0
	}
}

// orReal returns c, or the real clock in place of nil: an omitted clock should not
// become a panic in the goroutine that waits first.
func orReal(c clock.Clock) clock.Clock {
	if c == nil {
		return clock.RealClock{}
	}
	return c
}
