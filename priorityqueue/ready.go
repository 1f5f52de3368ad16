package priorityqueue

import (
	"math"
	"math/bits"
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/slotheap"
)

// The ready keys stand in lines, one for each priority and, in a queue with groups, each group: first in,
// first out. Lines from which a key can be taken are in the heap order.
//
// Without Aging a line's rank is its priority. With Aging it is the time at which its first key became
// ready, less Aging for each level of priority: the time at which it would have been ready, had age been
// bought with priority. That order does not change as time passes, so nothing has to be done about it. Keys
// of one line became ready in the order in which they stand, so the first one decides.

// lineKey is what a line is found by. Without groups the group is None.
type lineKey struct {
	priority int
	group    keytable.Slot
}

// line is the ready keys of one priority and group.
//
// Invariants, which checkInvariants in the tests asserts:
//   - Its keys are in the order of the times at which they became ready, if there is Aging.
//   - It is in order, and in the ring of its priority if there are groups, if and only if it has a key and
//     its group is not at its limit.
//   - A line without keys is in recent, of a queue without groups.
type line struct {
	list
	inOrder bool
	// What follows is used if there are groups.

	// prev and next are the lines before and after it in the ring of its priority.
	prev, next keytable.Slot
	// prevOfGroup and nextOfGroup are neighbours in the list of the lines of its group.
	prevOfGroup, nextOfGroup keytable.Slot
	// left is the number of keys that may still be handed out in its turn, zero if it has not begun.
	left int
}

// list is some keys in the order of their arrival, chained by prev and next of their items.
type list struct{ first, last keytable.Slot }

// appendLocked puts the key at s, which is in no list, at the end of l.
func (q *Queue[T]) appendLocked(l *list, s keytable.Slot, it *item) {
	it.prev, it.next = l.last, keytable.None
	if l.last == keytable.None {
		l.first = s
	} else {
		q.keys.At(l.last).Value.next = s
	}
	l.last = s
}

// unlinkLocked takes a key out of l.
func (q *Queue[T]) unlinkLocked(l *list, it *item) {
	if it.prev == keytable.None {
		l.first = it.next
	} else {
		q.keys.At(it.prev).Value.next = it.next
	}
	if it.next == keytable.None {
		l.last = it.prev
	} else {
		q.keys.At(it.next).Value.prev = it.prev
	}
}

// pushLocked makes the key at s, whose home is its group, ready: since now, or since the last key became
// ready if the clock has gone back.
func (q *Queue[T]) pushLocked(s keytable.Slot, it *item, now int64) {
	if q.aging > 0 {
		q.lastReady = max(q.lastReady, now)
		q.details.At(s).since = q.lastReady
	}
	n := q.lineLocked(lineKey{it.priority, it.home})
	it.home = n
	it.state = ready | it.state&dated
	q.queued++
	if q.observer != nil {
		q.observer.Queued(s)
		q.depths.add(q.lines.At(n).Key.priority, 1)
	}
	l := &q.lines.At(n).Value
	q.appendLocked(&l.list, s, it)
	if l.first == s {
		q.offerLocked(n)
	}
}

// leaveLineLocked takes the ready key at s out of its line. Its home is its group afterwards.
func (q *Queue[T]) leaveLineLocked(s keytable.Slot, it *item) {
	n := it.home
	e := q.lines.At(n)
	l := &e.Value
	it.home = e.Key.group
	q.queued--
	if q.observer != nil {
		q.depths.add(e.Key.priority, -1)
	}
	wasFirst := l.first == s
	q.unlinkLocked(&l.list, it)
	switch {
	case l.first == keytable.None:
		q.withdrawLocked(n)
		if q.groupOf != nil {
			q.unlinkLineLocked(n)
			q.deleteLineLocked(n)
		} else if n != *q.recentOf(e.Key.priority) {
			q.deleteLineLocked(n)
		}
	case wasFirst && l.inOrder && q.aging > 0:
		q.order.Replace(q.entryLocked(n))
	}
}

// nextLocked returns the key to be handed out next. There must be one.
func (q *Queue[T]) nextLocked() keytable.Slot {
	n := q.order.First().Slot
	if q.groupOf != nil {
		n = q.turnLocked(n)
	}
	return q.lines.At(n).Value.first
}

