package priorityqueue

import (
	"slices"
	"time"

	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/slotheap"
	"github.com/keyedqueue/workqueue/operate"
)

// pauses are the paused groups, and the queue if it is paused. It is not part of Queue, because in the next
// larger size of memory a cycle took 8 % longer.
type pauses struct {
	all keytable.Table[pausable, struct{}]
	// ends has when each pause ends: dueloop.Never if only Resume ends it.
	ends slotheap.Heap
}

// pausable is a group, which may have no keys, or the queue itself.
type pausable struct {
	group string
	queue bool
}

// Pause makes the queue hand out nothing for d, or until Resume with [operate.UntilResumed]. Of several
// pauses the latest end counts. Keys are added, come due, and count in Len as usual. While a pause with an
// end lasts, the queue has its goroutine and timer. Pause does nothing after shutdown, or if d is not
// positive.
func (q *Queue[T]) Pause(d time.Duration) { q.pause(pausable{queue: true}, d) }

// Resume ends a pause of the queue. Without a pause it does nothing.
func (q *Queue[T]) Resume() { q.resume(pausable{queue: true}) }

// PauseGroup is Pause for the keys of one group, present and later ones. They are blocked, and keys that
// workers hold are finished as usual. Without Config.Group, PauseGroup does nothing.
func (q *Queue[T]) PauseGroup(name string, d time.Duration) {
	if q.config.Group != nil {
		q.pause(pausable{group: name}, d)
	}
}

// ResumeGroup ends the pause of a group. Without a pause it does nothing.
func (q *Queue[T]) ResumeGroup(name string) { q.resume(pausable{group: name}) }

func (q *Queue[T]) pause(p pausable, d time.Duration) {
	q.mu.Lock()
	defer q.unlock()
	now := q.advanceToNowLocked()
	until := dueloop.Never
	if d != operate.UntilResumed {
		until = dueloop.AddSaturated(now, d)
	}
	if q.shuttingDown.Load() || until <= now {
		return
	}
	s, _, inserted := q.mu.pauses.all.FindOrInsert(keytable.HashOf(p), p)
	end := slotheap.Entry{Rank: int64(until), Tie: q.mu.dueSeq, Slot: s}
	q.mu.dueSeq++
	switch {
	case inserted:
		q.mu.pauses.ends.Push(end)
	case end.Rank > q.mu.pauses.ends.At(s).Rank:
		q.mu.pauses.ends.Replace(end)
	}
	q.setPausedLocked(p, true)
}

func (q *Queue[T]) resume(p pausable) {
	q.mu.Lock() // No time is needed.
	defer q.unlock()
	if s, _ := q.mu.pauses.all.Find(keytable.HashOf(p), p); s != keytable.None {
		q.endPauseLocked(s)
	}
}

func (q *Queue[T]) endPauseLocked(s keytable.Slot) {
	p := q.mu.pauses.all.At(s).Key
	slotheap.Drop(&q.mu.pauses.ends, &q.mu.pauses.all, s)
	q.setPausedLocked(p, false)
}

// setPausedLocked stops or starts p: the queue, or the lines of a group if it has keys. It also notes when
// the next pause ends.
func (q *Queue[T]) setPausedLocked(p pausable, paused bool) {
	q.mu.pauseEnd = dueloop.Never
	if q.mu.pauses.ends.Len() > 0 {
		q.mu.pauseEnd = time.Duration(q.mu.pauses.ends.First().Rank)
	}
	if p.queue {
		q.mu.queuePaused = paused
	} else if _, e := q.mu.groups.Find(keytable.HashOf(p.group), p.group); e != nil {
		e.Value.paused = paused
		q.updateBlockedLocked(&e.Value)
	}
}

// pauseOfLocked reports whether p is paused, and until when. That is zero if the pause has no end.
func (q *Queue[T]) pauseOfLocked(p pausable) (paused bool, until time.Time) {
	s, _ := q.mu.pauses.all.Find(keytable.HashOf(p), p)
	if s == keytable.None {
		return false, until
	}
	if end := time.Duration(q.mu.pauses.ends.At(s).Rank); end != dueloop.Never {
		until = q.loop.Time(end)
	}
	return true, until
}

// PausedGroups returns the groups that are paused, sorted, and nil in a queue without Config.Group.
// SnapshotGroup says until when.
func (q *Queue[T]) PausedGroups() []string {
	if q.config.Group == nil {
		return nil
	}
	lock := func() { q.mu.Lock(); q.advanceLocked() }
	add := func(names []string, s keytable.Slot) []string {
		if p := q.mu.pauses.all.At(s).Key; !p.queue {
			names = append(names, p.group)
		}
		return names
	}
	names := []string{} // It is not nil: there are groups.
	names = slices.AppendSeq(names, keytable.InSteps(&q.mu.pauses.all, lock, q.unlock, add))
	slices.Sort(names)
	return slices.Compact(names) // A group that was resumed and paused meanwhile may be there twice.
}

// SnapshotGroup returns what is known of a group. It takes constant time.
func (q *Queue[T]) SnapshotGroup(name string) (g operate.GroupSnapshot) {
	h := keytable.HashOf(name)
	q.mu.Lock()
	defer q.unlock()
	q.advanceLocked()
	if _, e := q.mu.groups.Find(h, name); e != nil {
		g.Keys, g.Held, g.Limit = e.Value.keys, e.Value.held, e.Value.limit
	}
	g.Paused, g.PausedUntil = q.pauseOfLocked(pausable{group: name})
	return g
}
