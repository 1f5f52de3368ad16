package priorityqueue

import (
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/slotheap"
)

// pauses are the names of the paused groups, also of those without keys, and when each pause ends:
// dueloop.Never for some. They are not part of Queue, because in the next larger size of memory a cycle took
// 8 % longer.
type pauses struct {
	names keytable.Table[string, struct{}]
	ends  slotheap.Heap
	// ofQueue is when the pause of the queue ends, if it is paused.
	ofQueue time.Duration
}

// Pause is that of [workqueue.Operable]. Everything but Get goes on: keys are added, come due, and count in
// Len. While a pause with an end lasts, of the queue or of a group, the queue has its goroutine and timer.
// After shutdown it does nothing.
func (q *Queue[T]) Pause(d time.Duration) {
	now := q.loop.Now()
	q.lockAndAdvance(now)
	defer q.unlock()
	until := pauseEnd(now, d)
	if q.shuttingDown.Load() || until <= now {
		return
	}
	if !q.mu.paused || until > q.mu.pauses.ofQueue {
		q.mu.paused, q.mu.pauses.ofQueue = true, until
	}
	q.notePauseEndLocked()
}

// pauseEnd returns when a pause ends that begins now and lasts for d.
func pauseEnd(now, d time.Duration) time.Duration {
	if d == workqueue.UntilResumed {
		return dueloop.Never
	}
	return dueloop.AddSaturated(now, d)
}

// Resume ends a pause. It does nothing if there is none.
func (q *Queue[T]) Resume() {
	q.mu.Lock()
	defer q.unlock()
	q.resumeLocked()
}

func (q *Queue[T]) resumeLocked() {
	q.mu.paused = false
	q.notePauseEndLocked()
}

// endNextPauseLocked ends a pause that ends at now or before: that of the queue or of a group.
func (q *Queue[T]) endNextPauseLocked(now time.Duration) {
	if q.mu.paused && q.mu.pauses.ofQueue <= now {
		q.resumeLocked()
		return
	}
	q.endPauseLocked(q.mu.pauses.ends.First().Slot)
}

// PauseGroup is that of [workqueue.Operable]. The keys of a paused group are blocked: they stay queued, are
// added, come due, and count in Len. Keys that workers hold are finished as usual. The pause also holds for
// later keys, and has nothing to do with Config.Limit. It is for a tenant whose server says "slow down".
// After shutdown and without Config.Group, PauseGroup does nothing.
func (q *Queue[T]) PauseGroup(name string, d time.Duration) {
	if q.config.Group == nil {
		return
	}
	now := q.loop.Now()
	q.lockAndAdvance(now)
	defer q.unlock()
	until := pauseEnd(now, d)
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
		q.fileGroupLocked(&e.Value, wasBlocked)
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

// PausedGroups returns the groups that are paused, sorted, and nil in a queue without Config.Group.
// SnapshotGroup says until when.
func (q *Queue[T]) PausedGroups() []string {
	if q.config.Group == nil {
		return nil
	}
	lock := func() { q.lockAndAdvance(q.readClockIfUsed()) }
	add := func(names []string, s keytable.Slot) []string { return append(names, q.mu.pauses.names.At(s).Key) }
	names := slices.AppendSeq([]string{}, keytable.InSteps(&q.mu.pauses.names, lock, q.unlock, add))
	slices.Sort(names)
	return slices.Compact(names) // A group that was resumed and paused meanwhile may be there twice.
}

// SnapshotGroup is that of [workqueue.Operable].
func (q *Queue[T]) SnapshotGroup(group string) (g workqueue.GroupSnapshot) {
	h := keytable.HashOf(group)
	q.lockAndAdvance(q.readClockIfUsed())
	defer q.unlock()
	if _, e := q.mu.groups.Find(h, group); e != nil {
		g.Keys = e.Value.keys
	}
	if s, _ := q.mu.pauses.names.Find(h, group); s != keytable.None {
		g.Paused = true
		if end := time.Duration(q.mu.pauses.ends.At(s).Rank); end != dueloop.Never {
			g.PausedUntil = q.loop.Time(end)
		}
	}
	return g
}
