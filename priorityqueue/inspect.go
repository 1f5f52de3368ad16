package priorityqueue

import (
	"iter"
	"time"

	"github.com/keyedqueue/workqueue"
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
	// Again reports that a key that is being processed has been added since, and comes again.
	Again bool
	// Blocked reports that a queued key cannot be handed out, because its group is at its limit.
	Blocked bool
	// Paused reports that the queue is paused.
	Paused bool
	// Priority is the one with which the key will be handed out, or was if it does not come again.
	Priority int
	// Group is the key's group, or empty in a queue without groups.
	Group string
	// Due is when the key comes, if it waits for its time or will do so when its worker is Done. It is zero
	// otherwise.
	Due time.Time
	// Added is when the key was added first since its last hand-out, or, if it is being processed and does not
	// come again, before that. It is zero for a key that was added without a delay when no other
	// waited, unless the queue has Aging, MinInterval or metrics: others do not read the clock for it.
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
	if _, e := q.keys.Find(h, key); e != nil && e.Value.state&resting == 0 {
		return e.Value.priority
	}
	return 0
}

func (q *Queue[T]) inspect(key T) Info[T] {
	h := keytable.HashOf(key)
	q.lockAt(q.readClock(false))
	defer q.unlock()
	if s, e := q.keys.Find(h, key); e != nil && e.Value.state&resting == 0 {
		return q.infoLocked(s)
	}
	return Info[T]{Key: key, Paused: q.paused}
}

// infoLocked returns what is known of the key at s, which is not resting, except its failures.
func (q *Queue[T]) infoLocked(s keytable.Slot) Info[T] {
	e := q.keys.At(s)
	it := &e.Value
	info := Info[T]{Key: e.Key, State: it.state.public(), Paused: q.paused, Priority: it.priority}
	if it.state&(waiting|timed) != 0 {
		info.Due = q.timeOf(q.due.At(s).Rank)
	}
	if it.state&again != 0 {
		info.Again = true
		info.Priority = q.details.At(s).priority
	}
	if it.state&dated != 0 {
		info.Added = q.timeOf(q.details.At(s).added)
	}
	if q.config.Group != nil {
		g := q.groups.At(q.groupOfLocked(it))
		info.Group = g.Key
		info.Blocked = it.state&ready != 0 && g.Value.isFull()
	}
	return info
}

// All returns the keys that are in the queue, in no particular order. A range over it reads a few hundred keys
// at a time, each as it is at that moment, and holds no lock while it yields them. A key that leaves the queue and
// comes back meanwhile may be yielded twice, and one that is added meanwhile may be left out. Failures are
// those at the time when the key is yielded.
func (q *Queue[T]) All() iter.Seq[Info[T]] {
	return func(yield func(Info[T]) bool) {
		var some []Info[T]
		for n, slabs := 0, q.slabs(); n < slabs; n++ {
			some = q.appendInfos(some[:0], n)
			for _, info := range some {
				info.Failures = q.NumRequeues(info.Key)
				if !yield(info) {
					return
				}
			}
		}
	}
}

func (q *Queue[T]) slabs() int {
	q.gate.Lock()
	defer q.unlock()
	return q.keys.Slabs()
}

// appendInfos appends what is known of the keys of slab n.
func (q *Queue[T]) appendInfos(infos []Info[T], n int) []Info[T] {
	q.lockAt(q.readClock(false))
	defer q.unlock()
	for s := range q.keys.LiveSlots(n) {
		if q.keys.At(s).Value.state&resting == 0 {
			infos = append(infos, q.infoLocked(s))
		}
	}
	return infos
}

// Remove takes key out of the queue, and returns the state in which it was. A key that is Processing stays with
// its worker, who calls Done as usual, and does not come again. What the limiter has counted stays until Forget.
// Remove works after shutdown too, and may end a drain.
func (q *Queue[T]) Remove(key T) State {
	h := keytable.HashOf(key)
	now := q.readClock(false)
	q.lockAt(now)
	defer q.unlock()
	s, e := q.keys.Find(h, key)
	if e == nil {
		return Absent
	}
	before := e.Value.state.public()
	q.removeLocked(s, &e.Value, now)
	return before
}

// removeLocked takes the key at s, unless it is resting, out of the queue, or makes a running one not come again.
func (q *Queue[T]) removeLocked(s keytable.Slot, it *item, now int64) {
	switch st := it.state; {
	case st&ready != 0:
		if q.observer != nil {
			q.observer.Unqueued(s)
		}
		q.endNeedLocked(it.priority)
		q.leaveLineLocked(s, it)
		q.retireLocked(s, it, now)
	case st&waiting != 0:
		q.due.Remove(s)
		q.retireLocked(s, it, now)
	case st&running != 0:
		switch st & (again | timed) {
		case again:
			q.cancelWishLocked(s, it)
		case again | timed:
			q.due.Remove(s)
		}
		it.state = running | it.state&dated
	}
}

var _ workqueue.KeyRemover[int] = (*Queue[int])(nil)

// Discard is Remove and Forget. It reports whether key was in the queue.
func (q *Queue[T]) Discard(key T) bool {
	state := q.Remove(key)
	q.Forget(key)
	return state != Absent
}
