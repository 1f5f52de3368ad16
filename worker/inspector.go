package worker

import (
	"context"
	"fmt"
	"iter"
	"slices"
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
	// Causes are why the key came, at most 512 bytes of their text. A retry has none of its own.
	Causes string `json:"causes,omitempty"`
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
	// Stats and Snapshot are those of the pool, but for what only this Snapshot has: the stacks of stuck handlers, and more
	// than 512 failing keys if limit is greater.
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
	// InspectPool is called as WatchPool is. What WatchPool says of its function holds for those of i, except that Snapshot,
	// SnapshotKey and FailingKeys ask the queue, for up to a second.
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
	// FailedCalls are the last five calls that have failed in a row, the last one last. The pool keeps them of the 10,000
	// failing keys that failed last and of Options.KeepDropped dropped ones, up to 16 MiB for all together; other keys have none.
	FailedCalls []FailedCall `json:"failed_calls,omitempty"`
	// Causes are why the running call came, if the queue is a [workqueue.CauseAdder].
	Causes workqueue.Causes `json:"causes,omitzero"`
	// MaxAttempts is how often the key is tried before it is dropped, or 0 without a limit.
	MaxAttempts int `json:"max_attempts,omitempty"`
}

// SnapshotKey returns what the pool knows of one key. It asks the queue as [Pool.Snapshot] does, and takes time in proportion to
// the number of workers.
func (p *Pool[T]) SnapshotKey(key T) KeySnapshot[T] {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	p.failuresOf(ctx, key) // Which forgets what is stale.
	s := p.failures.read(key)
	if p.options.MaxRetries != UnlimitedRetries {
		s.MaxAttempts = max(p.options.MaxRetries, 0) + 1 // NoRetries is negative.
	}
	if s.Failing != nil {
		s.Failing.NextTry = p.nextTries(ctx)(key)
	}
	if c, ok := p.find(func(c current[T]) bool { return c.Key == key }); ok {
		c.Duration = p.options.Clock.Since(c.Started)
		s.Running, s.Causes = &c.RunningKey, p.causesOf(key)
	}
	return s
}

// Inspect returns an Inspector of p.
func Inspect[T comparable](p *Pool[T]) Inspector {
	return Inspector{
		Queue:       p.queue,
		Stats:       p.Stats,
		Snapshot:    func(limit int) Snapshot[any] { return p.snapshot(limit, keepErrors).anyKeys() },
		SnapshotKey: func(key any) KeySnapshot[any] { return p.SnapshotKey(typed[T](key)).anyKey() },
		FailingKeys: func() iter.Seq[FailedKey[any]] {
			return func(yield func(FailedKey[any]) bool) {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				anyKeys(p.failing(ctx, keepErrors, keepErrors))(yield)
			}
		},
		DroppedKeys: func() iter.Seq[FailedKey[any]] {
			keys, _ := p.failures.newest(&p.failures.mu.dropped, p.options.KeepDropped)
			return anyKeys(slices.Values(keys))
		},
		Cancel: func(key any) bool { return p.Cancel(typed[T](key)) },
		Forget: func(key any) { p.Forget(typed[T](key)) },
	}
}

// typed returns key as a T. It panics if key is of another type.
func typed[T comparable](key any) T {
	k, ok := key.(T)
	if !ok && (key != nil || any(k) != nil) { // A nil interface, which may be a key, has no type that an assertion could find.
		panic(fmt.Sprintf("worker: a key of type %T in a pool whose keys are of type %T", key, k))
	}
	return k
}

// What follows returns the same with keys of no particular type.

func anyKeys[T comparable](keys iter.Seq[FailedKey[T]]) iter.Seq[FailedKey[any]] {
	return func(yield func(FailedKey[any]) bool) {
		for k := range keys {
			if !yield(k.anyKey()) {
				return
			}
		}
	}
}

func (s Snapshot[T]) anyKeys() Snapshot[any] {
	return Snapshot[any]{
		Stats: s.Stats, Running: converted(s.Running, RunningKey[T].anyKey), DroppedKeys: s.DroppedKeys,
		Failing: converted(s.Failing, FailedKey[T].anyKey), Dropped: converted(s.Dropped, FailedKey[T].anyKey),
	}
}

func converted[From, To any](all []From, convert func(From) To) []To {
	to := make([]To, len(all))
	for i, from := range all {
		to[i] = convert(from)
	}
	return to
}

func (r RunningKey[T]) anyKey() RunningKey[any] {
	return RunningKey[any]{r.Key, r.Attempt, r.Started, r.Duration, r.Stuck, r.Stack}
}

func (f FailedKey[T]) anyKey() FailedKey[any] {
	return FailedKey[any]{f.Key, f.Attempt, f.Err, f.Time, f.NextTry}
}

func (s KeySnapshot[T]) anyKey() KeySnapshot[any] {
	return KeySnapshot[any]{
		s.Key, convertedPointer(s.Running, RunningKey[T].anyKey), convertedPointer(s.Failing, FailedKey[T].anyKey),
		convertedPointer(s.Dropped, FailedKey[T].anyKey), s.FailedCalls, s.Causes, s.MaxAttempts,
	}
}

func convertedPointer[From, To any](from *From, convert func(From) To) *To {
	if from == nil {
		return nil
	}
	to := convert(*from)
	return &to
}
