package priorityqueue

import "github.com/keyedqueue/workqueue/internal/keytable"

// Groups share turns by deficit round-robin: the lines of one priority stand in a ring, and each hands out as
// many keys as its group weighs before it is the next one's turn. (Every key costs one, so what is left of a
// turn is never more than that, and is lost when the line has no more keys.) A line that begins to have keys
// is the last of the round.
//
// A group that is at its limit has its lines taken out of the rings and the order, and put back when one of
// its keys is Done. So nobody has to walk past keys that cannot be handed out.

// group is what the queue knows of a group. It is kept as long as one of its keys is ready, waiting or
// running.
type group struct {
	keys, running int
	weight        int
	// lines is the first of those with ready keys of the group, of which there is one for each priority.
	lines keytable.Slot
}

// ring is the lines of one priority that are in order, in their turns.
type ring struct {
	turn keytable.Slot
}

// joinGroupLocked counts a key into the group of that name, which it returns.
func (q *Queue[T]) joinGroupLocked(k *newKey[T]) keytable.Slot {
	g, e, _ := q.groups.FindOrInsert(k.groupHash, k.group)
	e.Value.keys++
	e.Value.weight = k.weight
	return g
}

// leaveGroupLocked counts a key that is not running out of group g.
func (q *Queue[T]) leaveGroupLocked(g keytable.Slot) {
	e := &q.groups.At(g).Value
	if e.keys--; e.keys == 0 {
		q.groups.Delete(g)
	}
}

// beginLocked counts a key of group g that is handed out.
func (q *Queue[T]) beginLocked(g keytable.Slot) {
	e := &q.groups.At(g).Value
	e.running++
	if e.running != q.maxPerGroup {
		return
	}
	for n := e.lines; n != keytable.None; n = q.lines.At(n).Value.nextOfGroup {
		q.withdrawLocked(n)
	}
}

// endLocked counts a key of group g that is Done.
func (q *Queue[T]) endLocked(g keytable.Slot) {
	e := &q.groups.At(g).Value
	e.running--
	if e.running+1 != q.maxPerGroup {
		return
	}
	for n := e.lines; n != keytable.None; n = q.lines.At(n).Value.nextOfGroup {
		q.offerLocked(n)
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

// enterRingLocked makes line n the last of the round in its ring, or returns false if its group is at its
// limit.
func (q *Queue[T]) enterRingLocked(n keytable.Slot) bool {
	e := q.lines.At(n)
	if q.maxPerGroup > 0 && q.groups.At(e.Key.group).Value.running >= q.maxPerGroup {
		return false
	}
	_, r, inserted := q.rings.FindOrInsert(keytable.HashOf(e.Key.priority), e.Key.priority)
	l := &e.Value
	l.left = 0
	if inserted {
		r.Value.turn = n
		l.prev, l.next = n, n
		return true
	}
	next := r.Value.turn
	prev := q.lines.At(next).Value.prev
	l.prev, l.next = prev, next
	q.lines.At(prev).Value.next = n
	q.lines.At(next).Value.prev = n
	return true
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
