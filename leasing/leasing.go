// Package leasing is about queues that lend their keys for a time, because several processes share them:
// those of package redisqueue, and those whose keys package sharding divides.
package leasing

import (
	"context"
	"errors"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/operate"
)

// ErrLost is the cause with which a handler's context ends when the lease of its key is lost, so that
// another replica may have the key: see [Leaser].
var ErrLost = errors.New("leasing: the lease is lost")

// Leaser is a queue that hands out keys for a limited time, as a queue of many processes does. A worker
// that got a key from it calls Lease before it handles the key, and passes the returned context to the
// handler. That context is derived from ctx and ends, with a cause, when another worker may have got the key.
// The worker calls the returned function after the handler has returned, and Done as always. Lease does not
// block. For a key that no worker holds it returns ctx. Package worker does all this.
//
// It can get further methods: embed a Leaser, an [Answerer] or [UnimplementedLeaser] to implement it.
type Leaser[T comparable] interface {
	mustEmbed(T)
	Lease(ctx context.Context, key T) (context.Context, context.CancelFunc)
	// LeaseOnHold is Lease for a key that is on hold: its handler has returned, and its Done comes later. The
	// context also ends when the queue wants the key back.
	LeaseOnHold(ctx context.Context, key T) (context.Context, context.CancelFunc)
	operate.FactSource
}

// UnimplementedLeaser is embedded by queues that implement [Leaser] method by method. It has the default of
// each method that is added later, and knows no facts.
type UnimplementedLeaser[T comparable] struct{}

//lint:ignore U1000 the interface asks for it
func (UnimplementedLeaser[T]) mustEmbed(T) {}

// Facts returns nothing.
func (UnimplementedLeaser[T]) Facts() []operate.Fact { return nil }

// Answerer is a [Leaser] that takes answers from the holder of a key alone. Fail, Forget of a key that the
// caller holds, and the methods of this interface are answers: what the holder says of its call. After the
// lease has ended an answer changes nothing, whether it is said late or arrives late, and whoever has the key
// by then. An add is no answer: it always counts. Done follows each answer; if the process ends before it,
// the queue does what Fail, Succeed or Requeue has said, and takes a HandBack for a lost lease. Package
// worker does all this.
//
// It is an interface of its own because a Leaser in memory, such as that of package sharding, needs none of
// it: there an answer cannot arrive late, so Forget, an add and Done say the same.
type Answerer[T comparable] interface {
	Leaser[T]
	// Succeed says that the call has succeeded. It forgets the key's failures, as Forget does.
	Succeed(key T)
	// Requeue says that the holder wants key again, with that priority, after the given time. Zero and less
	// mean at once. Failures are neither counted nor forgotten.
	Requeue(key T, priority int, after time.Duration)
	// HandBack says that key was not handled. It is handed out again as it was, at once and before all that
	// is queued: with its priority and causes, and with no failure more or less. atOnce comes back in AtOnce
	// of the next [workqueue.HandOut].
	HandBack(key T, atOnce int)
	// Settle waits until the queue's server knows what the holders of this process have said. After a shutdown
	// it also waits until this process's part in the queue has ended, if no key is held. If ctx ends first, it
	// returns why the server does not answer, and the keys whose Done it may not know: these may be handed out
	// again.
	Settle(ctx context.Context) (unsettled []T, err error)
}

// Stats are further numbers of a queue that processes share. They stand in the Shared of [workqueue.Stats].
type Stats struct {
	// Outage reports that this process's last attempt to reach the server failed.
	Outage bool `json:"outage"`
	// Unsent is the number of operations that this process has not brought to the server yet.
	Unsent int `json:"unsent"`
	// Errors counts this process's attempts to reach the server that failed.
	Errors uint64 `json:"errors"`
	// LostLeases counts keys whose lease was lost while a worker here held them, LostDones their late Dones.
	LostLeases uint64 `json:"lost_leases"`
	LostDones  uint64 `json:"lost_dones"`
	// CallDuration has the times until the server answered this process's batches, nil without metrics.
	CallDuration *workqueue.Histogram `json:"call_duration,omitempty"`

	// The others are of the whole queue, as every process of it sees them: GivenUp is the number of keys that
	// are not tried any more, Repaired that of entries on the server that did not fit together.
	GivenUp  int `json:"given_up"`
	Repaired int `json:"repaired"`
	// PausedBy is the process that has paused the queue, and PausedSince when, as far as this process knows.
	PausedBy    string    `json:"paused_by,omitempty"`
	PausedSince time.Time `json:"paused_since,omitzero"`
	// AsOf is when the server last sent all of these; workqueue.Stats may be newer. It is zero before that.
	AsOf time.Time `json:"as_of,omitzero"`
}

// StatsOf returns what stands in st.Shared, or nil: the queue belongs to one process.
func StatsOf(st workqueue.Stats) *Stats {
	s, _ := st.Shared.(*Stats)
	return s
}
