package workqueue

import (
	"context"
	"errors"
	"iter"
	"time"
)

// This file is the contract beyond client-go's interfaces: what every queue has (Extended), and a
// rate-limiting queue (ExtendedRateLimiting). Package operate has what operators do with a queue, and package
// leasing what processes share. No queue has other interfaces.
//
// All four can get further methods. So only a type that embeds one of them, or Unimplemented, implements
// them: then a method that is added later is inherited, from the queue below or with its default.

// ErrShutDown is returned by GetContext when the queue is shutting down and nothing is queued, and by
// ShutDownContext when a call of ShutDown ended its wait before everything was finished.
var ErrShutDown = errors.New("workqueue: queue is shut down")

// Extended is what this package's queues offer beyond client-go's interfaces. Every queue of this project
// implements it, at every layer and behind every wrapper, and package foreign makes one of any other:
//
//	q := workqueue.NewTypedRateLimitingQueue(limiter).(workqueue.Extended[string])
//
// A queue of yours implements it by embedding an Extended, and overrides what it changes. With a Get of its
// own it also needs a GetContext and a Next.
type Extended[T comparable] interface {
	TypedInterface[T]
	// mustEmbed keeps types that embed nothing of this package from implementing the interface.
	mustEmbed(T)

	// Next is GetContext that also returns what the queue knows of the key at that moment.
	Next(ctx context.Context) (HandOut[T], error)
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

	// AddCause is Add that says why. When adds are merged, so are their causes: see Causes.
	AddCause(key T, cause Cause)
	// Causes returns why key was added: of a held key until its hand-out, of a queued key so far. (A queue on a
	// server knows it of held keys alone.) Done forgets it.
	Causes(key T) Causes
	// AddedAgain returns a channel that is closed when key, which the caller holds, is added again, at once
	// or because its time has come, and closed already if that has happened since the hand-out. Adds with a
	// Quiet cause do not count, nor any after Done. It is nil if no worker holds the key.
	AddedAgain(key T) <-chan struct{}
	// AddedAt returns when key, which a worker holds, was first added or came due before it was handed out;
	// later adds do not count. It is zero for other keys, without metrics, and if the queue does not know.
	AddedAt(key T) time.Time

	// PutOnHold says that the work on key, which the caller holds, has ended, and that Done comes later. The
	// queue counts the time since the hand-out as work, and the time from now on as none: Stats.OnHold counts
	// the key, and the lists of Snapshot leave it out. All else is as before. It does nothing for another key,
	// or if key is on hold already.
	PutOnHold(key T)

	// Stats returns the queue's numbers. It asks no server, and its cost does not grow with the number of keys.
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
// rate-limiting queue of this project implements it, and package foreign makes one of any other.
//
// A worker whose call has failed calls Fail instead of AddRateLimited. The queue counts the failure, unless
// the delay of the failure before it has not passed yet: then an event has brought the key early, and it is
// the same failure, due when it was due before. So events inflate no delay and use up no retries
// (kubernetes/kubernetes#132805). The queue keeps the count and the end of the delay for failing keys alone,
// on its own monotonic clock: the wall clock plays no part, nor does a limiter that forgets by itself.
// Forget, Remove and giving up end the count. Giving up also takes back the retry that waits for the end of
// its delay, if an event has brought the key early. A success must call Forget, as always.
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
	// ctx.
	Fail(ctx context.Context, key T, f Failure) (Retry, error)
	// Failures returns what the queue knows of the calls for key that have failed in a row, by Fail: zero for a
	// key that has not failed, was forgotten, removed or given up. It is cheap while nothing fails.
	Failures(key T) Failures
	// FailingKeys returns up to limit of the keys whose failures it counts, those that have failed most often
	// first, also those that are not in the queue. In memory it looks at all of them, a few hundred under one
	// lock. A queue on a server asks that for up to a second, and returns what it has got by then.
	FailingKeys(limit int) []KeySnapshot[T]
}

// HandOut is a key that a worker has got, with what the queue knew when it handed the key out.
type HandOut[T comparable] struct {
	Key T
	// Failures are those of the calls for Key before this one. With Left the call comes early, before the delay
	// after the last failure has passed: it is attempt Count, and otherwise Count+1.
	Failures Failures
	// Priority is zero in a queue without priorities.
	Priority int
	// AddedAt is when Key was first added or came due since its last hand-out: zero without metrics, or if the
	// queue does not know.
	AddedAt time.Time
	// HasCauses reports that Causes returns some.
	HasCauses bool
	// AtOnce is how many calls for Key in a row the ends of processes have interrupted before this one, each
	// time it was handed back: see HandBack of leasing.Answerer. It is zero if no other process has the queue.
	AtOnce int
}

// Failures are the calls for a key that have failed in a row. Zero means that the last one has not failed.
type Failures struct {
	// Count is how many there are. What fails before the delay of the failure before it has passed is the same.
	Count int
	// Left is what is left of the delay after the last.
	Left time.Duration
	// Since is when the first of them failed.
	Since time.Time
	// Err is the text of the latest error, up to 512 bytes of it.
	Err string
}

// Failure is a call that has failed, for Fail of [ExtendedRateLimiting].
type Failure struct {
	// Err is why. The queue keeps its text as long as it counts the failure: see [Failures].
	Err error
	// AtLeast is the shortest time until the key is retried, as for a server that says how long to stay away.
	AtLeast time.Duration
	// MaxRetries is how many failures in a row are retried. Zero means all, a negative number none.
	MaxRetries int
	// RetryFor gives the key up at its first failure after it has been failing for longer than that. Zero means
	// no limit.
	RetryFor time.Duration
	// Terminal gives the key up now, regardless of MaxRetries and RetryFor.
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

// Unimplemented is embedded by queues that implement [Extended] or [ExtendedRateLimiting] method by method,
// as those of package priorityqueue. It has the default of each method that is added to them after v1.
type Unimplemented[T comparable] struct{}

func (Unimplemented[T]) mustEmbed(T) {}
