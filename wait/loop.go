package wait

import (
	"cmp"
	"context"
	"time"
)

// loop is the one loop of this package. It calls condition until that returns true or an error, with one of
// t's intervals before each call, or without one before the first if immediate is set. With sliding, an
// interval begins when condition has returned; otherwise before it is called.
//
// It returns nil when the condition was true, and otherwise the condition's error or that of ctx. It makes an
// immediate first call even if ctx has ended, and no other one once it has. It stops t at its end, also when
// a panic or runtime.Goexit ends it.
func loop(ctx context.Context, t Timer, immediate, sliding bool, condition ConditionWithContextFunc) error {
	defer t.Stop()
	for waits := !immediate; ; waits = true {
		if waits {
			if err := await(ctx, t.C()); err != nil {
				return err
			}
		}
		switch {
		case sliding:
		case waits:
			t.Next()
		default:
			t.C() // starts the timer
		}
		if done, err := condition(ctx); done || err != nil {
			return err
		}
		if sliding {
			t.Next() // nothing after an immediate call: await starts the timer
		}
	}
}

// await returns nil when tick has fired and ctx not ended.
func await(ctx context.Context, tick <-chan time.Time) error {
	select {
	case <-ctx.Done():
		return reason(ctx)
	case <-tick:
		// select picks at random when both are ready. With short intervals an ended context could lose that draw
		// several times in a row.
		return ended(ctx)
	}
}

// ended returns nil if ctx has not ended. It asks the channel, not ctx.Err, because a stop channel may have
// had a value sent to it instead of being closed, which only a receiver notices.
func ended(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return reason(ctx)
	default:
		return nil
	}
}

// reason returns the error of a ctx whose Done channel was received from. It is not nil even if ctx.Err is
// (see ended), because nil would say that the condition was true. A stopContext is not asked: its Err would
// receive the value that is to stop another loop.
func reason(ctx context.Context) error {
	if _, ok := ctx.(stopContext); ok {
		return context.Canceled
	}
	return cmp.Or(ctx.Err(), context.Canceled)
}
