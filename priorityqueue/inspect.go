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
	// Queued is a key that is ready, also if its group is at its limit or the queue is paused.
	Queued
	// Waiting is a key that waits for its time.
	Waiting
	// Processing is a key that a worker holds.
	Processing
)

// String returns the name of the state in lower case.
func (s State) String() string {
	switch s {
	case Absent:
		return "absent"
	case Queued:
		return "queued"
	case Waiting:
		return "waiting"
	case Processing:
		return "processing"
	}
	return "unknown"
}

// state returns the State of a key in state s.
func (s state) public() State {
	switch {
	case s&ready != 0:
		return Queued
	case s&waiting != 0:
		return Waiting
	case s&running != 0:
		return Processing
	}
	return Absent // resting
}

// Info is what the queue knows of a key.
type Info[T comparable] struct {
	Key   T
	State State
	// Again tells that a key that is being processed has been added since, and comes again.
	Again bool
	// Priority is the one with which the key will be handed out, or was if it does not come again.
	Priority int
	// Group is the key's group, or empty in a queue without groups.
	Group string
	// Due is when the key comes, if it waits for its time or will do so when its worker is Done. It is zero
	// otherwise.
	Due time.Time
	// Added is when the key was added first since its last hand-out, or, if it is being processed and not to
	// come again, before that. It is zero for a key that was added without a delay when no other
	// waited, unless the queue has Aging, MinInterval or metrics: others do not read the clock for it.
	Added time.Time
	// Failures is how many failures the limiter has counted since the key was forgotten.
	Failures int
}

// Inspect returns what the queue knows of key, and whether it is in the queue. If it is not, only Key and
// Failures are set. It takes constant time. The limiter's NumRequeues is called without the queue's lock.
func (q *Queue[T]) Inspect(key T) (Info[T], bool) {
	info := q.inspect(key)
	info.Failures = q.limiter.NumRequeues(key)
	return info, info.State != Absent
}

func (q *Queue[T]) inspect(key T) Info[T] {
	h := keytable.HashOf(key)
	q.lock(false)
	defer q.unlock()
	if s, e := q.keys.Find(h, key); e != nil && e.Value.state&resting == 0 {
		return q.infoLocked(s)
	}
	return Info[T]{Key: key}
}

// infoLocked returns what is known of the key at s, which is not resting, but for its failures.
func (q *Queue[T]) infoLocked(s keytable.Slot) Info[T] {
	e := q.keys.At(s)
	it := &e.Value
	info := Info[T]{Key: e.Key, State: it.state.public(), Priority: it.priority}
	group := it.home
	switch {
	case it.state&ready != 0:
		group = q.lines.At(it.home).Key.group
	case it.state&(waiting|timed) != 0:
		info.Due = q.timeOf(q.due.At(s).Rank)
	}
	if it.state&again != 0 {
		info.Again = true
		info.Priority = q.details.At(s).priority
	}
	if it.state&dated != 0 {
		info.Added = q.timeOf(q.details.At(s).added)
	}
	if q.groupOf != nil {
		info.Group = q.groups.At(group).Key
	}
	return info
}

// All returns the keys that are in the queue, in no particular order, as they are when a range over it begins:
// the queue is locked for a time in proportion to their number, and not any more when the first one is
// yielded. Failures are those at the time when the key is yielded.
func (q *Queue[T]) All() iter.Seq[Info[T]] {
	return func(yield func(Info[T]) bool) {
		for _, info := range q.infos() {
			info.Failures = q.limiter.NumRequeues(info.Key)
			if !yield(info) {
				return
			}
		}
	}
}

func (q *Queue[T]) infos() []Info[T] {
	q.lock(false)
	defer q.unlock()
	all := make([]Info[T], 0, q.keys.Len())
	for n := range q.keys.Slabs() {
		for s, e := range q.keys.Slab(n) {
			if e.Value.state&(ready|waiting|running) != 0 {
				all = append(all, q.infoLocked(s))
			}
		}
	}
	return all
}

// Remove takes key out of the queue, and returns the state in which it was. A key that is Processing stays with
// its worker, who calls Done as usual; what is removed is the wish that it comes again. What the limiter has
// counted stays until Forget. Remove works after shutdown too, and may end a drain.
func (q *Queue[T]) Remove(key T) State {
	h := keytable.HashOf(key)
	now := q.lock(false)
	defer q.unlock()
	s, e := q.keys.Find(h, key)
	if e == nil {
		return Absent
	}
	it := &e.Value
	before := it.state.public()
	switch before {
	case Queued:
		if q.observer != nil {
			q.observer.Unqueued(s)
		}
		q.leaveLineLocked(s, it)
		q.leaveLocked(s, it, now)
	case Waiting:
		q.due.Remove(s)
		q.leaveLocked(s, it, now)
	case Processing:
		switch it.state & (again | timed) {
		case again:
			q.wishes--
		case again | timed:
			q.due.Remove(s)
		}
		it.state = running | it.state&dated
	}
	return before
}
