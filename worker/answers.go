package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue/stablehash"
)

// Next is what becomes of a key after a call. A queue that is shut down takes no key back: see [Left].
type Next uint8

const (
	// NextForget: the key is done.
	NextForget Next = iota
	// NextRequeue: the handler asked for the key again.
	NextRequeue
	// NextRetry: the handler has failed, and the key is retried.
	NextRetry
	// NextGiveUp: the handler has failed, and the key is handled again only if it is added.
	NextGiveUp
	// NextInterrupted: an add or the end of the pool has interrupted the handler. The key comes at once.
	NextInterrupted
	// NextLost: the key's lease has ended before the handler returned.
	NextLost
)

// String returns "forget", "requeue", "retry", "give_up", "interrupted" or "lost".
func (n Next) String() string {
	names := [...]string{"forget", "requeue", "retry", "give_up", "interrupted", "lost"}
	if int(n) < len(names) {
		return names[n]
	}
	return fmt.Sprintf("Next(%d)", uint8(n))
}

// endsChange reports whether a call that ends so ends the change that brought its key: see records.go.
func (n Next) endsChange() bool { return n == NextForget || n == NextRequeue }

func (n Next) failed() bool { return n == NextRetry || n == NextGiveUp }

// Result is how a call of the handler has ended.
type Result[T comparable] struct {
	Key T
	// Attempt is [Call.Attempt]. A call that fails before the delay of the last failure has passed has the
	// number of that failure.
	Attempt int
	// Started is when the call began, and Duration how long the handler took.
	Started  time.Time
	Duration time.Duration
	// Err is what the handler returned, a [*PanicError] or [ErrGoexit].
	Err  error
	Next Next
	// After is the delay of NextRequeue, and the least delay of NextRetry.
	After time.Duration
	// Priority is the priority that a [Requeue] asks for, or nil.
	Priority *int
	// AtOnce is how many calls for the key in a row, this one included, wanted it again at once.
	AtOnce int
}

// Requeue is an error for a handler that wants its key again.
type Requeue struct {
	// After is when the key is due: after this time, or at once unless it is positive.
	After time.Duration
	// Priority is the key's new priority in an [operate.Operable], unless an add meanwhile has a higher one.
	// Nil keeps its priority.
	Priority *int
}

// RequeueAfter returns Requeue{After: d}.
func RequeueAfter(d time.Duration) error { return Requeue{After: d} }

// Error describes when the key is due.
func (r Requeue) Error() string { return fmt.Sprintf("again after %v", r.After) }

type everyError struct{ period time.Duration }

// Every returns an error for a handler that wants its key again once in each period, for the first time
// within 1.001 periods. The moment follows from a hash of the key, so many keys spread over the period, and
// restarts do not change it. Every panics if period <= 0.
func Every(period time.Duration) error {
	if period <= 0 {
		panic(fmt.Sprintf("worker: Every(%v): a period is positive", period))
	}
	return everyError{period}
}

func (e everyError) Error() string { return fmt.Sprintf("again every %v", e.period) }

// untilMoment returns the time from now until the key's next moment. See Every.
func (t *Tracker[T]) untilMoment(key T, period time.Duration, now time.Time) time.Duration {
	var hash uint64
	if hasher, err := t.hasher(); err == nil {
		hash = hasher.Hash(key)
	} else {
		hash = stablehash.String(fmt.Sprint(key)) // T has other parts than strings, integers and booleans.
	}
	return stablehash.UntilPhase(stablehash.Phase(hash, period), period, now)
}

type retryAfterError struct {
	wrapper
	after time.Duration
}

// RetryAfter wraps an error so that its key, unless err gives it up, is retried after the longer of d and the
// limiter's delay. An add may bring it earlier. Of several delays in a failure, also those of [Requeue], the
// longest counts. A nil stays nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &retryAfterError{wrapper{err}, d}
}

func (e *retryAfterError) Error() string {
	return fmt.Sprintf("%v (again after %v at the earliest)", e.wrapper, e.after)
}

// wrapper is an error with the text of the wrapped one.
type wrapper struct{ error }

