package priorityqueue

import (
	"math"
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/slotheap"
)

// The ready keys stand in lines, one for each priority and, in a queue with groups, each group: first in,
// first out. Lines from which a key can be taken are in the heap order, and those of groups at their limit in the
// heap blocked.
//
// Without Aging a line's rank is its priority. With Aging it is the time at which its first ready key took its
// place, less Aging for each level of priority: a level counts as much as having come Aging earlier. Ranks do not
// change as time passes, so no timer has to move lines. The keys of a line took their places in the order in which
// they stand, so the first ready one decides.
//
// With PlaceOfAdd, a key that comes again when its worker is Done is parked in its line: it stands there, and is
// stepped over until it is ready.

// lineKey is what a line is found by. Without groups the group is None.
type lineKey struct {
	priority int
	group    keytable.Slot
}

// line is the ready and parked keys of one priority and group.
//
// Invariants, which checkInvariants in the tests asserts:
//   - Its keys are in the order of the times at which they took their places, if there is Aging.
//   - It is in order or in blocked if and only if one of its keys is ready; in blocked if and only if its
//     group is at its limit. It is in the ring of its priority if it is in order and there are groups.
//   - A line without keys is lastLine, in a queue without groups.
type line struct {
	list
	// ready is the number of ready keys, and heap the one that the line is in.
	ready int
	heap  heapName
	// What follows is used if there are groups.

	// prev and next are the lines before and after it in the ring of its priority.
	prev, next keytable.Slot
	// prevOfGroup and nextOfGroup are neighbours in the list of the lines of its group.
	prevOfGroup, nextOfGroup keytable.Slot
	// left is the number of keys that may still be handed out in its turn, zero if it has not begun.
	left int
}

// heapName is the heap that a line is in.
type heapName uint8

const (
	inNone heapName = iota
	inOrder
	inBlocked
)

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

// enterLineLocked puts the key at s, whose home is its group, at the end of the line of that priority: as of now, or
// of the time at which the last key took its place if the clock has gone back.
func (q *Queue[T]) enterLineLocked(s keytable.Slot, it *item, priority int, now int64) {
	if q.config.Aging > 0 {
		q.lastReady = max(q.lastReady, now)
		q.details.At(s).since = q.lastReady
	}
	it.home = q.lineLocked(lineKey{priority, it.home})
	q.appendLocked(&q.lines.At(it.home).Value.list, s, it)
}

// pushLocked makes the key at s, whose home is its group, ready.
func (q *Queue[T]) pushLocked(s keytable.Slot, it *item, now int64) {
	q.enterLineLocked(s, it, it.priority, now)
	q.becomeReadyLocked(s, it)
}

// becomeReadyLocked makes the key at s, which has its place in a line, ready.
func (q *Queue[T]) becomeReadyLocked(s keytable.Slot, it *item) {
	it.state = ready | it.state&dated
	l := &q.lines.At(it.home).Value
	q.countReadyLocked(l, 1)
	if l.ready == 1 || q.config.PlaceOfAdd && q.firstReadyLocked(l) == s {
		q.settleLocked(it.home)
	}
	if q.observer != nil {
		q.observer.Queued(s)
	}
}

// leaveLineLocked takes the ready or parked key at s out of its line. Its home is its group afterwards.
func (q *Queue[T]) leaveLineLocked(s keytable.Slot, it *item) {
	n := it.home
	e := q.lines.At(n)
	l := &e.Value
	it.home = e.Key.group
	wasFirst := l.first == s
	if q.config.PlaceOfAdd {
		wasFirst = q.firstReadyLocked(l) == s
	}
	q.unlinkLocked(&l.list, it)
	if it.state&ready != 0 {
		q.countReadyLocked(l, -1)
	}
	if l.ready == 0 || wasFirst && q.config.Aging > 0 {
		q.settleLocked(n)
	}
	if l.first == keytable.None && (q.config.Group != nil || n != q.lastLine) {
		q.deleteLineLocked(n)
	}
}

// countReadyLocked counts ready keys of l that come or, if n is negative, go.
func (q *Queue[T]) countReadyLocked(l *line, n int) {
	l.ready += n
	q.queued += n
	if l.heap == inBlocked {
		q.blockedKeys += n
	}
}

// firstReadyLocked returns the first ready key of l, or None.
func (q *Queue[T]) firstReadyLocked(l *line) keytable.Slot { return q.readyFromLocked(l.first) }

// readyFromLocked returns the first ready key from s on in its line, or None.
func (q *Queue[T]) readyFromLocked(s keytable.Slot) keytable.Slot {
	if q.config.PlaceOfAdd {
		for s != keytable.None && q.keys.At(s).Value.state&parked != 0 {
			s = q.keys.At(s).Value.next
		}
	}
	return s
}

// nextLocked returns the key to be handed out next. There must be one.
func (q *Queue[T]) nextLocked() keytable.Slot {
	n := q.order.First().Slot
	if q.config.Group != nil {
		n = q.turnLocked(n)
	}
	return q.firstReadyLocked(&q.lines.At(n).Value)
}

