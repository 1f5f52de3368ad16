package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/keyedqueue/workqueue"
	"k8s.io/utils/clock"
)

// The causes, see [context.Cause], that end a handler's context during its call, beside those of its lease
// and, with [Nothing] as Options.Drain, of Run's context.
var (
	// ErrDrainTimeout: Options.DrainTimeout has passed.
	ErrDrainTimeout = errors.New("worker: the handler did not finish within Options.DrainTimeout")
	// ErrStopped: [Pool.Stop] was called with [Nothing].
	ErrStopped = errors.New("worker: the pool was stopped, and does not wait for its handlers")
	// ErrCanceled: [Pool.Cancel] was called.
	ErrCanceled = errors.New("worker: Cancel was called for the key")
	// ErrAdded: an add ends a context of [Call.UntilAdded]. A handler may return it: see the package comment.
	ErrAdded = errors.New("worker: the key was added again")
)

// Call is a running call, as its handler sees it. After the call its methods return zero values. Any
// goroutine may call them. Over a queue on a server UntilAdded and LastAttempt may wait up to a second for
// it.
type Call struct {
	ctx context.Context
	anyCall
}

// CallOf returns the call whose context ctx is, or is made from. Of another context it returns a call that
// has ended.
func CallOf(ctx context.Context) Call {
	if c, ok := ctx.Value(callKey{}).(anyCall); ok {
		return Call{ctx, c}
	}
	return Call{ctx, noCall}
}

// callKey is the key in a handler's context of the *Tracked, which is an anyCall.
type callKey struct{}

// anyCall is what a Call needs of its *Tracked. It hides the type of the key.
type anyCall interface {
	info() callInfo
	logger() *slog.Logger
	causes() workqueue.Causes
	lastAttempt() bool
	untilAdded(ctx context.Context) context.Context
	arrangeHold(reason string, limit time.Duration) (release func())
	requestOf(err error) request
}

// noCall is a call that has ended.
var noCall anyCall = &Tracked[string]{tracker: new(Tracker[string]), base: context.Background()}

// callInfo is the part of a Call that is read under the tracker's mu. It is zero after the call.
type callInfo struct {
	attempt, priority, atOnce int
	hasPriority               bool
	failingSince              time.Time
}

// Attempt returns 1, plus the number of failures in a row before this call.
func (c Call) Attempt() int { return c.info().attempt }

// AtOnce returns how many calls in a row before this one wanted the key again at once: they were interrupted
// or returned RequeueAfter(0), and no hold of a millisecond followed. After the sixth the key is slowed down:
// it comes 5 ms later, then 10 ms and so on up to 10 s.
func (c Call) AtOnce() int { return c.info().atOnce }

// FailingSince returns when the first of the failures in a row before this call happened, or zero.
func (c Call) FailingSince() time.Time { return c.info().failingSince }

// LastAttempt reports whether the key is given up if this call fails now.
func (c Call) LastAttempt() bool { return c.lastAttempt() }

// Priority returns the key's priority when the call began, or false if the queue is no [operate.Operable].
func (c Call) Priority() (priority int, ok bool) {
	i := c.info()
	return i.priority, i.hasPriority
}

// Logger returns Options.Logger with the attributes "queue" and, until the call ends, "key". Without a call
// it is [slog.Default].
func (c Call) Logger() *slog.Logger { return cmp.Or(c.logger(), slog.Default()) }

// Causes returns why the key came, for display and traces. Retries and many adds have no cause.
func (c Call) Causes() workqueue.Causes { return c.causes() }

// UntilAdded returns a child of the context that CallOf got, and without a call that context. It also ends,
// with the cause [ErrAdded], when the key is added again or comes due, but not by adds with a Quiet
// [workqueue.Cause]. A handler that then returns ErrAdded or [context.Canceled] has not failed. UntilAdded
// may be called in a loop: it returns the same context until that has ended.
func (c Call) UntilAdded() context.Context { return c.untilAdded(c.ctx) }

