package worker

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// holdReason is one reason to keep a key from starting, and the error that [Hold] returns. It ends when it is
// released, at its limit, with the key's lease, or with the pool.
type holdReason struct {
	reason string
	limit  time.Duration
	pause  bool // the pool itself has made it, see interrupted.go

	returned  atomic.Bool            // a call of the handler has returned it
	ended     atomic.Bool            // it was released, or the hold has ended
	onRelease atomic.Pointer[func()] // what release calls, while the key is on hold
}

// maxReason bounds the memory of a held key.
const maxReason = 200

// errHoldTwice is the failure of a call that returns the error of an earlier one.
var errHoldTwice = errors.New(
	"worker: an error of Hold was returned a second time: each call of the handler needs its own")

// Hold returns an error for a handler to return, bare or wrapped, that makes its key wait for something
// outside the program. The worker is free at once. The key does not start, whatever is added meanwhile, until
// release is called or limit has passed, whichever is first. Then it comes at once, with the priority that it
// has. This is no failure: nothing is counted or forgotten. But a key whose holds are released within a
// millisecond more than five times in a row is slowed down: see [Stats].Looping.
//
//	return worker.Hold("web is rolled out", 10*time.Minute, func(release func()) {
//		rollouts.Notify("web", release)
//	})
//
// Hold calls arrange at once, which must see to it that release is called later. A held key needs no
// goroutine and no timer of its own: for the end of a context, context.AfterFunc(ctx, release) does it.
// release may be called from any goroutine, any number of times, also before the handler has returned and
// after the pool has ended. It calls the queue's Done.
//
// The reason is short text for people, of which 200 bytes are kept. If the error is joined with a failure,
// with RequeueAfter or with Every, that counts as it would alone, and the key does not start before its hold
// has ended either. Of several Holds all must have ended. An error of Hold is for one call: to return it
// again is a failure. Hold panics if limit is not positive or arrange is nil.
//
// See [Call.Hold] for a hold after any answer, also nil, and the package comment for what ends a hold early.
func Hold(reason string, limit time.Duration, arrange func(release func())) error {
	if limit <= 0 {
		panic(fmt.Sprintf("worker: Hold for %v: a limit is positive", limit))
	}
	if arrange == nil {
		panic("worker: Hold without a function that arranges the release")
	}
	h := &holdReason{reason: cut(reason, maxReason), limit: limit}
	arrange(h.release)
	return h
}

// Error says what the key waits for.
func (h *holdReason) Error() string {
	return fmt.Sprintf("on hold, for %v at most, until %s", h.limit, h.reason)
}

// release is the function that arrange gets.
func (h *holdReason) release() {
	if h.ended.Swap(true) {
		return
	}
	// doneOrHold first stores onRelease and then looks at ended, so no release is missed.
	if onRelease := h.onRelease.Swap(nil); onRelease != nil { // The program may keep the release, but not k.
		(*onRelease)()
	}
}
