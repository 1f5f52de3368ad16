package priorityqueue

import (
	"math"
	"time"

	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/slotheap"
)

// The queued keys stand in lines, one for each priority and, in a queue with groups, each group: first in,
// first out.
//
//	order   (a heap, the next line first)      priority 7, group a:   k1  k9
//	                                           priority 7, group b:   k2
//	                                           priority 0, group a:   k3  k4  k5
//	blocked (a heap, of blocked groups)        priority 7, group c:   k6  k7
//
// The line with the lowest rank hands out its first queued key next. With groups that line decides only the
// priority, within which the groups take turns (groups.go). blocked is a heap only so that Snapshot and
// DropQueued have its keys in order.
//
// Without Aging the rank falls as the priority rises. With Aging it is the time at which the line's first
// queued key took its place, less Aging for each level of priority: a level counts as much as having come
// Aging earlier. Ranks do not change as time passes, so no timer moves lines. A line's keys stand in the
// order in which they took their places, so the first queued one decides.
//
// With Aging a key whose priority is raised stays in its old line if its age counts more: see
// setPriorityLocked. A key in state rerun stands in its line, and is stepped over until it is queued. Keys on
// hold do not, because there may be very many of them.

// lineKey is what a line is found by. Without groups the group is None.
type lineKey struct {
	priority int
	group    keytable.Slot
}

// line is the keys of one priority and group, but see Aging above.
//
// Invariants, which checkInvariants in the tests asserts:
//   - Its keys are in the order of the times at which they took their places, if there is Aging.
//   - It is in order or in blocked if and only if one of its keys is queued; in blocked if and only if its
//     group is blocked. It is in the ring of its priority if it is in order and there are groups.
//   - A line without keys is zeroLine.
type line struct {
	members keytable.List
	// first is a member with no queued one before it, or None if none is known.
	first  keytable.Slot
	heap   *slotheap.Heap // order, blocked or nil
	queued int            // how many members are queued
	// turnLeft is, with groups, how many keys may still be handed out in its turn. It is zero if the turn has
	// not begun.
	turnLeft int
}

// joinLineLocked puts the key at s at the end of the line of that priority. Its place counts from at, or from
// the last place that was taken if that is later: a key that comes due counts from its time.
func (q *Queue[T]) joinLineLocked(s keytable.Slot, info *keyInfo, priority int, at time.Duration) {
	if q.config.Aging > 0 {
		q.mu.lastPlaced = max(q.mu.lastPlaced, at)
		*q.mu.details.At(s).placedAt() = q.mu.lastPlaced
	}
	info.line = q.lineLocked(lineKey{priority, q.groupOfLocked(s)})
	q.mu.lists.Append(&q.mu.lines.At(info.line).Value.members, s)
}

// becomeQueuedLocked makes the key at s, which stands in a line, queued: workers can take it unless its group
// is blocked.
func (q *Queue[T]) becomeQueuedLocked(s keytable.Slot, info *keyInfo) {
	wasHeld := info.state == rerun
	info.state, info.byLimiter = queued, false
	l := &q.mu.lines.At(info.line).Value
	q.countQueuedLocked(l, 1)
	switch {
	case l.queued == 1:
		l.first = s
	case wasHeld: // It may stand before the first queued one.
		l.first = keytable.None
	}
	// With Aging the line's rank changes if s has a place in front of the other queued keys.
	if l.queued == 1 || q.config.Aging > 0 && q.firstQueuedLocked(l) == s {
		q.moveLineLocked(info.line)
	}
	if q.observer != nil {
		q.observer.Queued(s)
	}
}

// leaveLineLocked takes the key at s, which is queued or in state rerun, out of its line.
func (q *Queue[T]) leaveLineLocked(s keytable.Slot, info *keyInfo) {
	lineSlot := info.line
	info.line = keytable.None
	l := &q.mu.lines.At(lineSlot).Value
	if l.first == s {
		l.first = q.mu.lists.Next(s)
	}
	q.mu.lists.Remove(&l.members, s)
	if info.state == queued {
		q.countQueuedLocked(l, -1)
	}
	if l.queued == 0 || q.config.Aging > 0 { // With Aging the rank may have changed.
		q.moveLineLocked(lineSlot)
	}
	if l.members.Len() == 0 && lineSlot != q.mu.zeroLine {
		q.deleteLineLocked(lineSlot)
	}
}

// setPriorityLocked changes the priority of the key at s, which is queued or in state rerun, and moves it to
// the end of the line of the new priority. With Aging a raised key stays if it comes no later in its line
// than at that end.
func (q *Queue[T]) setPriorityLocked(s keytable.Slot, info *keyInfo, newPriority int, now time.Duration) {
	nextPriority := q.nextPriorityLocked(s, info)
	oldPriority := *nextPriority
	if newPriority == oldPriority {
		return
	}
	*nextPriority = newPriority
	q.countDepthLocked(info, oldPriority, -1)
	q.countDepthLocked(info, newPriority, 1)
	if info.line == keytable.None { // A key on hold joins a line at its Done.
		return
	}
	if q.config.Aging > 0 && newPriority > oldPriority {
		rankHere := q.rank(*q.mu.details.At(s).placedAt(), q.mu.lines.At(info.line).Key.priority)
		if rankThere := q.rank(max(q.mu.lastPlaced, now), newPriority); rankHere <= rankThere {
			return
		}
	}
	q.leaveLineLocked(s, info)
	q.joinLineLocked(s, info, newPriority, now)
	if info.state == queued {
		q.becomeQueuedLocked(s, info)
	}
}

