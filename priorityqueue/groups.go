package priorityqueue

import "github.com/keyedqueue/workqueue/internal/keytable"

// A group that is at its limit or paused is blocked: its lines are moved from the rings and the order to the
// heap blocked, and back when one of its keys is Done, or the pause ends. So no call walks past keys that
// cannot be handed out.

// group is what the queue knows of a group. It is kept as long as one of its keys is queued, waiting or held.
type group struct {
	keys, held int // keys includes the held ones
	weight     int
	limit      int // how many of its keys may be held, zero if there is no limit
	paused     bool
	blocked    bool          // its lines are not in order: see updateBlockedLocked
	lines      keytable.List // one for each priority of its keys
}

// groupOfLocked returns the group of the key at s, or None in a queue without groups.
func (q *Queue[T]) groupOfLocked(s keytable.Slot) keytable.Slot {
	if q.config.Group == nil {
		return keytable.None
	}
	return *q.mu.groupOf.Existing(s)
}

func (q *Queue[T]) joinGroupLocked(s keytable.Slot, k *prepared[T]) {
	groupSlot, e, inserted := q.mu.groups.FindOrInsert(k.groupHash, k.group)
	*q.mu.groupOf.At(s) = groupSlot
	g := &e.Value
	if inserted && q.mu.pauses.all.Len() > 0 {
		g.paused, _ = q.pauseOfLocked(pausable{group: k.group})
	}
	g.keys++
	g.weight, g.limit = k.weight, k.limit
	q.updateBlockedLocked(g)
}

// leaveGroupLocked takes the key at s, which is not held, out of its group, and forgets a group without keys.
func (q *Queue[T]) leaveGroupLocked(s keytable.Slot) {
	groupSlot := q.groupOfLocked(s)
	g := &q.mu.groups.At(groupSlot).Value
	if g.keys--; g.keys == 0 {
		q.mu.groups.Delete(groupSlot)
	}
}

// countHeldLocked adds n to the held keys of the group of the key at s, and blocks or unblocks the group.
func (q *Queue[T]) countHeldLocked(s keytable.Slot, n int) {
	if q.config.Group == nil {
		return
	}
	g := &q.mu.groups.At(q.groupOfLocked(s)).Value
	g.held += n
	q.updateBlockedLocked(g)
}

// updateBlockedLocked blocks g if it is paused, at its limit, or above a lowered limit, and unblocks it
// if not.
func (q *Queue[T]) updateBlockedLocked(g *group) {
	blocked := g.paused || g.limit > 0 && g.held >= g.limit
	if blocked == g.blocked {
		return
	}
	g.blocked = blocked
	for lineSlot := range q.mu.linesOfGroup.All(&g.lines) {
		q.moveLineLocked(lineSlot)
	}
}

// Groups share turns by deficit round-robin: the lines of one priority stand in a ring, and each hands out as
// many keys as its group weighs before the next one's turn. A line that begins to have queued keys is the
// last of the round.

// joinRingLocked makes a line the last of the round among those of its priority.
func (q *Queue[T]) joinRingLocked(lineSlot keytable.Slot) {
	e := q.mu.lines.At(lineSlot)
	e.Value.turnLeft = 0
	_, ring, _ := q.mu.rings.FindOrInsert(keytable.HashOf(e.Key.priority), e.Key.priority)
	q.mu.ringLinks.Append(&ring.Value, lineSlot)
}

func (q *Queue[T]) leaveRingLocked(lineSlot keytable.Slot) {
	priority := q.mu.lines.At(lineSlot).Key.priority
	r, ring := q.mu.rings.Find(keytable.HashOf(priority), priority)
	q.mu.ringLinks.Remove(&ring.Value, lineSlot)
	if ring.Value.Len() == 0 {
		q.mu.rings.Delete(r)
	}
}

// useTurnLocked returns the line whose turn it is at that priority, and counts one key of its turn as used.
func (q *Queue[T]) useTurnLocked(priority int) keytable.Slot {
	_, ring := q.mu.rings.Find(keytable.HashOf(priority), priority)
	lineSlot := ring.Value.First()
	e := q.mu.lines.At(lineSlot)
	l := &e.Value
	if l.turnLeft == 0 {
		l.turnLeft = q.mu.groups.At(e.Key.group).Value.weight
	}
	if l.turnLeft--; l.turnLeft == 0 {
		q.mu.ringLinks.Remove(&ring.Value, lineSlot)
		q.mu.ringLinks.Append(&ring.Value, lineSlot)
	}
	return lineSlot
}
