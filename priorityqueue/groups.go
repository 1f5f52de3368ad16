package priorityqueue

import (
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/slotheap"
)

// Groups share turns by deficit round-robin: the lines of one priority stand in a ring, and each hands out as many keys
// as its group weighs before the next one's turn. A line that begins to have queued keys is the last of the round.
//
// A group that is at its limit or paused is blocked: its lines are moved from the rings and the order to the heap blocked, and
// back when one of its keys is Done, or the pause ends. So no call walks past keys that cannot be handed out.

// group is what the queue knows of a group. It is kept as long as one of its keys is queued, waiting or held.
type group struct {
	keys, held int
	weight     int
	// limit is how many of its keys may be held, zero if there is no limit.
	limit  int
	paused bool
	// lines are those of its keys, one for each priority.
	lines keytable.List
}

// pauses are the names of the paused groups, also of those without keys, and when each pause ends: dueloop.Never for some. They
// are not part of Queue, because in the next larger size of memory a cycle took 8 % longer.
type pauses struct {
	names keytable.Table[string, struct{}]
	ends  slotheap.Heap
	// ofQueue is when the pause of the queue ends, if it is paused.
	ofQueue time.Duration
}

// isBlocked reports whether the group is paused, or at its limit, or above one that was lowered.
func (g *group) isBlocked() bool { return g.paused || g.limit > 0 && g.held >= g.limit }

// groupOfLocked returns the group of the key at s, or None in a queue without groups.
func (q *Queue[T]) groupOfLocked(s keytable.Slot) keytable.Slot {
	if q.config.Group == nil {
		return keytable.None
	}
	return *q.mu.groupOf.Existing(s)
}

func (q *Queue[T]) joinGroupLocked(s keytable.Slot, k *newKey[T]) {
	g, e, inserted := q.mu.groups.FindOrInsert(k.groupHash, k.group)
	*q.mu.groupOf.At(s) = g
	if inserted && q.mu.pauses.names.Len() > 0 {
		_, pause := q.mu.pauses.names.Find(k.groupHash, k.group)
		e.Value.paused = pause != nil
	}
	wasBlocked := e.Value.isBlocked()
	e.Value.keys++
	e.Value.weight, e.Value.limit = k.weight, k.limit
	q.placeGroupLocked(&e.Value, wasBlocked)
}

// leaveGroupLocked takes the key at s, which is not held, out of its group, and forgets a group without keys.
func (q *Queue[T]) leaveGroupLocked(s keytable.Slot) {
	g := q.groupOfLocked(s)
	e := &q.mu.groups.At(g).Value
	if e.keys--; e.keys == 0 {
		q.mu.groups.Delete(g)
	}
}

// countHeldLocked counts a key of group g that is handed out or, if n is -1, Done.
func (q *Queue[T]) countHeldLocked(g keytable.Slot, n int) {
	e := &q.mu.groups.At(g).Value
	wasBlocked := e.isBlocked()
	e.held += n
	q.placeGroupLocked(e, wasBlocked)
}

// placeGroupLocked moves the lines of g if it has become blocked, or is blocked no more.
func (q *Queue[T]) placeGroupLocked(g *group, wasBlocked bool) {
	if g.isBlocked() == wasBlocked {
		return
	}
	for n := range q.mu.linesOfGroup.All(&g.lines) {
		q.placeLineLocked(n)
	}
}

// PauseGroup is that of [workqueue.Operable]. The keys of a paused group are blocked: they stay queued, are added, come due,
// and count in Len. Keys that workers hold are finished as usual. The pause also holds for later keys, and has nothing to do
// with Config.Limit. It is for a tenant whose server says "slow down". While a group is paused for a time, the queue has
// its goroutine and timer. After shutdown and without Config.Group, PauseGroup does nothing.
func (q *Queue[T]) PauseGroup(name string, d time.Duration) {
	if q.config.Group == nil {
		return
	}
	now := q.loop.Now()
	until := dueloop.AddSaturated(now, d)
	if d == workqueue.UntilResumed {
		until = dueloop.Never
	}
	q.lockAt(now)
	defer q.unlock()
	if q.shuttingDown.Load() || until <= now {
		return
	}
	h := keytable.HashOf(name)
	s, _, inserted := q.mu.pauses.names.FindOrInsert(h, name)
	end := slotheap.Entry{Rank: int64(until), Tie: q.mu.dueSeq, Slot: s}
	q.mu.dueSeq++
	switch {
	case inserted:
		q.mu.pauses.ends.Push(end)
		q.setPausedLocked(h, name, true)
	case end.Rank > q.mu.pauses.ends.At(s).Rank:
		q.mu.pauses.ends.Replace(end)
	}
	q.notePauseEndLocked()
}

// ResumeGroup ends the pause of group. It does nothing if there is none.
func (q *Queue[T]) ResumeGroup(group string) {
	q.mu.Lock()
	defer q.unlock()
	if s, _ := q.mu.pauses.names.Find(keytable.HashOf(group), group); s != keytable.None {
		q.endPauseLocked(s)
	}
}

func (q *Queue[T]) endPauseLocked(s keytable.Slot) {
	pause := q.mu.pauses.names.At(s)
	h, name := pause.Hash(), pause.Key
	slotheap.Drop(&q.mu.pauses.ends, &q.mu.pauses.names, s)
	q.notePauseEndLocked()
	q.setPausedLocked(h, name, false)
}

// setPausedLocked moves the lines of a group whose pause has begun or ended, if it has keys.
func (q *Queue[T]) setPausedLocked(h keytable.Hash, name string, paused bool) {
	if _, e := q.mu.groups.Find(h, name); e != nil {
		wasBlocked := e.Value.isBlocked()
		e.Value.paused = paused
		q.placeGroupLocked(&e.Value, wasBlocked)
	}
}

func (q *Queue[T]) notePauseEndLocked() {
	q.mu.pauseEnd = dueloop.Never
	if q.mu.paused {
		q.mu.pauseEnd = q.mu.pauses.ofQueue
	}
	if q.mu.pauses.ends.Len() > 0 {
		q.mu.pauseEnd = min(q.mu.pauseEnd, time.Duration(q.mu.pauses.ends.First().Rank))
	}
}

// PausedGroups returns the groups that are paused, sorted, and nil in a queue without Config.Group. SnapshotGroup says
// until when.
func (q *Queue[T]) PausedGroups() []string {
	if q.config.Group == nil {
		return nil
	}
	q.lockAt(q.readClock(false))
	defer q.unlock()
	return q.pausedGroupsLocked()
}

func (q *Queue[T]) pausedGroupsLocked() []string {
	names := []string{}
	for e := range q.mu.pauses.ends.InOrder() {
		names = append(names, q.mu.pauses.names.At(e.Slot).Key)
	}
	slices.Sort(names)
	return names
}

// groupPauseLocked returns whether group is paused, and when its pause ends, zero if it has no end.
func (q *Queue[T]) groupPauseLocked(h keytable.Hash, group string) (until time.Time, paused bool) {
	s, _ := q.mu.pauses.names.Find(h, group)
	if s == keytable.None {
		return time.Time{}, false
	}
	if end := time.Duration(q.mu.pauses.ends.At(s).Rank); end != dueloop.Never {
		until = q.loop.Time(end)
	}
	return until, true
}

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

// turnLocked returns the line whose turn it is among those of the same priority as line n, and counts a key that it hands out.
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