// Hold makes the key wait after this call, no matter what the handler returns, until release is called or
// limit has passed. After nil the key comes only if somebody adds it, after RequeueAfter(0) when the hold
// ends.
//
//	release := worker.CallOf(ctx).Hold("web is rolled out", 10*time.Minute)
//	rollouts.Notify("web", release)
//	return worker.RequeueAfter(0)
//
// A key on hold occupies no worker, its adds are merged, and in a priorityqueue it takes a place in the Limit
// of its group. A hold ends early by [Pool.Release], with the key's lease, when a [leasing.Leaser] wants the
// key back, when Drain All begins, when the queue is shut down and has nothing queued, and with Run. So a key
// may come too early.
//
// Any goroutine may call release, at any time and more than once. It calls the queue's Done. If Hold is
// called again, the hold lasts until each release was called or the longest limit has passed. The first
// reason is shown, cut to 200 bytes. Hold panics if limit is not positive.
func (c Call) Hold(reason string, limit time.Duration) (release func()) {
	if limit <= 0 {
		panic(fmt.Sprintf("worker: Hold for %v: a limit is positive", limit))
	}
	return c.arrangeHold(reason, limit)
}

// withTimeout is context.WithTimeout on the configured clock. With a fake one Err is Canceled at the timeout,
// and the cause is DeadlineExceeded.
func withTimeout(parent context.Context, c clock.Clock, d time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := c.(clock.RealClock); ok {
		return context.WithTimeout(parent, d)
	}
	ctx, cancel := context.WithCancelCause(parent)
	stop := afterFunc(c, d, func() { cancel(context.DeadlineExceeded) })
	return ctx, func() { stop(); cancel(nil) }
}

// afterFunc is time.AfterFunc on the configured clock.
func afterFunc(c clock.Clock, d time.Duration, f func()) (stop func()) {
	if _, ok := c.(clock.RealClock); ok {
		timer := time.AfterFunc(d, f)
		return func() { timer.Stop() }
	}
	ctx, cancel := context.WithCancel(context.Background())
	timer := c.NewTimer(d) // Not in the goroutine: a fake clock may be stepped before that runs.
	go func() {
		if await(ctx, timer) {
			f()
		}
	}()
	return cancel
}

// await waits for timer, and reports whether ctx has not ended before.
func await(ctx context.Context, timer clock.Timer) bool {
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-ctx.Done():
		return false
	}
}

// addWatch is the last context of UntilAdded. The tracker's mu guards it.
type addWatch struct {
	parent, child context.Context
	wasAdded      bool // a child has ended because the key was added again
}

func (c *Tracked[T]) untilAdded(parent context.Context) context.Context {
	t := c.tracker
	if !c.isRunning() {
		return parent
	}
	added := t.queue.AddedAgain(c.result.Key)
	if added == nil {
		return parent
	}
	t.mu.Lock()
	last := c.adds
	t.mu.Unlock()
	if last.parent == parent && last.child.Err() == nil && !isClosed(added) {
		return last.child
	}
	child, cancel := context.WithCancelCause(parent)
	wait := func() {
		select {
		case <-added:
			t.mu.Lock()
			c.adds.wasAdded = true // Before the cancel, which may make the handler return at once.
			t.mu.Unlock()
			cancel(ErrAdded)
		case <-child.Done():
		case <-c.callCtx.Done(): // The handler may have passed a context that outlives the call.
			cancel(context.Cause(c.callCtx))
		}
	}
	if isClosed(added) { // At once, not only when a goroutine runs.
		wait()
		return child
	}
	t.mu.Lock()
	c.adds.parent, c.adds.child = parent, child
	t.mu.Unlock()
	go wait()
	return child
}

// wasAdded reports whether a context.Canceled that the handler returns means an add: that has ended a context
// of UntilAdded, and nothing has canceled the handler's own context.
func (c *Tracked[T]) wasAdded() bool {
	c.tracker.mu.Lock()
	defer c.tracker.mu.Unlock()
	return c.adds.wasAdded && !errors.Is(c.ctx.Err(), context.Canceled)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
