package workqueue

import (
	"fmt"
	"iter"
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/operate"
)

// Inspector has the methods of a queue for tools that do not know the type of its keys. They panic on a key
// of another type.
type Inspector struct {
	// Queue is the queue itself, for comparison, and Below the one below that the program has given.
	Queue, Below any

	// Methods of [Extended].

	Stats        func() Stats
	Snapshot     func(limit int) Snapshot[any]
	SnapshotKey  func(key any) (KeySnapshot[any], bool)
	SnapshotKeys func() iter.Seq[KeySnapshot[any]]
	Add          func(key any)
	AddCause     func(key any, cause Cause)

	// Forget also makes the limiter forget. It is nil without a limiter.
	Forget func(key any)

	// Methods of [operate.Operable], or nil. Without groups, theirs are nil as well.

	AddWithPriority             func(key any, priority int, after time.Duration)
	Remove                      func(key any) bool
	Pause                       func(d time.Duration)
	Resume                      func()
	PauseGroup                  func(group string, d time.Duration)
	ResumeGroup                 func(group string)
	PausedGroups                func() []string
	SnapshotGroup               func(group string) operate.GroupSnapshot
	GivenUp                     func(limit int) []operate.GivenUpKey[any]
	RetryGivenUp, ForgetGivenUp func(key any) bool

	// Facts returns what only this kind of queue knows. It may be nil.
	Facts func() []operate.Fact
}

// InspectorProvider is a [StatsProvider] that also looks at keys.
type InspectorProvider interface {
	StatsProvider
	// InspectQueue is WatchQueue for the outermost layer of a queue.
	InspectQueue(name string, q Inspector)
}

// Inspect returns an Inspector of queue, and panics unless that is an [Extended].
func Inspect[T comparable](queue TypedInterface[T]) Inspector {
	q, ok := queue.(Extended[T])
	if !ok {
		panic(fmt.Sprintf("workqueue: %T is no workqueue.Extended: use package foreign", queue))
	}
	i := Inspector{
		Queue:    q,
		Stats:    q.Stats,
		Snapshot: func(limit int) Snapshot[any] { return q.Snapshot(limit).untyped() },
		SnapshotKey: func(key any) (KeySnapshot[any], bool) {
			k, found := q.SnapshotKey(typed[T](key))
			return k.untyped(), found
		},
		SnapshotKeys: func() iter.Seq[KeySnapshot[any]] {
			return keytable.Map(q.SnapshotKeys(), KeySnapshot[T].untyped)
		},
		Add:      func(key any) { q.Add(typed[T](key)) },
		AddCause: func(key any, cause Cause) { q.AddCause(typed[T](key), cause) },
	}
	if q, ok := q.(ExtendedRateLimiting[T]); ok {
		i.Forget = func(key any) { q.Forget(typed[T](key)) }
	}
	if q, ok := q.(operate.Operable[T]); ok {
		i.Below, i.Pause, i.Resume = q.Below(), q.Pause, q.Resume
		i.Remove = func(key any) bool { return q.Remove(typed[T](key)) }
		i.RetryGivenUp = func(key any) bool { return q.RetryGivenUp(typed[T](key)) }
		i.ForgetGivenUp = func(key any) bool { return q.ForgetGivenUp(typed[T](key)) }
		i.AddWithPriority = func(key any, priority int, after time.Duration) {
			q.AddWithPriority(typed[T](key), priority, after)
		}
		i.GivenUp = func(limit int) (keys []operate.GivenUpKey[any]) {
			for _, k := range q.GivenUpKeys(limit) {
				keys = append(keys, operate.GivenUpKey[any]{Key: k.Key, Attempts: k.Attempts, Err: k.Err, Time: k.Time})
			}
			return keys
		}
		if q.PausedGroups() != nil {
			i.PauseGroup, i.ResumeGroup = q.PauseGroup, q.ResumeGroup
			i.PausedGroups, i.SnapshotGroup = q.PausedGroups, q.SnapshotGroup
		}
	}
	if q, ok := q.(interface {
		Facts() []operate.Fact
		Below() any
	}); ok {
		i.Below, i.Facts = q.Below(), q.Facts
	}
	return i
}

func (k KeySnapshot[T]) untyped() KeySnapshot[any] {
	return KeySnapshot[any]{
		Key: k.Key, State: k.State, Since: k.Since, Due: k.Due, Again: k.Again, OnHold: k.OnHold,
		Requeues: k.Requeues, Failures: k.Failures,
		Priority: k.Priority, Group: k.Group, Blocked: k.Blocked, Causes: k.Causes,
	}
}

func (s Snapshot[T]) untyped() Snapshot[any] {
	keys := func(typed []KeySnapshot[T]) []KeySnapshot[any] {
		all := make([]KeySnapshot[any], len(typed))
		for i, k := range typed {
			all[i] = k.untyped()
		}
		return all
	}
	return Snapshot[any]{
		Stats: s.Stats, Processing: keys(s.Processing), Queued: keys(s.Queued), Waiting: keys(s.Waiting),
		Failing: keys(s.Failing),
	}
}

// registerInspector lets an InspectorProvider look at q, the outermost layer of a queue.
func registerInspector[T comparable](q TypedInterface[T], name string, provider MetricsProvider, below any) {
	_, isExtended := q.(Extended[T])
	if p, ok := provider.(InspectorProvider); ok && isExtended {
		i := Inspect(q)
		i.Below = below // nil unless the program has given one
		p.InspectQueue(name, i)
	}
}

// typed returns key as a T. It panics if key is of another type.
func typed[T comparable](key any) (k T) {
	if key == nil && any(k) == nil {
		return k // T is an interface type, and a nil has no type to assert.
	}
	return key.(T)
}
