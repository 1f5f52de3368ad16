package wait

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// DelayFunc returns how long to wait next. Zero and negative values mean no wait. [Backoff.DelayFunc] makes one out of
// a Backoff; any function of this shape will do.
type DelayFunc func() time.Duration

// Timer returns a Timer, not yet started, whose intervals are what fn returns, on the clock c; nil is the real clock.
// fn is called once as each interval begins, by the caller of C or Next.
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

// Until calls condition, with pauses of the length that fn returns, until it returns true or an error, or ctx ends. It
// returns nil, the condition's error or ctx's error accordingly; the number of calls is not limited. It blocks, and
// waits in real time.
//
// With immediate, the first call comes at once, even if ctx has already ended; without, after the first pause. With
// sliding, a pause begins when the condition returns; without, when it is called, so that its running time is part of
// the pause and a slow condition is called again at once. Once ctx has ended, Until does not call the condition again.
func (fn DelayFunc) Until(ctx context.Context, immediate, sliding bool, condition ConditionWithContextFunc) error {
	return loop(ctx, fn.Timer(nil), immediate, sliding, condition)
}

// Concurrent returns a function that calls fn, and may itself be called by several goroutines: they share one sequence
// and take turns. fn must not be called directly any more.
func (fn DelayFunc) Concurrent() DelayFunc {
	var mu sync.Mutex
	return func() time.Duration {
		mu.Lock()
		defer mu.Unlock() // deferred, so that a panic in fn does not block the others forever
		return fn()
	}
}
