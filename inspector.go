package workqueue

import (
	"iter"
	"reflect"
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
)

// Inspector shows a queue to tools, such as package debug, that do not know the type of its keys. SnapshotKey, Add and
// Remove panic if the key is of another type.
type Inspector struct {
	// Queue is the queue itself, to recognize it by. Below is the queue that the program has put this one on top of, so
	// that tools show only one of them: nil if the queue has made its lower layers itself.
	Queue, Below any
	// Stats and Snapshot are those of [Extended]. Without them Stats has only Queued and ShuttingDown, and Snapshot is
	// nil.
	Stats    func() Stats
	Snapshot func(limit int) Snapshot[any]
	// SnapshotKey and SnapshotKeys are those of [KeyReader]. They are nil if the queue is none.
	SnapshotKey  func(key any) (KeySnapshot[any], bool)
	SnapshotKeys func() iter.Seq[KeySnapshot[any]]
	// Add is the queue's own.
	Add func(key any)
	// Remove takes a key out of the queue and reports whether it was there. It is nil unless the queue is a
	// [KeyRemover].
	Remove func(key any) bool
	// Forget makes the queue's limiter forget the key's failures. It is nil if the queue has no limiter.
	Forget func(key any)
	// AddCause is that of [CauseAdder]. It is nil if the queue is none.
	AddCause func(key any, cause Cause)
	// Pause and Resume are the queue's own. They are nil if it cannot be paused.
	Pause, Resume func()
	// PauseGroup, PauseGroupFor, ResumeGroup, PausedGroups and GroupPause are the queue's own. They are nil in a queue
	// without groups, where its PausedGroups returns nil. GroupPause returns when a group's pause ends, the zero Time if it
	// has no end, and whether the group is paused.
	PauseGroup, ResumeGroup func(group string)
	PauseGroupFor           func(group string, d time.Duration)
	PausedGroups            func() []string
	GroupPause              func(group string) (until time.Time, paused bool)
	// GroupLen returns how many keys a group has in the queue. It is nil if the queue does not know.
	GroupLen func(group string) int
	// GivenUp returns up to limit keys that the queue itself keeps because they are not tried any more, the latest
	// first. RetryGivenUp adds one of them again, ForgetGivenUp forgets it; they report whether it was there. They are
	// nil if the queue keeps no such keys.
	GivenUp                     func(limit int) []GivenUpKey[any]
	RetryGivenUp, ForgetGivenUp func(key any) bool
	// Facts returns what only this kind of queue knows, for people. It is nil if there is nothing.
	Facts func() []Fact
}

// Fact is a number or a name with what it means, such as "Slots held" and "64 of 256".
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// GivenUpKey is a key that is not tried any more.
type GivenUpKey[T comparable] struct {
	Key      T
	Attempts int
	Err      string
	Time     time.Time
}

// GivenUpKeeper is a queue that keeps the keys that are not tried any more, such as one that many processes share. See
// the fields of [Inspector].
type GivenUpKeeper[T comparable] interface {
	GivenUpKeys(limit int) []GivenUpKey[T]
	RetryGivenUp(key T) bool
	ForgetGivenUp(key T) bool
}

// InspectorProvider is a [StatsProvider] that looks at keys, too.
type InspectorProvider interface {
	StatsProvider
	// InspectQueue is called once for each queue that is made with that name. For a queue of several layers it
	// is called for the outermost one. What WatchQueue says of its function holds for those of q, except that a
	// Snapshot takes longer.
	InspectQueue(name string, q Inspector)
}

// KeyRemover is a queue from which keys can be removed, as those of package priorityqueue.
type KeyRemover[T comparable] interface {
	// Discard takes key out of the queue and reports whether it was there. A key that a worker holds stays with
	// that worker, but does not come again. Its failures are forgotten.
	Discard(key T) bool
}