// lineLocked returns the line of k, which is made if there is none. An empty one that is not the last one is
// not kept, so their number does not grow with that of the priorities seen.
func (q *Queue[T]) lineLocked(k lineKey) keytable.Slot {
	if q.lastLine != keytable.None && q.lines.At(q.lastLine).Key == k {
		return q.lastLine
	}
	n, _, inserted := q.lines.FindOrInsert(keytable.HashOf(k), k)
	if q.config.Group != nil {
		if inserted {
			q.linkLineLocked(n, k.group)
		}
		return n
	}
	if q.lastLine != keytable.None && q.lines.At(q.lastLine).Value.first == keytable.None {
		q.deleteLineLocked(q.lastLine)
	}
	q.lastLine = n
	return n
}

func (q *Queue[T]) deleteLineLocked(n keytable.Slot) {
	if q.config.Group != nil {
		q.unlinkLineLocked(n)
	}
	q.lines.Delete(n)
	if !q.lines.HasMemory(n) {
		q.order.Release(n)
		q.blocked.Release(n)
	}
}

// settleLocked puts line n into the heap where it belongs, by its first ready key.
func (q *Queue[T]) settleLocked(n keytable.Slot) {
	e := q.lines.At(n)
	l := &e.Value
	where := inOrder
	switch {
	case l.ready == 0:
		where = inNone
	case q.config.Group != nil && q.groups.At(e.Key.group).Value.isFull():
		where = inBlocked
	}
	if where == l.heap {
		if where != inNone && q.config.Aging > 0 {
			q.heapOf(where).Replace(q.entryLocked(n))
		}
		return
	}
	switch l.heap {
	case inOrder:
		q.order.Remove(n)
		if q.config.Group != nil {
			q.leaveRingLocked(n)
		}
	case inBlocked:
		q.blocked.Remove(n)
		q.blockedKeys -= l.ready
	}
	l.heap = where
	switch where {
	case inOrder:
		q.order.Push(q.entryLocked(n))
		if q.config.Group != nil {
			q.enterRingLocked(n)
		}
	case inBlocked:
		q.blocked.Push(q.entryLocked(n))
		q.blockedKeys += l.ready
	}
}

func (q *Queue[T]) heapOf(name heapName) *slotheap.Heap {
	if name == inBlocked {
		return &q.blocked
	}
	return &q.order
}

// entryLocked returns the place of line n, which has a ready key, in the order.
func (q *Queue[T]) entryLocked(n keytable.Slot) slotheap.Entry {
	return q.entryOfKeyLocked(n, q.firstReadyLocked(&q.lines.At(n).Value))
}

// maxTie bounds the ties of lines, because ties that are 2^31 apart cannot be compared.
const maxTie = 1<<30 - 1

// entryOfKeyLocked returns the place of line n in the order if s is its first ready key. Where ranks are equal, the
// higher priority comes first.
func (q *Queue[T]) entryOfKeyLocked(n, s keytable.Slot) slotheap.Entry {
	priority := q.lines.At(n).Key.priority
	behind := int64(^priority) // This is -priority-1, and cannot overflow.
	entry := slotheap.Entry{Rank: behind, Tie: uint32(min(max(behind, -maxTie), maxTie)), Slot: n}
	if q.config.Aging > 0 {
		entry.Rank = q.rank(q.details.At(s).since, priority)
	}
	return entry
}

// rank returns since - priority·Aging, or the nearest int64 to it.
func (q *Queue[T]) rank(since int64, priority int) int64 {
	most := math.MaxInt64 / int64(q.config.Aging)
	bought := min(max(int64(priority), -most), most) * int64(q.config.Aging)
	return addSaturated(since, time.Duration(-bought))
}

// reprioritizeLocked moves the ready or parked key at s, whose priority was raised or lowered, to the end of the
// line of its new priority. If it is ahead of where that would put it, by its age, it stays where it is: to become
// more urgent must not cost it time.
func (q *Queue[T]) reprioritizeLocked(s keytable.Slot, it *item, raised bool, priority int, now int64) {
	if q.config.Aging > 0 && raised {
		here := q.rank(q.details.At(s).since, q.lines.At(it.home).Key.priority)
		if here <= q.rank(max(q.lastReady, now), priority) {
			return
		}
	}
	q.leaveLineLocked(s, it)
	q.enterLineLocked(s, it, priority, now)
	if it.state&ready != 0 {
		q.becomeReadyLocked(s, it)
	}
}

// Groups share turns by deficit round-robin: the lines of one priority stand in a ring, and each hands out as
// many keys as its group weighs before the next one's turn. (Every key costs one, so what is left of a turn is
// never more than that, and is lost when the line has no more keys.) A line that begins to have ready keys is the
// last of the round.
//
// A group that is at its limit has its lines moved from the rings and the order to the heap blocked, and back when
// one of its keys is Done. So no call walks past keys that cannot be handed out.

