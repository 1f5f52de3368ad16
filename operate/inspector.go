package operate

import (
	"fmt"
	"iter"
	"time"

	"github.com/keyedqueue/workqueue"
)

// Inspector has the methods of a queue for tools that do not know the type of its keys. They panic on a key
// of another type. Those that only some queues have may be nil.
type Inspector struct {
	// Queue is the queue itself, for comparison, and Below the queue that it wraps.
	Queue, Below any

	Stats        func() workqueue.Stats
	Snapshot     func(limit int) workqueue.Snapshot[any]
	SnapshotKey  func(key any) (workqueue.KeySnapshot[any], bool)
	SnapshotKeys func() iter.Seq[workqueue.KeySnapshot[any]]
	Add          func(key any)
	AddCause     func(key any, cause workqueue.Cause)

	// Forget, which also makes the limiter forget, and FailingKeys are nil without a limiter.

	Forget      func(key any)
	FailingKeys func(limit int) []workqueue.KeySnapshot[any]

	// Methods of [Operable], or nil. Without groups, theirs are nil as well.

	AddWithPriority             func(key any, priority int, after time.Duration)
	Remove                      func(key any) bool
	Pause                       func(d time.Duration)
	Resume                      func()
	PauseGroup                  func(group string, d time.Duration)
	ResumeGroup                 func(group string)
	PausedGroups                func() []string
	SnapshotGroup               func(group string) GroupSnapshot
	GivenUp                     func(limit int) []GivenUpKey[any]
	RetryGivenUp, ForgetGivenUp func(key any) bool

	// Facts is nil unless the queue is a [FactSource].
	Facts func() []Fact
}

// Inspect returns an Inspector of q, and panics unless q is a [workqueue.Extended].
func Inspect[T comparable](q workqueue.TypedInterface[T]) Inspector {
	extended, ok := q.(workqueue.Extended[T])
	if !ok {
		panic(fmt.Sprintf("operate: %T is no workqueue.Extended: use package foreign", q))
	}
	return InspectorOf(q, Untyped(extended))
}

// InspectorOf returns an Inspector of what a [workqueue.QueueInspector] gets.
func InspectorOf(q any, untyped workqueue.Extended[any]) Inspector {
	i := Inspector{
		Queue: q, Below: untyped.Below(), Stats: untyped.Stats, Snapshot: untyped.Snapshot,
		SnapshotKey: untyped.SnapshotKey, SnapshotKeys: untyped.SnapshotKeys,
		Add: untyped.Add, AddCause: untyped.AddCause,
	}
	if q, ok := untyped.(workqueue.ExtendedRateLimiting[any]); ok {
		i.Forget, i.FailingKeys = q.Forget, q.FailingKeys
	}
	if q, ok := untyped.(Operable[any]); ok {
		i.AddWithPriority, i.Remove, i.Pause, i.Resume = q.AddWithPriority, q.Remove, q.Pause, q.Resume
		i.GivenUp, i.RetryGivenUp, i.ForgetGivenUp = q.GivenUpKeys, q.RetryGivenUp, q.ForgetGivenUp
		if q.PausedGroups() != nil {
			i.PauseGroup, i.ResumeGroup = q.PauseGroup, q.ResumeGroup
			i.PausedGroups, i.SnapshotGroup = q.PausedGroups, q.SnapshotGroup
		}
	}
	if q, ok := q.(FactSource); ok {
		i.Facts = q.Facts
	}
	return i
}
