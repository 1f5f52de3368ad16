package wait

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Backoff describes a sequence of delays. With the fields as they were before the first step, delay number n,
// counted from 0, is
//
//	d(0)   = Duration
//	d(n+1) = min(d(n)·Factor, Cap)  while steps are left
//	d(n+1) = d(n)                   afterwards
//
// truncated to nanoseconds at each step, plus jitter: a new random part of Jitter·d(n) for each delay, which
// does not change the delays that follow. A delay is never negative and never above the largest Duration.
//
// The zero value has delays of zero. Step changes its receiver. All other methods work on a copy, so a
// Backoff in a variable can be used any number of times. Goroutines that share one sequence of delays need
// [DelayFunc.Concurrent] or [Backoff.DelayWithReset].
type Backoff struct {
	// Duration is the first delay. Step stores the one to come here. Negative counts as zero.
	Duration time.Duration

	// Factor multiplies the delay at each step. Zero, a negative number and NaN leave the delay as
	// it is, because a wrong factor should not make a busy loop. Between 0 and 1 the delays shrink.
	Factor float64

	// Jitter is the largest random addition, as a share of the delay: with 0.1 a delay d lasts between d and
	// 1.1·d. The addition comes after Cap, so a capped delay lasts up to Cap + Jitter·Cap. None unless positive.
	Jitter float64

	// Steps counts down. It is the number of steps in which the delay may still change; after them the delays
	// stay the same and do not end. For ExponentialBackoff and its WithContext form it is also the number of
	// tries. (Two meanings of one field: kubernetes/kubernetes#81888.)
	Steps int

	// Cap is an upper bound for the growing delay; none unless positive. The step that would exceed it sets
	// Duration to Cap and Steps to zero. For Step that means Cap from there; for ExponentialBackoff, that the
	// tries are used up (kubernetes/kubernetes#131122). To continue at Cap for as long as it takes, use
	// DelayFunc().Until. The first delay is Duration, even if that is above Cap.
	Cap time.Duration
}

// Step returns the next delay and advances b to the one after, by changing b.Duration and b.Steps. A nil
// Backoff returns zero. Step does not sleep and does not allocate; b must not be used by another goroutine
// meanwhile.
func (b *Backoff) Step() time.Duration {
	if b == nil {
		return 0
	}
	due := max(b.Duration, 0)
	b.Duration = due
	changes := b.Steps > 0 && b.Factor > 0 // false for NaN
	b.Steps = max(b.Steps, 1) - 1
	if changes {
		b.Duration = scale(due, b.Factor)
		if b.Cap > 0 && b.Duration > b.Cap {
			b.Duration, b.Steps = b.Cap, 0
		}
	}
	if b.Jitter > 0 {
		return Jitter(due, b.Jitter)
	}
	return due
}

// DelayFunc returns a function whose calls return what calls of Step would. It works on a copy: b stays as it
// is, and two functions of one Backoff are independent. The delays do not end; see Steps. Several goroutines
// must not call the function at once, except through [DelayFunc.Concurrent].
func (b Backoff) DelayFunc() DelayFunc {
	return b.Step // b is this call's own copy
}

// DelayWithReset is DelayFunc with a function that regularly goes back to the first delay: a call that comes
// more than resetInterval after it last went back (or after the call of DelayWithReset) gets the first delay,
// no matter how long the delays were. For a backoff that starts afresh only after a quiet time, see
// [NewExponentialBackoffManager]. If Factor is not positive, it is the same as DelayFunc. If
// resetInterval is not positive, every delay is the first one, plus jitter.
//
// The function may be called by several goroutines; they share one sequence. A nil clock is the real one. b
// stays as it is.
func (b Backoff) DelayWithReset(c clock.Clock, resetInterval time.Duration) DelayFunc {
	c = orReal(c)
	return (&restarting{first: b, clock: c, after: resetInterval, since: c.Now(), next: b}).step
}

// restarting is a sequence of delays that goroutines share, and that goes back to the first delay: when more
// than after has passed since it last did or, with fromEnd, since the end of the last delay.
type restarting struct {
	first   Backoff
	clock   clock.Clock
	after   time.Duration // not positive: every delay is the first one
	fromEnd bool

	mu    sync.Mutex // guards the fields below; nothing of the caller's but the clock runs under it
	next  Backoff
	since time.Time
}

func (r *restarting) step() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	if r.after <= 0 || now.Sub(r.since) > r.after {
		r.next = r.first
		if !r.fromEnd {
			r.since = now
		}
	}
	delay := r.next.Step()
	// A goroutine that shares the sequence may be in a longer delay.
	if end := now.Add(delay); r.fromEnd && end.After(r.since) {
		r.since = end
	}
	return delay
}