// group is what the queue knows of a group. It is kept as long as one of its keys is ready, waiting or
// running.
type group struct {
	keys, running int
	weight        int
	// limit is how many of its keys may be running, zero if there is no limit.
	limit int
	// lines is the first of its lines, one for each priority.
	lines keytable.Slot
}

// isFull reports whether the group is at its limit, or above one that was lowered.
func (g *group) isFull() bool { return g.limit > 0 && g.running >= g.limit }

// ring is the lines of one priority that are in order, in their turns.
type ring struct {
	turn keytable.Slot
}

// groupOfLocked returns the group of a key.
func (q *Queue[T]) groupOfLocked(it *item) keytable.Slot {
	if it.state&(ready|parked) != 0 {
		return q.lines.At(it.home).Key.group
	}
	return it.home
}

// joinGroupLocked adds a key to the count of its group, and returns the group.
func (q *Queue[T]) joinGroupLocked(k *newKey[T]) keytable.Slot {
	g, e, _ := q.groups.FindOrInsert(k.groupHash, k.group)
	e.Value.keys++
	e.Value.weight = k.weight
	q.updateGroupLocked(g, e.Value.running, k.limit)
	return g
}

// leaveGroupLocked takes a key that is not running from the count of group g, and forgets a group without keys.
func (q *Queue[T]) leaveGroupLocked(g keytable.Slot) {
	e := &q.groups.At(g).Value
	if e.keys--; e.keys == 0 {
		q.groups.Delete(g)
	}
}

// countRunningLocked counts a key of group g that is handed out or, if n is -1, Done.
func (q *Queue[T]) countRunningLocked(g keytable.Slot, n int) {
	e := &q.groups.At(g).Value
	q.updateGroupLocked(g, e.running+n, e.limit)
}

// updateGroupLocked changes group g and, if that takes it to its limit or back, moves its lines.
func (q *Queue[T]) updateGroupLocked(g keytable.Slot, running, limit int) {
	e := &q.groups.At(g).Value
	wasFull := e.isFull()
	e.running, e.limit = running, limit
	if e.isFull() == wasFull {
		return
	}
	for n := e.lines; n != keytable.None; n = q.lines.At(n).Value.nextOfGroup {
		q.settleLocked(n)
	}
}

// linkLineLocked puts the new line n into the list of its group's lines.
func (q *Queue[T]) linkLineLocked(n, g keytable.Slot) {
	e := &q.groups.At(g).Value
	q.lines.At(n).Value.nextOfGroup = e.lines
	if e.lines != keytable.None {
		q.lines.At(e.lines).Value.prevOfGroup = n
	}
	e.lines = n
}

func (q *Queue[T]) unlinkLineLocked(n keytable.Slot) {
	e := q.lines.At(n)
	prev, next := e.Value.prevOfGroup, e.Value.nextOfGroup
	if prev == keytable.None {
		q.groups.At(e.Key.group).Value.lines = next
	} else {
		q.lines.At(prev).Value.nextOfGroup = next
	}
	if next != keytable.None {
		q.lines.At(next).Value.prevOfGroup = prev
	}
}

// enterRingLocked makes line n the last of the round in its ring, at the beginning of its turn.
func (q *Queue[T]) enterRingLocked(n keytable.Slot) {
	e := q.lines.At(n)
	_, r, inserted := q.rings.FindOrInsert(keytable.HashOf(e.Key.priority), e.Key.priority)
	l := &e.Value
	l.left = 0
	if inserted {
		r.Value.turn = n
		l.prev, l.next = n, n
		return
	}
	next := r.Value.turn
	prev := q.lines.At(next).Value.prev
	l.prev, l.next = prev, next
	q.lines.At(prev).Value.next = n
	q.lines.At(next).Value.prev = n
}

func (q *Queue[T]) leaveRingLocked(n keytable.Slot) {
	e := q.lines.At(n)
	s, r := q.rings.Find(keytable.HashOf(e.Key.priority), e.Key.priority)
	l := &e.Value
	if l.next == n {
		q.rings.Delete(s)
		return
	}
	q.lines.At(l.prev).Value.next = l.next
	q.lines.At(l.next).Value.prev = l.prev
	if r.Value.turn == n {
		r.Value.turn = l.next
	}
}

// turnLocked returns the line whose turn it is among those of the same priority as line n, and counts a
// key that it hands out.
func (q *Queue[T]) turnLocked(n keytable.Slot) keytable.Slot {
	priority := q.lines.At(n).Key.priority
	_, r := q.rings.Find(keytable.HashOf(priority), priority)
	n = r.Value.turn
	e := q.lines.At(n)
	l := &e.Value
	if l.left == 0 {
		l.left = q.groups.At(e.Key.group).Value.weight
	}
	if l.left--; l.left == 0 {
		r.Value.turn = l.next
	}
	return n
}
