package priorityqueue

import "github.com/keyedqueue/workqueue/internal/keytable"

// Groups share turns by deficit round-robin: the lines of one priority stand in a ring, and each hands out as
// many keys as its group weighs before the next one's turn. A line that begins to have queued keys is the
// last of the round.

// joinRingLocked makes line n the last of the round among those of its priority.
func (q *Queue[T]) joinRingLocked(n keytable.Slot) {
	e := q.mu.lines.At(n)
	e.Value.turnLeft = 0
	_, ring, _ := q.mu.rings.FindOrInsert(keytable.HashOf(e.Key.priority), e.Key.priority)
	q.mu.ringLinks.Append(&ring.Value, n)
}

func (q *Queue[T]) leaveRingLocked(n keytable.Slot) {
	priority := q.mu.lines.At(n).Key.priority
	r, ring := q.mu.rings.Find(keytable.HashOf(priority), priority)
	q.mu.ringLinks.Remove(&ring.Value, n)
	if ring.Value.Len() == 0 {
		q.mu.rings.Delete(r)
	}
}

// turnLocked returns the line whose turn it is among those of the same priority as line n, and counts a key
// that it hands out.
func (q *Queue[T]) turnLocked(n keytable.Slot) keytable.Slot {
	priority := q.mu.lines.At(n).Key.priority
	_, ring := q.mu.rings.Find(keytable.HashOf(priority), priority)
	n = ring.Value.First()
	e := q.mu.lines.At(n)
	l := &e.Value
	if l.turnLeft == 0 {
		l.turnLeft = q.mu.groups.At(e.Key.group).Value.weight
	}
	if l.turnLeft--; l.turnLeft == 0 {
		q.mu.ringLinks.Remove(&ring.Value, n)
		q.mu.ringLinks.Append(&ring.Value, n)
	}
	return n
}
