package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue/stablehash"
)

// Next is what becomes of a key after a call of its handler. When the queue is shut down, and takes no keys
// back, all but NextForget and NextGiveUp are what would have become of it; see [Left].
type Next uint8

const (
	// NextForget: the key is done, and its failures are forgotten.
	NextForget Next = iota
	// NextRequeue: the handler asked for the key again. See [Requeue], [RequeueAfter] and [Every].
	NextRequeue
	// NextRetry: the handler has failed, and the key comes again when the queue's limiter says, see also
	// [RetryAfter]. A failure within the delay of the one before is the same one: count and delay stay.
	NextRetry
	// NextGiveUp: the handler has failed, and the key does not come again by itself: only if it is added.
	NextGiveUp
	// NextInterrupted: an add of the key has interrupted its handler, or the handler says so with ErrAdded. It
	// comes again at once, or after a pause if that happens more than five times in a row. Failures are neither
	// counted nor forgotten, and the queue's limiter is not called. See [Call.UntilAdded].
	NextInterrupted
	// NextHold: the key comes again when it is released, or a limit has passed. Failures are neither counted
	// nor forgotten. See [Hold].
	NextHold
)

// String returns "forget", "requeue", "retry", "give_up", "interrupted" or "hold".
func (n Next) String() string {
	names := [...]string{"forget", "requeue", "retry", "give_up", "interrupted", "hold"}
	if int(n) < len(names) {
		return names[n]
	}
	return fmt.Sprintf("Next(%d)", uint8(n))
}

// answers reports whether a call that ends so answers the change that brought its key: see unanswered.go.
func (n Next) answers() bool { return n == NextForget || n == NextRequeue }

func (n Next) failed() bool { return n == NextRetry || n == NextGiveUp }

// Result is what a call of the handler has come to.
type Result[T comparable] struct {
	Key T
	// Attempt is 1 for the first call, and one more after each failure in a row. A call that fails before the
	// delay after the last failure is over has the number of that failure. The number is the queue's: if
	// processes share it, for all of them.
	Attempt int
	// Started is when the call began, and Duration how long the handler took.
	Started  time.Time
	Duration time.Duration
	// Err is what the handler returned, a [*PanicError] or [ErrGoexit].
	Err error
	// Next is what becomes of the key.
	Next Next
	// After is the delay of a Requeue or [Every] or, with NextRetry, of a [RetryAfter].
	After time.Duration
	// Priority is what a [Requeue] asks for. With nil the key keeps its priority.
	Priority *int
}

// Requeue is an error for a handler to return, bare or wrapped, that wants its key again. As with nil,
// earlier failures are forgotten.
type Requeue struct {
	// After is when the key comes again: after this time, or at once unless it is positive.
	After time.Duration
	// Priority is the key's new priority; nil keeps the one that it has. If the key was added meanwhile with
	// a higher one, it keeps that. In a queue that is no [operate.Operable] it means nothing.
	Priority *int
}

// RequeueAfter returns Requeue{After: d}.
func RequeueAfter(d time.Duration) error { return Requeue{After: d} }

// Error describes when the key comes again.
func (r Requeue) Error() string {
	if r.Priority != nil {
		return fmt.Sprintf("again after %v with priority %d", r.After, *r.Priority)
	}
	return fmt.Sprintf("again after %v", r.After)
}

type everyError struct{ period time.Duration }

// Every returns an error for a handler to return, bare or wrapped, that wants its key again once in each
// period, at the key's own moment, without having failed. The moment follows from a hash of the key, on every
// replica and after every restart the same, so the work of many keys spreads over the period. Keys come for
// the first time within a period and a thousandth of one. Other adds make a key come in between, and change
// nothing. Keys that are not made of strings, integers and booleans are hashed by their text, as fmt.Sprint
// has it; if that has a pointer's address, the moment changes with each restart. Every panics if period <= 0.
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

// RetryAfter wraps an error so that its key does not come again before d by itself: for servers that say how
// long to stay away. An event that adds the key brings it all the same. The call has failed and is counted,
// and the key comes again after the longer of d and the limiter's delay; of several RetryAfters the longest
// counts. A queue that is not of this project brings it after d, and does not ask its limiter. (The root
// package's queue cannot move a waiting key: it comes at the end of an earlier delay, if the call has failed
// within that.) It returns nil if err is nil.
//
// errors.Join(err, RequeueAfter(d)) means the same. If a Kubernetes API server's error says how long to stay
// away, this package does not look for that: see apierrors.SuggestsClientDelay and docs/backoff.md.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &retryAfterError{wrapper{err}, d}
}

func (e *retryAfterError) Error() string {
	return fmt.Sprintf("%v (again after %v at the earliest)", e.wrapper, e.after)
}

// wrapper is an error with the text of the one that it wraps.
type wrapper struct{ error }

