package wait

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// NeverStop is a channel that is never closed, for a loop that does not stop.
var NeverStop <-chan struct{} = make(chan struct{})

// ForeverTestTimeout is how long a test may wait for what should happen at once: enough for a slow machine.
var ForeverTestTimeout = 30 * time.Second

// Forever calls f again and again, period after its last return, and never returns. Only a panic or
// runtime.Goexit in f ends it.
func Forever(f func(), period time.Duration) {
	Until(f, period, NeverStop)
}

// Until calls f until stopCh is closed, with a pause of period after each return. It is JitterUntil without
// jitter and with sliding set.
func Until(f func(), period time.Duration, stopCh <-chan struct{}) {
	JitterUntil(f, period, 0, true, stopCh)
}

// UntilWithContext calls f until ctx ends, with a pause of period after each return. It is
// JitterUntilWithContext without jitter and with sliding set.
func UntilWithContext(ctx context.Context, f func(context.Context), period time.Duration) {
	JitterUntilWithContext(ctx, f, period, 0, true)
}

// NonSlidingUntil calls f every period until stopCh is closed. It is JitterUntil without jitter and without
// sliding.
func NonSlidingUntil(f func(), period time.Duration, stopCh <-chan struct{}) {
	JitterUntil(f, period, 0, false, stopCh)
}

// NonSlidingUntilWithContext calls f every period until ctx ends. It is JitterUntilWithContext without jitter
// and without sliding.
func NonSlidingUntilWithContext(ctx context.Context, f func(context.Context), period time.Duration) {
	JitterUntilWithContext(ctx, f, period, 0, false)
}

// JitterUntil is JitterUntilWithContext with a channel to stop it. Close stopCh to stop all loops that have
// it. A value that is sent on it stops only the loop that receives it, between two calls of f.
func JitterUntil(f func(), period time.Duration, jitterFactor float64, sliding bool, stopCh <-chan struct{}) {
	JitterUntilWithContext(ContextForChannel(stopCh), func(context.Context) { f() }, period, jitterFactor,
		sliding)
}

// JitterUntilWithContext calls f until ctx ends: the first time at once, then after pauses that last period,
// plus a random addition of up to jitterFactor·period if jitterFactor is positive. If period is not positive
// there is no pause.
//
// With sliding, a pause begins when f returns; without, when f is called. Without sliding, a call that lasts
// longer than its pause is followed by the next one at once, but only by one, however many it has missed.
//
// JitterUntilWithContext blocks. It returns when ctx ends, but lets a call of f finish, and does not call f
// at all if ctx has ended before. It waits in real time, allocates nothing from one call to the next, and
// leaves no timer behind. It does not recover a panic of f.
func JitterUntilWithContext(ctx context.Context, f func(context.Context), period time.Duration,
	jitterFactor float64, sliding bool) {
	pause := Backoff{Duration: period, Jitter: jitterFactor}.DelayFunc()
	until(ctx, f, pause.Timer(nil), sliding)
}

// BackoffUntil is BackoffUntilWithContext with a channel to stop it, as in JitterUntil.
func BackoffUntil(f func(), backoff BackoffManager, sliding bool, stopCh <-chan struct{}) {
	BackoffUntilWithContext(ContextForChannel(stopCh), func(context.Context) { f() }, backoff, sliding)
}

// BackoffUntilWithContext calls f until ctx ends, as JitterUntilWithContext does, with the pauses that
// backoff decides, on backoff's clock. It asks backoff for a pause when f has returned, or, without sliding,
// before it calls f. It stops the last timer when it ends, also by a panic of f. It panics if backoff is nil.
func BackoffUntilWithContext(ctx context.Context, f func(ctx context.Context), backoff BackoffManager,
	sliding bool) {
	pauses := &startedTimer{start: func(clock.Timer) clock.Timer { return backoff.Backoff() }}
	until(ctx, f, pauses, sliding)
}

// until runs f on t until ctx ends.
func until(ctx context.Context, f func(context.Context), t Timer, sliding bool) {
	if ended(ctx) != nil {
		return
	}
	// The error can only be that of ctx, which the caller knows.
	_ = loop(ctx, t, true, sliding, func(ctx context.Context) (bool, error) {
		f(ctx)
		return false, nil
	})
}

// ContextForChannel returns a context that ends when parentCh is closed: Done returns parentCh, and Err
// context.Canceled afterwards and nil before. Err receives from parentCh, and so takes a value that was
// sent on it. The context has no deadline and no values, and needs no goroutine and no release. For a nil
// channel, and for [NeverStop], it never ends and its Done is nil, as is that of context.Background.
func ContextForChannel(parentCh <-chan struct{}) context.Context {
	if parentCh == NeverStop {
		// It is never closed, and a package's variable belongs to no synctest bubble: time stands still in a bubble
		// where a goroutine waits for such a channel.
		parentCh = nil
	}
	return stopContext{stop: parentCh}
}

type stopContext struct {
	stop <-chan struct{}
}

func (c stopContext) Deadline() (time.Time, bool) { return time.Time{}, false }
func (c stopContext) Done() <-chan struct{}       { return c.stop }
func (c stopContext) Value(any) any               { return nil }

func (c stopContext) Err() error {
	select {
	case <-c.stop:
		return context.Canceled
	default:
		return nil
	}
}
