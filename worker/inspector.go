package worker

import (
	"iter"
	"time"

	"github.com/keyedqueue/workqueue"
)

// FailedCall is one call for a key that has failed.
type FailedCall struct {
	// Attempt is 1 for the first call in a row that has failed.
	Attempt int `json:"attempt"`
	// Started is when the call began, and Duration how long it took.
	Started  time.Time     `json:"started"`
	Duration time.Duration `json:"duration_ns"`
	// Err is the text of the error, at most 1 KiB of it.
	Err string `json:"error"`
	// Stack is that of a panic, at most 8 KiB of it, and otherwise empty.
	Stack string `json:"stack,omitempty"`
}

// Inspector shows a pool to tools, such as package debug, that do not know the type of its keys. The functions that take
// a key panic if it is of another type.
type Inspector struct {
	// Queue is the queue whose keys the pool handles, to recognize it by.
	Queue any
	// Stats and Snapshot are those of the pool.
	Stats    func() Stats
	Snapshot func(limit int) Snapshot[any]
	// SnapshotKey returns what the pool knows of one key.
	SnapshotKey func(key any) KeySnapshot[any]
	// FailingKeys and DroppedKeys yield all keys that fail or were dropped and whose errors are known, the last failure
	// first.
	FailingKeys, DroppedKeys func() iter.Seq[FailedKey[any]]
	// Cancel and Forget are those of the pool.
	Cancel func(key any) bool
	Forget func(key any)
}

// InspectorProvider is a [StatsProvider] that looks at keys, too.
type InspectorProvider interface {
	StatsProvider
	// InspectPool is called as WatchPool is. What WatchPool says of its function holds for those of i, except that a
	// Snapshot takes longer.
	InspectPool(name string, i Inspector)
}

// KeySnapshot is what a pool knows of a key. It holds copies.
type KeySnapshot[T comparable] struct {
	Key T `json:"key"`
	// Running is the call that goes on, or nil.
	Running *RunningKey[T] `json:"running,omitempty"`
	// Failing is set if the last call has failed and the key is to come again, Dropped if the key was dropped.
	Failing *FailedKey[T] `json:"failing,omitempty"`
	Dropped *FailedKey[T] `json:"dropped,omitempty"`
	// FailedCalls are the last five calls that have failed in a row, the last one last. The pool keeps up to 16 MiB of
	// them for all keys together; beyond that, keys that failed long ago have fewer, or none.
	FailedCalls []FailedCall `json:"failed_calls,omitempty"`
	// Causes are why the running call came, if the queue is a [workqueue.CauseAdder].
	Causes workqueue.Causes `json:"causes,omitzero"`
	// MaxAttempts is how often the key is tried before it is dropped, or 0 without a limit.
	MaxAttempts int `json:"max_attempts,omitempty"`
}