// Error survives a nil pointer in w, whose own Error panics in many types.
func (w wrapper) Error() string { return fmt.Sprint(w.error) }
func (w wrapper) Unwrap() error { return w.error }

type terminalError struct{ wrapper }

// Terminal wraps an error so that its key is given up: it comes again only if it is added. Of nil it is nil.
func Terminal(err error) error {
	if err == nil {
		return nil
	}
	return &terminalError{wrapper{err}}
}

type fatalError struct{ wrapper }

// Fatal wraps an error so that its key does not come again and Run ends, as after [Pool.Stop] of [Running]
// whatever Options.Drain is, and returns it. It returns nil if err is nil.
func Fatal(err error) error {
	if err == nil {
		return nil
	}
	return &fatalError{wrapper{err}}
}

// request is what a handler's error asks for.
type request struct {
	next     Next
	fatal    bool          // Run ends, too
	after    time.Duration // of NextRequeue: when the key comes again; of NextRetry: not before
	every    time.Duration // of NextRequeue: the period that decides when the key comes again, or 0
	priority *int          // of NextRequeue: the key's new priority, nil if it keeps the one that it has
}

// classify returns what err asks for, and its Holds, which then keep the key from starting: none after Fatal
// or Terminal. An error that asks for nothing else is a failure. If interrupted is set, context.Canceled
// comes from a context of UntilAdded, and is an interruption like ErrAdded.
func classify(err error, interrupted bool) (request, []*holdReason) {
	if err == nil {
		return request{next: NextForget}, nil
	}
	if _, ok := err.(*PanicError); ok { // What a panic was called with asks for nothing.
		return request{next: NextRetry}, nil
	}
	found := contents{interrupted: interrupted}
	found.note(err)
	asksAgain := found.requeues || found.every > 0
	switch {
	case found.fatal || found.terminal:
		return request{next: NextGiveUp, fatal: found.fatal}, nil
	case found.retryAfter, found.failure && (asksAgain || found.holds != nil):
		return request{next: NextRetry, after: max(found.after, found.requeue.After)}, found.holds
	case found.requeues:
		r := found.requeue
		return request{next: NextRequeue, after: r.After, priority: r.Priority}, found.holds
	case found.every > 0:
		return request{next: NextRequeue, every: found.every}, found.holds
	case found.holds != nil:
		return request{next: NextHold}, found.holds
	case isInterruption(err, interrupted): // Also beside a failure: the key comes at once anyway.
		return request{next: NextInterrupted}, nil
	}
	return request{next: NextRetry}, nil // a failure alone
}

// contents are what an error consists of: all that it wraps and joins.
type contents struct {
	interrupted bool // see classify

	fatal, terminal, retryAfter, failure, requeues bool

	after   time.Duration // the longest of the RetryAfters
	requeue Requeue       // the first, if requeues is set
	every   time.Duration // the period of the first Every, or 0
	holds   []*holdReason // each once
}

// note notes err and the errors that it wraps or joins. An error that asks for something by itself ends its
// branch in the first switch; one that wraps others, also a Terminal or Fatal, goes on to the second.
func (found *contents) note(err error) {
	switch e := err.(type) {
	case *fatalError:
		found.fatal = true
	case *terminalError:
		found.terminal = true
	case *retryAfterError:
		found.retryAfter, found.after = true, max(found.after, e.after)
	case *holdReason:
		if !slices.Contains(found.holds, e) {
			found.holds = append(found.holds, e)
		}
		return
	case everyError:
		found.every = cmp.Or(found.every, e.period)
		return
	case *Requeue: // A nil pointer asks for nothing: below it counts as a failure.
		if e != nil {
			found.note(*e)
			return
		}
	case Requeue:
		if !found.requeues {
			found.requeues, found.requeue = true, e
		}
		return
	}
	var within []error
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		within = e.Unwrap()
	case interface{ Unwrap() error }:
		within = []error{e.Unwrap()}
	}
	wraps := false
	for _, inner := range within {
		if inner != nil {
			wraps = true
			found.note(inner)
		}
	}
	if !wraps && !isInterruption(err, found.interrupted) { // It ends its branch, and has asked for nothing.
		found.failure = true
	}
}

func isInterruption(err error, interrupted bool) bool {
	return errors.Is(err, ErrAdded) || interrupted && errors.Is(err, context.Canceled)
}

// NextOf returns, for a function that wraps a handler, what becomes of the key if its call returns err. A
// failure is NextRetry even if the key will be given up for having failed too often. It does not notice that
// a Hold was returned before. ctx is from the call.
func NextOf(ctx context.Context, err error) Next {
	c := CallOf(ctx)
	asked, _ := classify(err, c.anyCall != nil && c.wasInterrupted())
	return asked.next
}
