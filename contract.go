package workqueue

import (
	"context"
	"errors"
	"iter"
	"math"
	"time"
)

// This file is the contract beyond client-go's interfaces: what every queue has (Extended), a rate-limiting
// queue (ExtendedRateLimiting), operators (Operable) and leases (Leaser). No queue has other ones.

// ErrShutDown is returned by GetContext when the queue is shutting down and nothing is queued, and by
// ShutDownContext when a call of ShutDown ended its wait before everything was finished.
var ErrShutDown = errors.New("workqueue: queue is shut down")

// Extended is what this package's queues offer beyond client-go's interfaces. Every queue of this project
// implements it, at every layer and behind every wrapper, and [Extend] makes one of any other:
//
//	q := workqueue.NewTypedRateLimitingQueue(limiter).(workqueue.Extended[string])
type Extended[T comparable] interface {
	TypedInterface[T]
	// GetContext is Get that gives up when ctx is done, also if keys are queued: then it takes none and returns
	// ctx.Err(). After shutdown, when nothing is queued, it returns ErrShutDown. It panics if ctx is nil.
	GetContext(ctx context.Context) (item T, err error)
	// ShutDownContext is ShutDownWithDrain, waiting no longer than ctx. It returns nil when nothing is queued
	// and nothing is being processed, ctx.Err() if ctx was done first, and ErrShutDown if a call of ShutDown
	// ended the wait. Afterwards the queue is shutting down in every case. A further call waits on.
	ShutDownContext(ctx context.Context) error
	// DropQueued takes all queued keys out of a queue that is shutting down, and returns them in their order:
	// for an end at which nobody will handle them. From then on nothing is queued any more, not even a key that
	// was added while a worker holds it, and drains wait only for keys that are held. Stats.Dropped counts what
	// is dropped. Before shutdown, and in a queue that processes share, it changes nothing and returns nil.
	DropQueued() []T

	// AddCause is Add that says why. The causes of adds that are merged are merged, too: see Causes.
	AddCause(key T, cause Cause)
	// Causes returns why key was added: of a held key until its hand-out, of a queued key so far. (A queue on a
	// server knows it of held keys alone.) Done forgets it.
	Causes(key T) Causes
	// AddedAgain returns a channel that is closed when key, which the caller holds, is added again, at once
	// or because its time has come, and closed already if that has happened since the hand-out. Adds with a
	// Quiet cause do not count, nor any after Done. It is nil if no worker holds the key.
	AddedAgain(key T) <-chan struct{}
	// AddedAt returns when key, which a worker holds, was first added or came due before it was handed out,
	// whatever was added since. It is zero for other keys, without metrics, and if the queue does not know.
	AddedAt(key T) time.Time

	// Stats returns the queue's numbers in constant time.
	Stats() Stats
	// Snapshot returns Stats and up to limit keys of each state, at most 512 of each, oldest first.
	Snapshot(limit int) Snapshot[T]
	// SnapshotKey returns what the queue knows of key, and whether key is in the queue. A key that is queued
	// or held, and waits for its time as well, is shown as queued or processing with the Due of its waiting.
	SnapshotKey(key T) (k KeySnapshot[T], found bool)
	// SnapshotKeys yields the keys of every state, in no particular order. It copies a few hundred keys at a
	// time and holds no lock while it yields them. A key that is in two states is yielded once for each. A key
	// that moves meanwhile may be yielded twice, or not at all.
	SnapshotKeys() iter.Seq[KeySnapshot[T]]
}

// ExtendedRateLimiting is a rate-limiting queue that also says what a failure means, and counts it. Every
// rate-limiting queue of this project implements it, and [ExtendRateLimiting] makes one of any other.
//
// A worker whose call has failed calls Fail instead of AddRateLimited. The queue counts the failure, unless
// the delay of the failure before it has not passed yet: then an event has brought the key early, and it is
// the same failure, due when it was due before. So events inflate no delay and use up no retries
// (kubernetes/kubernetes#132805). The queue keeps the count and the end of the delay for failing keys alone,
// on its own monotonic clock: the wall clock plays no part, nor does a limiter that forgets by itself.
// Forget, Remove and giving up end the count. A success must call Forget, as always.
type ExtendedRateLimiting[T comparable] interface {
	TypedRateLimitingInterface[T]
	Extended[T]
	// Fail says that the call for key, which the caller holds, has failed. It counts the failure and makes the
	// key come again after the limiter's delay, or after f.AtLeast if that is longer; an add may bring it
	// earlier. Or it gives the key up and forgets its failures. The caller still has to call Done. After
	// shutdown Fail counts, and adds nothing.
	//
	// An error means that a server keeps the count, and has not answered before ctx was done. Retry is then
	// what this process knows; the server gets the failure and the key when it is back. Queues in memory ignore
	// ctx. A panic of the limiter reaches the caller, and then nothing was counted or added.
	Fail(ctx context.Context, key T, f Failure) (Retry, error)
	// Failures returns how many calls for key have failed in a row, by Fail, and what is left of the delay
	// after the last: zero for a key that has not failed, was forgotten, removed or given up. A call for a
	// held key is attempt n+1, or n if it fails before the delay is over. It is cheap while nothing fails.
	Failures(key T) (n int, left time.Duration)
}

