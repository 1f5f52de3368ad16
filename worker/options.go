package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"k8s.io/utils/clock"
)

// Options tell how a [Pool] works. The zero Options are one worker that retries for ever.
//
// The hooks are called by the workers, several at once if there are several workers, while the key in
// question is held. So they should be quick. OnStuck alone is called by a goroutine of its own, one call
// at a time, and the handler that it is about may return meanwhile.
type Options[T comparable] struct {
	// Name is the queue's name in logs and errors. Empty means the one in the queue's Stats.
	Name string

	// Workers is how many handlers run at once. Zero means 1. See [Pool.SetWorkers].
	Workers int

	// MaxRetries is how many times a key that fails comes again before it is dropped: it is handled
	// once more than that. Zero means no limit, [NoRetries] none at all. A call that fails after
	// DrainTimeout is not counted as the last one: it may be the end of its context that it failed by.
	MaxRetries int

	// DrainTimeout is how long Run waits, from the end of its context on, for what is still to be
	// done. Zero means 30 s, [NoDrain] not at all. A very long one (math.MaxInt64) is no limit.
	DrainTimeout time.Duration

	// CancelGrace is how long Run waits, after DrainTimeout has ended the handlers' contexts, for the
	// handlers to notice. Zero means not at all.
	CancelGrace time.Duration

	// Drain says what is still to be done when Run's context ends.
	Drain Drain

	// HandlerTimeout is how long a call of the handler may take until its context ends with
	// [context.DeadlineExceeded]. Zero means as long as it likes.
	HandlerTimeout time.Duration

	// StuckAfter is how long a handler may go on after its HandlerTimeout (without one: after its
	// start) before it is reported as stuck, once a call, to OnStuck and in the log. It goes on
	// holding its key. Zero means that none is reported.
	StuckAfter time.Duration

	// OnStart is called before the handler, and returns the context for it, which is ctx or made from
	// it. If it panics or ends the goroutine, the key fails as if the handler had.
	OnStart func(ctx context.Context, key T) context.Context

	// OnFinish is called after the handler, when it is decided what comes next and the queue has been
	// told so, but Done has not been called yet. The duration is that of OnStart and the handler, and
	// err is what the handler returned, a [*PanicError] or [ErrGoexit].
	OnFinish func(key T, duration time.Duration, err error, next Next)

	// OnDrop is called before OnFinish for a key that does not come again though it has failed.
	OnDrop func(key T, err error)

	// OnStuck is called once for a call of the handler that is stuck, with the time since its start. Run
	// does not wait for it.
	OnStuck func(key T, running time.Duration)

	// CrashOnPanic makes a panic end the process, as it does without this package, instead of failing
	// the key.
	CrashOnPanic bool

	// Logger is told of failures, drops, stuck handlers and the end, and, at level Debug, of every
	// key. Nil means silence, also about panics: without OnFinish or OnDrop nobody hears of one that was
	// turned into the failure of its key. See [Logger] for the one that handlers get.
	Logger *slog.Logger

	// Clock is where all times come from, except those of the queue. Nil means the real clock.
	Clock clock.Clock
}

// What Options cannot say with zero.
const (
	// NoRetries as MaxRetries drops a key when it fails for the first time.
	NoRetries = -1
	// NoDrain as DrainTimeout ends the handlers' contexts at once when Run is to end.
	NoDrain time.Duration = -1
)

// Drain is what a [Pool] finishes before it ends.
type Drain uint8

const (
	// Running finishes the handlers that run. Keys that are queued are not started.
	Running Drain = iota
	// All finishes what is queued too: the queue is shut down, which drops keys that wait for their
	// time, and what it has is handled. A key that fails in the meantime cannot come again and is
	// reported as failing. A paused pool has no workers that would finish anything.
	All
)

// Next is what becomes of a key after a call of its handler. When the queue is shut down, and takes no keys
// back, NextRequeue and NextRetry are what would have become of it; see [ShutdownError].
type Next uint8

const (
	// NextForget: the key is done, and its failures are forgotten.
	NextForget Next = iota
	// NextRequeue: the handler returned RequeueAfter. [RequeueAfterError] tells the time.
	NextRequeue
	// NextRetry: the handler has failed, and the key was given to the queue's limiter.
	NextRetry
	// NextDrop: the handler has failed, and the key does not come again.
	NextDrop
)

// String returns "forget", "requeue", "retry" or "drop".
func (n Next) String() string {
	switch n {
	case NextForget:
		return "forget"
	case NextRequeue:
		return "requeue"
	case NextRetry:
		return "retry"
	case NextDrop:
		return "drop"
	}
	return fmt.Sprintf("Next(%d)", uint8(n))
}

const defaultDrainTimeout = 30 * time.Second

// check returns an error that names every field with a value that makes no sense.
func (o *Options[T]) check() error {
	var errs []error
	atLeastZero := func(field string, value any, negative bool) {
		if negative {
			errs = append(errs, fmt.Errorf("worker: Options.%s is negative: %v", field, value))
		}
	}
	atLeastZero("Workers", o.Workers, o.Workers < 0)
	atLeastZero("MaxRetries", o.MaxRetries, o.MaxRetries < 0 && o.MaxRetries != NoRetries)
	atLeastZero("DrainTimeout", o.DrainTimeout, o.DrainTimeout < 0 && o.DrainTimeout != NoDrain)
	atLeastZero("CancelGrace", o.CancelGrace, o.CancelGrace < 0)
	atLeastZero("HandlerTimeout", o.HandlerTimeout, o.HandlerTimeout < 0)
	atLeastZero("StuckAfter", o.StuckAfter, o.StuckAfter < 0)
	if o.Drain > All {
		errs = append(errs, fmt.Errorf("worker: Options.Drain is neither Running nor All: %d", o.Drain))
	}
	return errors.Join(errs...)
}

// setDefaults replaces zero values by what they mean.
func (o *Options[T]) setDefaults() {
	if o.Workers == 0 {
		o.Workers = 1
	}
	if o.MaxRetries == 0 {
		o.MaxRetries = math.MaxInt
	}
	if o.DrainTimeout == 0 {
		o.DrainTimeout = defaultDrainTimeout
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
}
