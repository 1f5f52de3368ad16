package priorityqueue

import (
	"iter"
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
)

// State is where a key is in its life.
type State uint8

const (
	// Absent is a key that is not in the queue.
	Absent State = iota
	// Queued is a key that waits for a worker, also if the queue is paused, or its group is paused or at its limit.
	Queued
	// Waiting is a key that waits for its time.
	Waiting
	// Processing is a key that a worker holds.
	Processing
)

// String returns the name of the state in lower case.
func (s State) String() string {
	if s > Processing {
		return "unknown"
	}
	return [...]string{"absent", "queued", "waiting", "processing"}[s]
}

// public returns the State of a key in state s.
func (s state) public() State {
	return [...]State{queued: Queued, waiting: Waiting, processing: Processing, rerun: Processing, rerunLater: Processing, resting: Absent}[s]
}

// Info is what the queue knows of a key.
type Info[T comparable] struct {
	Key   T
	State State
	// Again reports that a key that is being processed has been added since, and comes again.
	Again bool
	// Blocked reports that a queued key cannot be handed out, because its group is at its limit or paused.
	Blocked bool
	// Paused reports that the queue is paused.
	Paused bool
	// Priority is the one with which the key will be handed out or, if it does not come again, was.
	Priority int
	// Group is the key's group, or empty in a queue without groups.
	Group string
	// Due is when the key comes, if it waits for its time or will do so when its worker is Done. It is zero
	// otherwise.
	Due time.Time
	// Added is when the key was first added since its last hand-out or, if a worker holds it and it does not come again,
	// before that. An event counts before what the worker or the limiter asked for: see [AddOpts].MaxDelay. It is zero if
	// the queue had no need to read the clock.
	Added time.Time
	// Failures is how many failures the limiter has counted since the key was forgotten.
	Failures int
}

// Inspect returns what the queue knows of key, and whether it is in the queue. If it is not, only Key, Paused and
// Failures are set. It takes constant time. The limiter's NumRequeues is called without the queue's lock.
func (q *Queue[T]) Inspect(key T) (Info[T], bool) {
	info := q.inspect(key)
	info.Failures = q.NumRequeues(key)
	return info, info.State != Absent
}

// Has reports whether key is in the queue: queued, waiting or held by a worker.
func (q *Queue[T]) Has(key T) bool { return q.inspect(key).State != Absent }

// PriorityOf returns the priority with which key was handed out, if a worker holds it, and with which it will be
// handed out otherwise. It is 0 if key is not in the queue.
func (q *Queue[T]) PriorityOf(key T) int {
	h := keytable.HashOf(key)
	q.lockAt(q.readClock(false))
	defer q.unlock()
	if _, it := q.findLocked(h, key); it != nil {
		return it.priority
	}
	return 0
}

// findLocked returns the slot and the item of a key in the queue, or None and nil. A resting key is not in the queue.
func (q *Queue[T]) findLocked(h keytable.Hash, key T) (keytable.Slot, *item) {
	if s, e := q.mu.keys.Find(h, key); e != nil && e.Value.state != resting {
		return s, &e.Value
	}
	return keytable.None, nil
}

func (q *Queue[T]) inspect(key T) Info[T] {
	h := keytable.HashOf(key)
	q.lockAt(q.readClock(false))
	defer q.unlock()
	if s, it := q.findLocked(h, key); it != nil {
		return q.infoLocked(s)
	}
	return Info[T]{Key: key, Paused: q.mu.paused}
}

// infoLocked returns what is known of the key at s, which is in the queue, except its failures.
func (q *Queue[T]) infoLocked(s keytable.Slot) Info[T] {
	e := q.mu.keys.At(s)
	it := &e.Value
	info := Info[T]{Key: e.Key, State: it.state.public(), Paused: q.mu.paused, Priority: it.priority}
	if it.state == waiting || it.state == rerunLater {
		info.Due = q.loop.Time(q.dueAtLocked(s))
	}
	if it.state == rerun || it.state == rerunLater {
		info.Again = true
		info.Priority = q.mu.details.At(s).rerunPriority
	}
	if it.added != addedUnknown {
		info.Added = q.loop.Time(q.mu.details.At(s).added)
	}
	if q.config.Group != nil {
		g := q.mu.groups.At(q.groupOfLocked(s))
		info.Group = g.Key
		info.Blocked = it.state == queued && g.Value.isBlocked()
	}
	return info
}

// All returns the keys that are in the queue, in no particular order, each as it is at that moment. It holds no lock
// while it yields them. A key that leaves the queue and comes back meanwhile may be yielded twice, and one that is
// added meanwhile may be left out.
func (q *Queue[T]) All() iter.Seq[Info[T]] {
	return func(yield func(Info[T]) bool) {
		for info := range inSteps(q, q.appendInfoLocked) {
			info.Failures = q.NumRequeues(info.Key)
			if !yield(info) {
				return
			}
		}
	}
}

func (q *Queue[T]) appendInfoLocked(infos []Info[T], s keytable.Slot) []Info[T] {
	return append(infos, q.infoLocked(s))
}