// countQueuedLocked adds n to the counts of queued keys, of l and of the queue. If l is in blocked, its keys
// are also in blockedKeys, which moveLineLocked keeps when a line moves.
func (q *Queue[T]) countQueuedLocked(l *line, n int) {
	l.queued += n
	q.mu.queued += n
	if l.heap == &q.mu.blocked {
		q.mu.blockedKeys += n
	}
}

// firstQueuedLocked returns the first queued key of a line, or None. Many held keys may stand before it: they
// are stepped over once, and not for each key that is taken.
func (q *Queue[T]) firstQueuedLocked(l *line) keytable.Slot {
	if l.first == keytable.None {
		l.first = l.members.First()
	}
	l.first = q.queuedFromLocked(l.first)
	return l.first
}

// queuedFromLocked returns the first queued key from s on in its line, or None.
func (q *Queue[T]) queuedFromLocked(s keytable.Slot) keytable.Slot {
	for s != keytable.None && q.mu.keys.At(s).Value.state == rerun {
		s = q.mu.lists.Next(s)
	}
	return s
}

// nextKeyLocked returns the key to hand out next, and counts it in its group's turn. There must be one.
func (q *Queue[T]) nextKeyLocked() keytable.Slot {
	lineSlot := q.mu.order.First().Slot
	if q.config.Group != nil {
		lineSlot = q.useTurnLocked(q.mu.lines.At(lineSlot).Key.priority)
	}
	return q.firstQueuedLocked(&q.mu.lines.At(lineSlot).Value)
}

// lineLocked returns the line of k, and makes it if needed.
func (q *Queue[T]) lineLocked(k lineKey) keytable.Slot {
	isZero := k == lineKey{} // Never in a queue with groups: the slot of a group is not None.
	if isZero && q.mu.zeroLine != keytable.None {
		return q.mu.zeroLine
	}
	lineSlot, _, inserted := q.mu.lines.FindOrInsert(keytable.HashOf(k), k)
	switch {
	case isZero:
		q.mu.zeroLine = lineSlot
	case inserted && q.config.Group != nil:
		q.mu.linesOfGroup.Append(&q.mu.groups.At(k.group).Value.lines, lineSlot)
	}
	return lineSlot
}

func (q *Queue[T]) deleteLineLocked(lineSlot keytable.Slot) {
	if q.config.Group != nil {
		q.mu.linesOfGroup.Remove(&q.mu.groups.At(q.mu.lines.At(lineSlot).Key.group).Value.lines, lineSlot)
	}
	q.mu.lines.Delete(lineSlot)
	if !q.mu.lines.HasMemory(lineSlot) {
		q.mu.order.Release(lineSlot)
		q.mu.blocked.Release(lineSlot)
		q.mu.linesOfGroup.Release(lineSlot)
		q.mu.ringLinks.Release(lineSlot)
	}
}

// moveLineLocked moves a line to where it belongs, by its first queued key: to order, to blocked if its group
// is blocked, or out of both if no key is queued. With Aging it also renews the line's rank.
func (q *Queue[T]) moveLineLocked(lineSlot keytable.Slot) {
	e := q.mu.lines.At(lineSlot)
	l := &e.Value
	from, to := l.heap, &q.mu.order
	switch {
	case l.queued == 0:
		to = nil
	case q.config.Group != nil && q.mu.groups.At(e.Key.group).Value.blocked:
		to = &q.mu.blocked
	}
	if from == to {
		if to != nil && q.config.Aging > 0 {
			to.Replace(q.entryLocked(lineSlot, q.firstQueuedLocked(l)))
		}
		return
	}
	l.heap = to
	if from != nil {
		from.Remove(lineSlot)
	}
	if to != nil {
		to.Push(q.entryLocked(lineSlot, q.firstQueuedLocked(l)))
	}
	if q.config.Group == nil {
		return
	}
	switch from {
	case &q.mu.order:
		q.leaveRingLocked(lineSlot)
	case &q.mu.blocked:
		q.mu.blockedKeys -= l.queued // 0 if it is empty: countQueuedLocked has subtracted its keys.
	}
	switch to {
	case &q.mu.order:
		q.joinRingLocked(lineSlot)
	case &q.mu.blocked:
		q.mu.blockedKeys += l.queued
	}
}

// maxTie bounds the ties of lines: slotheap cannot compare ties that are 2^31 apart.
const maxTie = 1<<30 - 1

// entryLocked returns a line's place in a heap if s is its first queued key. Lines of several priorities can
// have one rank with Aging: then the tie puts the higher priority first. Those of one priority are groups'
// lines, and take turns.
func (q *Queue[T]) entryLocked(lineSlot, s keytable.Slot) slotheap.Entry {
	priority := q.mu.lines.At(lineSlot).Key.priority
	negated := -1 - int64(priority) // This cannot overflow, as -priority can.
	entry := slotheap.Entry{Rank: negated, Tie: uint32(min(max(negated, -maxTie), maxTie)), Slot: lineSlot}
	if q.config.Aging > 0 {
		entry.Rank = int64(q.rank(*q.mu.details.At(s).placedAt(), priority))
	}
	return entry
}

// rank is for queues with Aging. It returns placedAt less the head start of the priority, which is Aging for
// each level. It saturates.
func (q *Queue[T]) rank(placedAt time.Duration, priority int) time.Duration {
	maxLevels := math.MaxInt64 / int64(q.config.Aging)
	headStart := min(max(int64(priority), -maxLevels), maxLevels) * int64(q.config.Aging)
	return dueloop.AddSaturated(placedAt, -headStart)
}
