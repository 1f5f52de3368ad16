package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/observe"
	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
)

// Handler handles a key. See the package comment for what its error means.
type Handler[T comparable] func(ctx context.Context, key T) error

// Options configure a [Pool]. Their zero value is one worker that retries without limit.
type Options[T comparable] struct {
	// Name is the pool's name in logs and metrics. Empty means the queue's name.
	Name string
	// Workers is how many handlers run at once. Zero means 1.
	Workers int
	// MaxRetries is how often a failing key is retried before it is given up. Zero means without limit,
	// [NoRetries] never.
	MaxRetries int
	// RetryFor gives a key up when it fails after it has been failing for longer. Zero means no limit.
	RetryFor time.Duration

	// StartLimit bounds the rate at which calls begin. Keys stay queued meanwhile. A change of it is noticed
	// within a second. Its burst must be at least 1, unless its rate is rate.Inf. Nil means no limit.
	StartLimit *rate.Limiter

	// List returns all keys, for programs that may miss events. Run calls it when it begins, and adds every key
	// once, with priority -100 if the queue has priorities. If it fails it is called again after 1 s, 2 s and
	// so on, up to a minute or Resync. It should return when its context ends.
	List func(ctx context.Context) (iter.Seq[T], error)
	// Resync is the period after which List is called again. Each key of the last list, which stays in memory,
	// is added once in a period, at its moment of [Every]. Zero means that List is called once.
	Resync time.Duration

	// Drain says what Run still finishes when its context ends.
	Drain Drain
	// DrainTimeout is how long Run waits for that. Zero means 30 s, math.MaxInt64 no limit.
	DrainTimeout time.Duration
	// CancelGrace is how long Run then waits for handlers whose contexts have ended. Zero means 1 s, [NoGrace]
	// none.
	CancelGrace time.Duration
	// KeepQueue leaves the queue open, with its keys, when Run returns. Drain must not be All.
	KeepQueue bool

	// HandlerTimeout is when a call's context ends, with [context.DeadlineExceeded]. Zero means no limit.
	HandlerTimeout time.Duration
	// StuckAfter is how long after its HandlerTimeout, or without one after its start, a handler may run before
	// it is reported as stuck, once, to OnStuck and in the log, with its stack. To read stacks stops the
	// program for up to 14 µs a goroutine; above 3,000 goroutines they are not read. Zero means never.
	StuckAfter time.Duration

	// OnFinish is called after each call of the handler, before Done, by several workers at once. The context
	// is the handler's, and may have ended.
	OnFinish func(ctx context.Context, r Result[T])
	// OnStuck is called for a stuck call, with its context, in a goroutine of its own. It may still run when
	// Run has returned.
	OnStuck func(ctx context.Context, r RunningKey[T])

	// Ready is for caches that must have synced: the workers start when it has returned nil. An error is fatal.
	// It should return when its context ends.
	Ready func(ctx context.Context) error

	// CrashOnPanic makes a panic of the handler end the process, as without this package.
	CrashOnPanic bool

	// Logger logs a key's failures number 1, 2, 4, 8 and so on, keys that are given up, stuck handlers and what
	// is left undone, and at level Debug every call. Nil means [slog.Default].
	Logger *slog.Logger
	// MetricsProvider discovers the pool if it has a name, see [InspectorProvider]. Nil means that of
	// [workqueue.SetProvider].
	MetricsProvider workqueue.MetricsProvider
	// Clock must show the same time as the queue's. Nil means the real one.
	Clock clock.Clock
}

// Special values.
const (
	// UnlimitedRetries as MaxRetries, the default, gives no key up for the number of its failures.
	UnlimitedRetries = 0
	// NoRetries as MaxRetries gives a key up when it fails for the first time.
	NoRetries = -1
	// NoGrace as CancelGrace makes Run not wait for handlers whose contexts have ended.
	NoGrace time.Duration = -1
)

// Drain is what a [Pool] finishes before it ends, for as long as DrainTimeout allows.
type Drain uint8

const (
	// Running finishes the handlers that run. Queued keys are not started.
	Running Drain = iota
	// All also shuts the queue down, which drops keys that wait for their time, and handles what is queued.
	// Failures are not retried.
	All
	// Nothing ends the handlers' contexts at once.
	Nothing
)

// check returns an error that names every field with a value that makes no sense.
func (o *Options[T]) check() error {
	var errs []error
	refuseIf := func(bad bool, what string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("worker: Options."+what, args...))
		}
	}
	refuseIf(o.Workers < 0, "Workers is negative: %v", o.Workers)
	refuseIf(o.MaxRetries < 0 && o.MaxRetries != NoRetries,
		"MaxRetries is %v: the only negative value is NoRetries", o.MaxRetries)
	refuseIf(o.RetryFor < 0, "RetryFor is negative: %v", o.RetryFor)
	refuseIf(o.DrainTimeout < 0, "DrainTimeout is negative: %v", o.DrainTimeout)
	refuseIf(o.CancelGrace < 0 && o.CancelGrace != NoGrace, "CancelGrace is negative: %v", o.CancelGrace)
	refuseIf(o.HandlerTimeout < 0, "HandlerTimeout is negative: %v", o.HandlerTimeout)
	refuseIf(o.StuckAfter < 0, "StuckAfter is negative: %v", o.StuckAfter)
	refuseIf(o.Resync < 0, "Resync is negative: %v", o.Resync)
	refuseIf(o.Resync > 0 && o.List == nil, "Resync needs List")
	refuseIf(o.Drain > Nothing, "Drain is not Running, All or Nothing: %d", o.Drain)
	refuseIf(o.Drain == All && o.KeepQueue,
		"Drain is All, which shuts the queue down, and KeepQueue forbids that")
	refuseIf(o.StartLimit != nil && o.StartLimit.Burst() < 1 && o.StartLimit.Limit() != rate.Inf,
		"StartLimit has no burst, so no call would ever begin")
	return errors.Join(errs...)
}

// setDefaults replaces zero values by what they mean.
func (o *Options[T]) setDefaults() {
	o.Workers = cmp.Or(o.Workers, 1)
	o.DrainTimeout = cmp.Or(o.DrainTimeout, 30*time.Second)
	o.CancelGrace = cmp.Or(o.CancelGrace, time.Second)
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
}

// buckets returns the buckets of the histograms: the provider's, or our own if these make no sense.
func (o *Options[T]) buckets() *observe.Buckets {
	bounds := observe.HandlerBounds
	if p, ok := o.provider().(interface{ PoolHistogramBounds() []float64 }); ok {
		if own := p.PoolHistogramBounds(); own != nil {
			bounds = own
		}
	}
	buckets, err := observe.BucketsOf(bounds)
	if err != nil {
		cmp.Or(o.Logger, slog.Default()).Warn("PoolHistogramBounds of the provider are not used", "err", err)
		buckets, _ = observe.BucketsOf(observe.HandlerBounds)
	}
	return buckets
}

// provider returns the provider of metrics, or nil.
func (o *Options[T]) provider() any {
	if global := observe.Global.Load(); o.MetricsProvider == nil && global != nil {
		return *global
	}
	return o.MetricsProvider
}