// recentLines is the number of lines that are found without a look-up, and kept while they are empty.
const recentLines = 16

// recentOf returns where the line of that priority is if it was asked for last, of those that share the place.
func (q *Queue[T]) recentOf(priority int) *keytable.Slot {
	return &q.recent[uint(priority)%recentLines]
}

// lineLocked returns the line of k, which is made if there is none. One that is empty and no longer in recent is
// not kept, so their number does not grow with that of the priorities seen.
func (q *Queue[T]) lineLocked(k lineKey) keytable.Slot {
	recent := q.recentOf(k.priority)
	if *recent != keytable.None && q.lines.At(*recent).Key == k {
		return *recent
	}
	n, _, inserted := q.lines.FindOrInsert(keytable.HashOf(k), k)
	if q.groupOf != nil {
		if inserted {
			q.linkLineLocked(n, k.group)
		}
		return n
	}
	if *recent != keytable.None && q.lines.At(*recent).Value.first == keytable.None {
		q.deleteLineLocked(*recent)
	}
	*recent = n
	return n
}

func (q *Queue[T]) deleteLineLocked(n keytable.Slot) {
	q.lines.Delete(n)
	if !q.lines.HasMemory(n) {
		q.order.Release(n)
	}
}

// offerLocked puts line n, which has a key, into the order, unless its group is at its limit.
func (q *Queue[T]) offerLocked(n keytable.Slot) {
	if q.groupOf != nil && !q.enterRingLocked(n) {
		return
	}
	q.lines.At(n).Value.inOrder = true
	q.order.Push(q.entryLocked(n))
}

// withdrawLocked takes line n out of the order if it is there.
func (q *Queue[T]) withdrawLocked(n keytable.Slot) {
	l := &q.lines.At(n).Value
	if !l.inOrder {
		return
	}
	l.inOrder = false
	q.order.Remove(n)
	if q.groupOf != nil {
		q.leaveRingLocked(n)
	}
}

// entryLocked returns the place of line n in the order. Where ranks are equal, the higher priority comes first.
func (q *Queue[T]) entryLocked(n keytable.Slot) slotheap.Entry {
	e := q.lines.At(n)
	// ^p is -p-1, and cannot overflow. Ties of less than 2^31 compare as numbers.
	behind := int64(^e.Key.priority)
	entry := slotheap.Entry{Rank: behind, Tie: uint32(min(max(behind, -1<<30), 1<<30)), Slot: n}
	if q.aging > 0 {
		entry.Rank = q.rank(q.details.At(e.Value.first).since, e.Key.priority)
	}
	return entry
}

// rank returns since - priority·Aging, or the nearest int64 to it.
func (q *Queue[T]) rank(since int64, priority int) int64 {
	magnitude := uint64(priority)
	if priority < 0 {
		magnitude = -magnitude
	}
	hi, lo := bits.Mul64(magnitude, uint64(q.aging))
	if hi > 0 || lo > math.MaxInt64 {
		lo = math.MaxInt64
	}
	if priority < 0 {
		return addSaturated(since, time.Duration(lo))
	}
	return addSaturated(since, -time.Duration(lo))
}

// addSaturated returns t + d, or the nearest int64 to it.
func addSaturated(t int64, d time.Duration) int64 {
	sum := t + int64(d)
	switch {
	case t > 0 && d > 0 && sum < 0:
		return math.MaxInt64
	case t < 0 && d < 0 && sum >= 0:
		return math.MinInt64
	}
	return sum
}

// reprioritizeLocked gives the ready key at s another priority, with which it goes to the end of another
// line. If it is ahead of where that would put it, by its age, it stays where it is: to become more urgent
// must not cost it time.
func (q *Queue[T]) reprioritizeLocked(s keytable.Slot, it *item, priority int, now int64) {
	if q.aging > 0 && priority > it.priority {
		here := q.rank(q.details.At(s).since, q.lines.At(it.home).Key.priority)
		if here <= q.rank(max(q.lastReady, now), priority) {
			it.priority = priority
			return
		}
	}
	q.leaveLineLocked(s, it)
	it.priority = priority
	q.pushLocked(s, it, now)
}