// Failure is a call that has failed, for Fail of [ExtendedRateLimiting].
type Failure struct {
	// Err is why. Queues that keep given-up keys keep its text.
	Err error
	// AtLeast is the shortest time until the key comes again, as for a server that says how long to stay away.
	AtLeast time.Duration
	// MaxRetries is how many failures in a row are retried. Zero means all, a negative number none.
	MaxRetries int
	// Terminal gives the key up now, whatever MaxRetries is.
	Terminal bool
}

// Retry is what a queue makes of a [Failure].
type Retry struct {
	// Attempt is how many calls have failed in a row, this one included. The same failure counts once.
	Attempt int
	// Delay is how long the key waits, unless an add brings it earlier. It is zero if the key is given up, and
	// if a foreign queue below does not say.
	Delay time.Duration
	// Same reports that the call failed before the delay of the failure before it was over.
	Same bool
	// GivenUp reports that this failure does not bring the key again.
	GivenUp bool
}

// Operable is a queue whose keys operators and schedulers can do more with: package priorityqueue, queues
// that processes share, and their wrappers. Without groups PausedGroups returns nil and PauseGroup does
// nothing; without priorities each is zero.
type Operable[T comparable] interface {
	// AddWithPriority adds key with that priority after the given time, or at once unless that is positive. It
	// is for the worker that holds the key and asks for another run, and for schedulers.
	AddWithPriority(key T, priority int, after time.Duration)
	// PriorityOf returns the priority with which key was handed out, if a worker holds it, and otherwise that
	// with which it will be. It is zero for a key that is not in the queue.
	PriorityOf(key T) int
	// Remove takes key out of the queue, forgets its failures and reports whether it was there. A key that a
	// worker holds stays with that worker. It comes again only if the worker asks for it, or fails it.
	Remove(key T) bool
	// Pause makes the queue hand out nothing for d, or until Resume with [UntilResumed]. It does nothing if d is
	// not positive. Of several pauses the latest end counts. Keys are still added and come due. A shutdown ends
	// all pauses. Stats.Paused and PausedUntil show it.
	Pause(d time.Duration)
	// Resume ends a pause of the queue. Groups that are paused stay so.
	Resume()
	// PauseGroup is Pause for the keys of one group, also of one that has none yet.
	PauseGroup(group string, d time.Duration)
	// ResumeGroup ends a pause of the group.
	ResumeGroup(group string)
	// PausedGroups returns the groups that are paused, sorted. Without groups it is nil, and only then.
	PausedGroups() []string
	// SnapshotGroup returns what is known of a group. It takes constant time.
	SnapshotGroup(group string) GroupSnapshot
	// GivenUpKeys returns up to limit keys that the queue itself keeps because they are not tried any more, the
	// latest first. RetryGivenUp adds one of them again, ForgetGivenUp forgets it; they report whether it was
	// there. A queue in memory keeps none: package worker does.
	GivenUpKeys(limit int) []GivenUpKey[T]
	RetryGivenUp(key T) bool
	ForgetGivenUp(key T) bool
	// Below returns the queue that this one wraps, or nil. Tools show only the outermost.
	Below() any
}

// UntilResumed is the length of a pause without an end.
const UntilResumed time.Duration = math.MaxInt64

// GroupSnapshot is what a queue knows of a group of keys.
type GroupSnapshot struct {
	// Keys is how many keys of the group are in the queue: queued, waiting or held. Held is how many of them
	// workers have or have put on hold, and Limit how many that may be, or zero if there is no limit.
	Keys, Held, Limit int
	// Paused reports that the group is paused, until PausedUntil, or without an end if that is zero.
	Paused      bool
	PausedUntil time.Time
}

// GivenUpKey is a key that is not tried any more.
type GivenUpKey[T comparable] struct {
	Key      T
	Attempts int
	Err      string
	Time     time.Time // when it was given up
}

// ErrLeaseLost is the cause with which a handler's context ends when the lease of its key is lost, so that
// another replica may have the key: see [Leaser].
var ErrLeaseLost = errors.New("workqueue: the lease is lost")

// Leaser is a queue that hands out keys for a limited time, such as one that many processes share. A worker
// that got a key from it calls Lease before it handles the key, and passes the returned context to the
// handler. That context is derived from ctx and ends, with a cause, when another worker may have got the key.
// The worker calls the returned function after the handler has returned, and Done as always. Lease does not
// block. For a key that no worker holds it returns ctx. Package worker does all this.
type Leaser[T comparable] interface {
	Lease(ctx context.Context, key T) (context.Context, context.CancelFunc)
	// LeaseHeld is Lease for a key that is on hold: its handler has returned, and its Done comes later. The
	// context also ends when the queue wants the key back.
	LeaseHeld(ctx context.Context, key T) (context.Context, context.CancelFunc)
	// Facts returns what only this kind of queue knows of its part, for people.
	Facts() []Fact
	// Below returns the queue that this one wraps, as in [Operable], or nil.
	Below() any
}