func (w wrapper) Unwrap() error { return w.error }

type terminalError struct{ wrapper }

// Terminal wraps an error so that its key is given up. It returns nil if err is nil.
func Terminal(err error) error {
	if err == nil {
		return nil
	}
	return &terminalError{wrapper{err}}
}

type fatalError struct{ wrapper }

// Fatal wraps an error so that its key is given up, and Run ends as after Stop(Running) and returns the
// error. It returns nil if err is nil.
func Fatal(err error) error {
	if err == nil {
		return nil
	}
	return &fatalError{wrapper{err}}
}

// PanicError is the failure of a handler that panicked.
type PanicError struct {
	Value any    // what panic was called with
	Stack []byte // the goroutine's stack, as debug.Stack returns it
}

// Error returns the value's text, without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value if it is an error, and nil otherwise.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// ErrGoexit is the failure of a handler that called [runtime.Goexit], as t.FailNow does.
var ErrGoexit = errors.New("worker: runtime.Goexit was called")

// request is what a handler's error asks for.
type request struct {
	next     Next
	fatal    bool          // Run also ends
	handBack bool          // of NextInterrupted: the pool's end has interrupted the call
	after    time.Duration // of NextRequeue: when the key is due; of NextRetry: not before
	every    time.Duration // of NextRequeue: the period that decides when the key is due, or 0
	priority *int          // of NextRequeue: the key's new priority, nil if it keeps its priority
}

// readAnswer returns what err asks for, by the table of the package comment. If wasAdded is set, a
// context.Canceled comes from a context of UntilAdded, and is an interruption like ErrAdded.
func readAnswer(err error, wasAdded bool) request {
	if err == nil {
		return request{next: NextForget}
	}
	if _, panicked := err.(*PanicError); panicked { // What a panic was called with asks for nothing.
		return request{next: NextRetry}
	}
	var (
		fatal      *fatalError
		terminal   *terminalError
		retryAfter *retryAfterError
		every      everyError
		requeue    Requeue
	)
	hasRequeue := errors.As(err, &requeue)
	switch {
	case errors.As(err, &fatal):
		return request{next: NextGiveUp, fatal: true}
	case errors.As(err, &terminal):
		return request{next: NextGiveUp}
	case errors.As(err, &retryAfter), hasRequeue && hasFailure(err, wasAdded):
		return request{next: NextRetry, after: longestDelay(err)}
	case hasRequeue:
		return request{next: NextRequeue, after: max(0, requeue.After), priority: requeue.Priority}
	case errors.As(err, &every) && !hasFailure(err, wasAdded):
		return request{next: NextRequeue, every: every.period}
	case isInterruption(err, wasAdded):
		return request{next: NextInterrupted}
	}
	return request{next: NextRetry}
}

// longestDelay returns the longest delay that a RetryAfter or Requeue in err asks for, or zero.
func longestDelay(err error) (d time.Duration) {
	switch e := err.(type) {
	case Requeue:
		return e.After
	case *retryAfterError:
		return max(e.after, longestDelay(e.error))
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			d = max(d, longestDelay(err))
		}
	case interface{ Unwrap() error }:
		return longestDelay(e.Unwrap())
	}
	return d
}

// hasFailure reports whether err has an error in it, beside its Requeue or Every, that asks for nothing.
func hasFailure(err error, wasAdded bool) bool {
	switch e := err.(type) {
	case nil, Requeue, everyError:
		return false
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), func(err error) bool { return hasFailure(err, wasAdded) })
	case interface{ Unwrap() error }:
		if within := e.Unwrap(); within != nil {
			return hasFailure(within, wasAdded)
		}
	}
	return !isInterruption(err, wasAdded)
}

func isInterruption(err error, wasAdded bool) bool {
	return errors.Is(err, ErrAdded) || wasAdded && errors.Is(err, context.Canceled)
}

// NextOf returns what becomes of the key if the call of ctx returns err now, for functions that wrap
// handlers. It is NextRetry even for a failure that would give the key up for its number or age.
func NextOf(ctx context.Context, err error) Next {
	return CallOf(ctx).requestOf(err).next
}
