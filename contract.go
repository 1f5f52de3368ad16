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

// ErrShutDown is returned by GetContext and Next after shutdown when nothing is queued, and by
// ShutDownContext when a call of ShutDown ended its wait.
var ErrShutDown = errors.New("workqueue: queue is shut down")

// Extended is what the queues of this project offer beyond client-go's interfaces, at every layer and behind
// every wrapper. Package foreign makes one of any other queue.
//
// A queue of yours implements it by embedding an Extended, and overrides what it changes. With a Get of its
// own it also needs a GetContext and a Next.
type Extended[T comparable] interface {
	TypedInterface[T]
	// mustEmbed keeps types that embed nothing of this package from implementing the interface.
	mustEmbed(T)

	// Next is GetContext that also returns what the queue knows of the key.
	Next(ctx context.Context) (HandOut[T], error)
	// GetContext is Get that gives up when ctx is done: then it takes no key, even if some are queued, and
	// returns ctx.Err(). After shutdown, when nothing is queued, it returns ErrShutDown. It panics if ctx is
	// nil.
	GetContext(ctx context.Context) (item T, err error)
	// ShutDownContext is ShutDownWithDrain that waits no longer than ctx, and drops no queued key. It returns
	// nil when nothing is queued or held, ctx.Err() if ctx was done first, and ErrShutDown if a call of
	// ShutDown ended the wait. The queue is shutting down in every case.
	ShutDownContext(ctx context.Context) error
	// DropQueued takes all queued keys out of a queue that is shutting down, and returns them in their order.
	// Afterwards nothing is queued any more, not even a key that was added while a worker holds it, and drains
	// wait for held keys alone. It takes a microsecond or two for each key; other calls come in between. Before
	// shutdown, and in a queue that processes share, it does nothing and returns nil.
	DropQueued() []T

	// AddCause is Add that says why. It allocates, and a key with causes takes a few hundred bytes more. When
	// adds are merged, so are their causes.
	AddCause(key T, cause Cause)
	// Causes returns why key was added: until its hand-out if a worker holds it, and so far if it is queued. (A
	// queue on a server knows it of held keys alone.) Done forgets it.
	Causes(key T) Causes
	// AddedAgain returns a channel that is closed once key, which the caller holds, has been added since its
	// hand-out, at once or because its time has come. Adds with a Quiet cause do not count, nor adds after
	// Done. It is nil if no worker holds the key.
	AddedAgain(key T) <-chan struct{}
	// AddedAt returns when key, which a worker holds, was first added or came due before its hand-out. It is
	// zero for other keys, without metrics, and if the queue does not know.
	AddedAt(key T) time.Time

	// PutOnHold ends the work on key, which the caller holds, for all counted times; Done comes later.
	// Stats.OnHold counts the key, and the lists of Snapshot leave it out. All else is as before. It does
	// nothing for another key, or if key is on hold already.
	PutOnHold(key T)

	// Stats returns the queue's numbers in constant time. It asks no server.
	Stats() Stats
	// Snapshot returns Stats and up to limit keys of each state, at most 512 of each, oldest first.
	Snapshot(limit int) Snapshot[T]
	// SnapshotKey returns what the queue knows of key, and whether key is in the queue. A queued or held key
	// that also waits for its time has that as its Due.
	SnapshotKey(key T) (k KeySnapshot[T], found bool)
	// SnapshotKeys yields the keys in no particular order, once for each state that they are in. It copies a
	// few hundred at a time and holds no lock while it yields them. A key that moves meanwhile may be yielded
	// twice, or not at all.
	SnapshotKeys() iter.Seq[KeySnapshot[T]]
}

// ExtendedRateLimiting is a rate-limiting queue that counts failures. Every rate-limiting queue of this
// project implements it, and package foreign makes one of any other.
//
// A worker whose call has failed calls Fail instead of AddRateLimited. A call that fails before the delay of
// the last failure has passed, because an event has brought the key early, is the same failure: it is not
// counted, and the retry comes when it was due before. So events inflate no delay and use up no retries
// (kubernetes/kubernetes#132805). The queue keeps counts and delays for failing keys alone, on its own
// monotonic clock. Forget, Remove and giving up end the count. Giving up also takes back a retry that still
// waits. After a success the worker must call Forget.
type ExtendedRateLimiting[T comparable] interface {
	TypedRateLimitingInterface[T]
	Extended[T]
	// Fail says that the call for key, which the caller holds, has failed. It counts the failure and adds the
	// key after the limiter's delay, or after f.AtLeast if that is longer. Or it gives the key up and forgets
	// its failures. The caller still has to call Done. After shutdown Fail counts, and adds nothing. In memory
	// it takes logarithmic time and ignores ctx.
	//
	// An error means that the server that keeps the count has not answered before ctx was done. Retry is then
	// this process's estimate, and the server gets the failure and the key when it is back.
	Fail(ctx context.Context, key T, f Failure) (Retry, error)
	// Failures returns the failures that Fail has counted for key: zero for a key that has not failed, was
	// forgotten, removed or given up. It is cheap while nothing fails.
	Failures(key T) Failures
	// FailingKeys returns up to limit of the keys with counted failures, in the queue or not, the most failures
	// first. In memory it looks at all of them, a few hundred under one lock. On a server it takes up to a
	// second, and returns what it has by then.
	FailingKeys(limit int) []KeySnapshot[T]
}

// HandOut is a key that a worker has got, with what the queue knew of it then.
type HandOut[T comparable] struct {
	Key T
	// Failures are those of the calls before this one. If Left is positive, an event brought the key early: the
	// call is attempt Count, and otherwise Count+1.
	Failures Failures
	// Priority is zero in a queue without priorities.
	Priority int
	// AddedAt is what AddedAt of [Extended] returns.
	AddedAt time.Time
	// HasCauses reports whether Causes returns any.
	HasCauses bool
	// AtOnce is how many calls in a row before this one were interrupted by the end of their process: see
	// HandBack of leasing.Answerer. It is zero if no other process has the queue.
	AtOnce int
}

// Failures are the calls for a key that have failed in a row. It is zero if the last one has not failed.
type Failures struct {
	// Count is how many were counted.
	Count int
	// Left is what is left of the delay after the last.
	Left time.Duration
	// Since is when the first of them failed.
	Since time.Time
	// Err is the text of the latest error, at most 512 bytes of it.
	Err string
}

// Failure is a failed call, for Fail of [ExtendedRateLimiting].
type Failure struct {
	// Err is why. The queue keeps its text: see [Failures].
	Err error
	// AtLeast is the shortest time until the key is retried.
	AtLeast time.Duration
	// MaxRetries is how many failures in a row are retried. Zero means all, a negative number none.
	MaxRetries int
	// RetryFor gives the key up at its first failure after it has been failing for longer. Zero means no limit.
	RetryFor time.Duration
	// Terminal gives the key up now.
	Terminal bool
}

// Retry is what a queue makes of a [Failure].
type Retry struct {
	// Attempt is how many failures in a row are counted, this one included.
	Attempt int
	// Delay is how long the key waits, unless an add brings it earlier. It is zero if the key is given up, and
	// if a foreign queue does not say.
	Delay time.Duration
	// Same reports that this is the same failure as the last one.
	Same bool
	// GivenUp reports that the key is not retried.
	GivenUp bool
}

// Unimplemented is embedded by queues that implement [Extended] or [ExtendedRateLimiting] method by method.
// It has the default of each method that is added to them after v1.
type Unimplemented[T comparable] struct{}

func (Unimplemented[T]) mustEmbed(T) {}
