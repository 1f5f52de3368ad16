package workqueue

import (
	"context"
	"errors"
	"iter"
	"time"
)

// This file is the contract beyond client-go's interfaces: what every queue has (Extended), and a
// rate-limiting queue (ExtendedRateLimiting). Package operate has what operators do with a queue, and
// package leasing what processes share, in two interfaces.
//
// All five can get further methods. So only a type that embeds one of them, or its Unimplemented, implements
// it: then a method that is added later is inherited, from the queue below or with its default.

// ErrShutDown is returned when a queue that is shut down has nothing to hand out, and by a drain that
// ShutDown ends.
var ErrShutDown = errors.New("workqueue: queue is shut down")

// Extended is what every queue of this project has beyond client-go's methods. Package foreign makes one of
// any other queue. A queue of yours embeds an Extended and overrides what it changes. If it overrides Get, it
// must also override GetContext and Next, and with Add also AddCause. Keys that come due go through neither.
type Extended[T comparable] interface {
	TypedInterface[T]
	// mustEmbed keeps types that embed nothing of this package from implementing the interface.
	mustEmbed(T)

	// Next is GetContext that also says what the queue knows.
	Next(ctx context.Context) (HandOut[T], error)
	// GetContext is Get that returns ctx.Err() when ctx is done, even if keys are queued, and ErrShutDown when
	// Get reports shutdown. It panics if ctx is nil.
	GetContext(ctx context.Context) (item T, err error)
	// ShutDownContext is ShutDownWithDrain that drops no queued key. It returns nil when nothing is queued or
	// held, ctx.Err() if ctx is done first, and ErrShutDown if ShutDown ends the wait.
	ShutDownContext(ctx context.Context) error
	// DropQueued takes all queued keys out of a queue that is shutting down, and returns them in order.
	// Afterwards nothing is queued, not even what was added while held. Before shutdown, and in a queue that
	// processes share, it does nothing. A loop of Get and Done would not do: Get hands out no key whose group is
	// full, and the handler that fills it may have been left behind.
	DropQueued() []T

	// AddCause is Add that says why. When adds are merged, so are their causes.
	AddCause(key T, cause Cause)
	// Causes returns why key, queued or held, was added before its hand-out. A queue on a server knows the
	// causes of held keys alone.
	Causes(key T) Causes
	// AddedAgain returns a channel that is closed when key is added or comes due while a worker holds it. Quiet
	// adds and retries that come due do not close it. It is nil if no worker holds key.
	AddedAgain(key T) <-chan struct{}
	// AddedAt returns when a held key was first added or came due before its hand-out. It needs metrics.
	AddedAt(key T) time.Time

	// PutOnHold says that the work on a held key is over, although its Done comes later. Stats.OnHold counts the
	// key until then, and the lists of Snapshot leave it out.
	PutOnHold(key T)

	// Below returns the queue that this one wraps, or nil. Tools show only the outermost.
	Below() any
	// Stats returns the queue's numbers in constant time, without a server.
	Stats() Stats
	// Snapshot returns Stats and up to limit keys of each list, at most 512, in the order that Snapshot says.
	Snapshot(limit int) Snapshot[T]
	// SnapshotKey returns what the queue knows of key, and whether it has key.
	SnapshotKey(key T) (k KeySnapshot[T], found bool)
	// SnapshotKeys yields the keys in any order, once for each state, without a lock. A key that moves may be
	// yielded twice, or not at all.
	SnapshotKeys() iter.Seq[KeySnapshot[T]]
}

// ExtendedRateLimiting is a rate-limiting queue of this project. It counts failures such that events inflate
// no delay and use up no retries (kubernetes/kubernetes#132805): see the package comment.
type ExtendedRateLimiting[T comparable] interface {
	TypedRateLimitingInterface[T]
	Extended[T]
	// Fail says that the call for key, which the caller holds, has failed. It counts the failure and adds the
	// key after the limiter's delay, or f.AtLeast if that is longer. Or it gives the key up, and forgets the
	// failures. Done must also be called.
	//
	// A key has one retry: Fail takes back that of an earlier failure, even if it has come due while key was
	// held, but one without a delay only in package priorityqueue. What others have added stays. A key that
	// waits for a retry and for an AddAfter waits for the earlier one: Fail takes back neither. After shutdown
	// it takes back, and adds nothing.
	//
	// An error means that a server has not answered before ctx was done: Retry is then this process's estimate,
	// and the server gets the failure later. Queues in memory ignore ctx.
	Fail(ctx context.Context, key T, f Failure) (Retry, error)
	// Failures returns key's counted failures, even if key is not in the queue.
	Failures(key T) Failures
	// FailingKeys returns up to limit keys with counted failures, in the queue or not, the most failures first.
	FailingKeys(limit int) []KeySnapshot[T]
}

// HandOut is a key that a worker has got.
type HandOut[T comparable] struct {
	Key T
	// Failures are of earlier calls. With Left > 0 an event brought the key early: this is still attempt Count.
	Failures Failures
	Priority int
	// AddedAt is what Extended.AddedAt returns.
	AddedAt time.Time
	// HasCauses reports that Causes returns something.
	HasCauses bool
	// AtOnce is what HandBack of leasing.Answerer was given for the key, or zero.
	AtOnce int
}

// Failures are the calls for a key that have failed in a row.
type Failures struct {
	Count int `json:"count"`
	// Left is what is left of the last one's delay.
	Left time.Duration `json:"left_ns,omitempty"`
	// Since is when the first one failed.
	Since time.Time `json:"since,omitzero"`
	// Err is the text of the latest error, cut to 512 bytes.
	Err string `json:"err,omitempty"`
}

// Failure is a failed call, for Fail.
type Failure struct {
	Err error // may be nil
	// AtLeast is the shortest time until a retry.
	AtLeast time.Duration
	// MaxRetries is how many failures in a row are retried. Zero means all, less means none.
	MaxRetries int
	// RetryFor, unless zero, gives up a key that has been failing for longer.
	RetryFor time.Duration
	// Terminal gives the key up now.
	Terminal bool
}

// Retry is what a queue makes of a [Failure].
type Retry struct {
	// Attempt is the number of counted failures, this one included.
	Attempt int
	// Delay is how long the key waits, unless an add brings it earlier. Over package foreign it may be zero.
	Delay time.Duration
	// Same reports that the last delay had not passed, so this one is not counted.
	Same    bool
	GivenUp bool
}

// Unimplemented is embedded by queues that implement [Extended] method by method. It has the defaults of
// methods that are added after v1.
type Unimplemented[T comparable] struct{}

func (Unimplemented[T]) mustEmbed(T) {}
func (Unimplemented[T]) Below() any  { return nil }