// Inspect returns an Inspector of q.
func Inspect[T comparable](q TypedInterface[T]) Inspector {
	i := Inspector{
		Queue: q,
		Stats: func() Stats { return Stats{Queued: q.Len(), ShuttingDown: q.ShuttingDown()} },
		Add:   func(key any) { q.Add(typed[T](key)) },
	}
	if q, ok := q.(interface {
		Stats() Stats
		Snapshot(limit int) Snapshot[T]
	}); ok {
		i.Stats = q.Stats
		i.Snapshot = func(limit int) Snapshot[any] { return q.Snapshot(limit).untyped() }
	}
	if q, ok := q.(KeyReader[T]); ok {
		i.SnapshotKey = func(key any) (KeySnapshot[any], bool) {
			k, found := q.SnapshotKey(typed[T](key))
			return k.untyped(), found
		}
		i.SnapshotKeys = func() iter.Seq[KeySnapshot[any]] {
			return keytable.Map(q.SnapshotKeys(), KeySnapshot[T].untyped)
		}
	}
	if q, ok := q.(KeyRemover[T]); ok {
		i.Remove = func(key any) bool { return q.Discard(typed[T](key)) }
	}
	if q, ok := q.(TypedRateLimitingInterface[T]); ok {
		i.Forget = func(key any) { q.Forget(typed[T](key)) }
	}
	if q, ok := q.(CauseAdder[T]); ok {
		i.AddCause = func(key any, cause Cause) { q.AddCause(typed[T](key), cause) }
	}
	if q, ok := q.(interface {
		Pause()
		Resume()
	}); ok {
		i.Pause, i.Resume = q.Pause, q.Resume
	}
	if q, ok := q.(interface {
		PauseGroup(group string)
		PauseGroupFor(group string, d time.Duration)
		ResumeGroup(group string)
		PausedGroups() []string
		GroupPause(group string) (until time.Time, paused bool)
	}); ok && q.PausedGroups() != nil {
		i.PauseGroup, i.PauseGroupFor, i.ResumeGroup = q.PauseGroup, q.PauseGroupFor, q.ResumeGroup
		i.PausedGroups, i.GroupPause = q.PausedGroups, q.GroupPause
	}
	if q, ok := q.(interface{ GroupLen(group string) int }); ok && i.PausedGroups != nil {
		i.GroupLen = q.GroupLen
	}
	if q, ok := q.(GivenUpKeeper[T]); ok {
		i.GivenUp = func(limit int) (keys []GivenUpKey[any]) {
			for _, k := range q.GivenUpKeys(limit) {
				keys = append(keys, GivenUpKey[any]{k.Key, k.Attempts, k.Err, k.Time})
			}
			return keys
		}
		i.RetryGivenUp = func(key any) bool { return q.RetryGivenUp(typed[T](key)) }
		i.ForgetGivenUp = func(key any) bool { return q.ForgetGivenUp(typed[T](key)) }
	}
	if q, ok := q.(interface{ Below() any }); ok {
		i.Below = q.Below()
	}
	if q, ok := q.(interface{ Facts() []Fact }); ok {
		i.Facts = q.Facts
	}
	return i
}

func (k KeySnapshot[T]) untyped() KeySnapshot[any] {
	return KeySnapshot[any]{
		Key: k.Key, State: k.State, Since: k.Since, Due: k.Due, Again: k.Again, Requeues: k.Requeues,
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
		Stats: s.Stats, Processing: keys(s.Processing), Queued: keys(s.Queued), Waiting: keys(s.Waiting), Failing: keys(s.Failing),
		FailingUnlisted: s.FailingUnlisted,
	}
}

// registerInspector lets an InspectorProvider look at q, the outermost layer of a queue.
func registerInspector[T comparable](q TypedInterface[T], name string, provider MetricsProvider, below any) {
	if p, ok := provider.(InspectorProvider); ok {
		i := Inspect(q)
		if below != nil {
			i.Below = below
		}
		p.InspectQueue(name, i)
	}
}

// typed returns key as a T. It panics if key is of another type.
func typed[T comparable](key any) (k T) {
	if key == nil && reflect.TypeFor[T]().Kind() == reflect.Interface {
		return k // A nil interface has no type that an assertion could find.
	}
	return key.(T)
}
