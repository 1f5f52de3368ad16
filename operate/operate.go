// Package operate is what operators and schedulers can do with a queue beyond adding to it: pause it, take
// keys out of it, and look at its groups and at what it has given up. Package debug has a page for it.
package operate

import (
	"math"
	"time"
)

// Operable is a queue whose keys operators and schedulers can do more with: package priorityqueue, queues
// that processes share, and their wrappers. Without groups PausedGroups returns nil and PauseGroup does
// nothing; without priorities each is zero.
//
// It can get further methods: embed an Operable or [UnimplementedOperable] to implement it.
type Operable[T comparable] interface {
	mustEmbed(T)
	// AddWithPriority adds key with that priority after the given time. Zero and less mean at once. It is
	// for the worker that holds the key and asks for another run, and for schedulers.
	AddWithPriority(key T, priority int, after time.Duration)
	// PriorityOf returns the priority of a held key's hand-out, or the priority that a queued or waiting key
	// has. It is zero for other keys.
	PriorityOf(key T) int
	// Remove takes key out of the queue, forgets its failures and reports whether it was there. A key that a
	// worker holds stays with that worker. It is queued again only if it is added after that, or if the
	// worker requeues or fails it.
	Remove(key T) bool
	// Pause makes the queue hand out nothing for d, or until Resume with [UntilResumed]. It does nothing if d is
	// not positive. Of several pauses the latest end counts. Keys are still added and come due. A shutdown ends
	// all pauses. Stats.Paused and PausedUntil show it.
	Pause(d time.Duration)
	// Resume ends a pause of the queue. Groups that are paused stay so.
	Resume()
	// PauseGroup is Pause for the keys of one group, even before it has any.
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
}

// UntilResumed is the length of a pause without an end.
const UntilResumed time.Duration = math.MaxInt64

// GroupSnapshot is what a queue knows of a group of keys.
type GroupSnapshot struct {
	// Keys is how many keys of the group are in the queue: queued, waiting or held. Held is how many of them
	// workers hold, those on hold included, and Limit how many that may be, or zero if there is no limit.
	Keys, Held, Limit int
	// Paused reports that the group is paused, until PausedUntil, or without an end if that is zero.
	Paused      bool
	PausedUntil time.Time
}

// GivenUpKey is a key that is not tried any more.
type GivenUpKey[T comparable] struct {
	Key      T         `json:"key"`
	Attempts int       `json:"attempts"`
	Err      string    `json:"err"`
	Time     time.Time `json:"time"` // when it was given up
}

// Fact is a number or a name with what it means, such as "Slots held" and "64 of 256".
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// FactSource is a queue, of keys of any type, that says what only queues of its kind know, for display.
type FactSource interface{ Facts() []Fact }

// UnimplementedOperable is embedded by queues that implement [Operable] method by method. It has the methods
// of a queue without groups, and the default of each method that is added later.
type UnimplementedOperable[T comparable] struct{}

//lint:ignore U1000 the interface asks for it
func (UnimplementedOperable[T]) mustEmbed(T) {}

// PauseGroup and ResumeGroup do nothing.
func (UnimplementedOperable[T]) PauseGroup(string, time.Duration) {}
func (UnimplementedOperable[T]) ResumeGroup(string)               {}

// PausedGroups returns nil: there are no groups.
func (UnimplementedOperable[T]) PausedGroups() []string { return nil }

// SnapshotGroup returns the zero GroupSnapshot.
func (UnimplementedOperable[T]) SnapshotGroup(string) (g GroupSnapshot) { return g }