// Timer returns a Timer, not yet started, that fires in real time. With Jitter set, or more than one step to
// go, its intervals are those of DelayFunc. Otherwise it fires every Duration like a time.Ticker, which drops
// ticks for a slow receiver and keeps to its grid; Factor then has no effect, as in apimachinery. Without a
// positive Duration each interval ends at once.
func (b Backoff) Timer() Timer {
	if b.Steps > 1 || b.Jitter != 0 || b.Duration <= 0 {
		return b.DelayFunc().Timer(nil)
	}
	return &tickerTimer{every: b.Duration}
}

// ExponentialBackoff is ExponentialBackoffWithContext with a context that never ends.
func ExponentialBackoff(backoff Backoff, condition ConditionFunc) error {
	return ExponentialBackoffWithContext(context.Background(), backoff, condition.WithContext())
}

// ExponentialBackoffWithContext calls condition up to backoff.Steps times, the first time at once, with
// pauses of the lengths that backoff.Step returns, until it returns true or an error, or ctx ends. It returns
// nil, the condition's error or ctx's error accordingly, and [ErrWaitTimeout] when the tries are used up;
// [Interrupted] recognizes the last two.
//
// The tries are also used up when the delay would grow above backoff.Cap, after the pause in which that
// happens. So no pause ever lasts Cap, and the function waits for the last pause although no try follows it
// (google/go-containerregistry#1823): callers have chosen their Steps by that. Use DelayFunc().Until to
// continue at Cap.
//
// It does not call condition if Steps is not positive, or once ctx has ended. It blocks, and waits in real
// time. The caller's backoff remains as it is.
func ExponentialBackoffWithContext(ctx context.Context, backoff Backoff,
	condition ConditionWithContextFunc) error {
	if backoff.Steps < 1 {
		return ErrWaitTimeout
	}
	if err := ended(ctx); err != nil {
		return err
	}
	pause := DelayFunc(backoff.Step)
	return loop(ctx, pause.Timer(nil), true, true, func(ctx context.Context) (bool, error) {
		if backoff.Steps < 1 { // the pause before has met the cap
			return false, ErrWaitTimeout
		}
		if done, err := condition(ctx); done || err != nil {
			return done, err
		}
		if backoff.Steps == 1 { // no pause after the last try
			return false, ErrWaitTimeout
		}
		return false, nil
	})
}

// DelayFunc returns how long to wait next. Zero and negative values mean no wait. [Backoff.DelayFunc] makes
// one out of a Backoff; any function of this shape will do.
type DelayFunc func() time.Duration

// Timer returns a Timer, not yet started, whose intervals are what fn returns, on the clock c; nil is the
// real clock. fn is called once as each interval begins, by the caller of C or Next.
func (fn DelayFunc) Timer(c clock.Clock) Timer {
	c = orReal(c)
	return &startedTimer{start: func(t clock.Timer) clock.Timer {
		if t == nil {
			return c.NewTimer(fn())
		}
		t.Reset(fn())
		return t
	}}
}

// Until calls condition, with pauses of the length that fn returns, until it returns true or an error, or ctx
// ends. It returns nil, the condition's error or ctx's error accordingly; the number of calls is not limited.
// It blocks, and waits in real time.
//
// With immediate, the first call comes at once, even if ctx has already ended; without, after the first
// pause. With sliding, a pause begins when the condition returns; without, when it is called, so that its
// running time is part of the pause and a slow condition is called again at once. Once ctx has ended, Until
// does not call the condition again.
func (fn DelayFunc) Until(ctx context.Context, immediate, sliding bool,
	condition ConditionWithContextFunc) error {
	return loop(ctx, fn.Timer(nil), immediate, sliding, condition)
}

// Concurrent returns a function that calls fn, and may itself be called by several goroutines: they share one
// sequence and take turns. fn must not be called directly any more.
func (fn DelayFunc) Concurrent() DelayFunc {
	var mu sync.Mutex
	return func() time.Duration {
		mu.Lock()
		defer mu.Unlock() // deferred, so that a panic in fn does not block the others forever
		return fn()
	}
}

// Jitter returns a random duration between duration and duration + maxFactor·duration, so that callers that
// would act at the same time spread out. A maxFactor that is not positive counts as 1. A negative duration
// counts as zero, and the result never exceeds the largest Duration. Jitter may be called by several
// goroutines.
func Jitter(duration time.Duration, maxFactor float64) time.Duration {
	if !(maxFactor > 0) { // also true of NaN
		maxFactor = 1
	}
	duration = max(duration, 0)
	return duration + min(scale(duration, rand.Float64()*maxFactor), math.MaxInt64-duration)
}

// scale returns d·factor for a d that is not negative, truncated to nanoseconds, at least zero and at most
// the largest Duration.
//
// It tests the bounds before the conversion, whose result is negative on amd64 if it overflows: a backoff
// that has grown for long would become a loop without a pause (juju/worker#12).
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

func orReal(c clock.Clock) clock.Clock {
	if c == nil {
		return clock.RealClock{}
	}
	return c
}
