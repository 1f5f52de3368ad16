package priorityqueue

import "github.com/keyedqueue/workqueue/internal/keytable"

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

// joinGroupLocked counts a key into its group, which it returns.
func (q *Queue[T]) joinGroupLocked(k *newKey[T]) keytable.Slot {
	g, e, _ := q.groups.FindOrInsert(k.groupHash, k.group)
	e.Value.keys++
	e.Value.weight = k.weight
	q.updateGroupLocked(g, e.Value.running, k.limit)
	return g
}

// leaveGroupLocked counts a key that is not running out of group g.
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
