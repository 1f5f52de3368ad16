package priorityqueue

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/slotheap"
)

// LogLeft is what a drain calls when no worker comes.
func (q *Queue[T]) LogLeft() { q.logLeft() }

// CheckInvariants returns an error if one of the invariants that the code's comments state does not hold. No
// other goroutine may be in the middle of a call of q.
func (q *Queue[T]) CheckInvariants() error {
	q.mu.Lock()
	defer q.mu.UnlockAndSend()
	for _, check := range []func() error{q.checkKeys, q.checkLines, q.checkGroups, q.checkPauses, q.checkMetrics,
		q.checkLoop} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// slotsOf returns the slots of all keys of a table.
func slotsOf[K comparable, V any](table *keytable.Table[K, V]) (slots []keytable.Slot) {
	for n := range table.Slabs() {
		slots = slices.AppendSeq(slots, table.LiveSlots(n))
	}
	return slots
}

// checkKeys: each key is where its state says, and the counts are right.
func (q *Queue[T]) checkKeys() error {
	counts, notes, onHold, rerunsOnHold := map[state]int{}, 0, 0, 0
	for _, s := range slotsOf(&q.mu.keys) {
		e := q.mu.keys.At(s)
		info := &e.Value
		if found, _ := q.mu.keys.Find(keytable.HashOf(e.Key), e.Key); found != s {
			return fmt.Errorf("key %v of slot %d is found in slot %d", e.Key, s, found)
		}
		counts[info.state]++
		stands := info.state == queued || info.state == rerun && !info.onHold
		waits := info.state.isInDue()
		priority := info.priority
		if info.state == rerun {
			priority = q.mu.details.At(s).nextPriority
		}
		switch {
		case info.state == absent:
			return fmt.Errorf("key %v has no state", e.Key)
		case stands != (info.line != keytable.None):
			return fmt.Errorf("key %v of state %d stands in line %d", e.Key, info.state, info.line)
		case waits != q.mu.due.Has(s):
			return fmt.Errorf("key %v of state %d is in due: %v", e.Key, info.state, q.mu.due.Has(s))
		case info.byLimiter && !waits:
			return fmt.Errorf("key %v: %+v", e.Key, *info)
		case info.noted != q.mu.notes.Has(s) || info.state == resting && *info != (keyInfo{state: resting}):
			return fmt.Errorf("key %v of state %d is %+v, has a note: %v", e.Key, info.state, *info, q.mu.notes.Has(s))
		}
		if info.noted {
			notes++
		}
		if info.onHold {
			onHold++
		}
		if info.onHold && info.state == rerun {
			rerunsOnHold++
		}
		if info.onHold && !info.state.isHeld() {
			return fmt.Errorf("key %v of state %d is on hold", e.Key, info.state)
		}
		if stands {
			l := q.mu.lines.At(info.line).Key
			if l.group != q.groupOfLocked(s) || priority < l.priority || priority != l.priority &&
				q.config.Aging == 0 {
				return fmt.Errorf("key %v of priority %d stands in the line %+v", e.Key, priority, l)
			}
		}
	}
	n := 0
	for s := range q.mu.lists.All(&q.mu.resting) {
		if n++; q.mu.keys.At(s).Value.state != resting {
			return fmt.Errorf("slot %d of state %d rests", s, q.mu.keys.At(s).Value.state)
		}
	}
	held := counts[processing] + counts[rerun] + counts[rerunLater]
	if counts[queued] != q.mu.queued || held != q.mu.held || counts[rerun] != q.mu.reruns ||
		counts[waiting]+counts[rerunLater] != q.mu.due.Len() || counts[resting] != n || n != q.mu.resting.Len() {
		return fmt.Errorf("states %v, counted %d queued, %d held, %d to run again, %d due, %d resting",
			counts, q.mu.queued, q.mu.held, q.mu.reruns, q.mu.due.Len(), n)
	}
	if onHold != q.mu.onHold || rerunsOnHold != q.mu.rerunsOnHold {
		return fmt.Errorf("%d keys on hold, %d of them to run again, counted %d and %d",
			onHold, rerunsOnHold, q.mu.onHold, q.mu.rerunsOnHold)
	}
	if last := q.mu.lastTaken; last != keytable.None && !q.mu.keys.At(last).Value.state.isHeld() {
		return fmt.Errorf("slot %d of state %d was taken last", last, q.mu.keys.At(last).Value.state)
	}
	if q.mu.notes.Len() != notes {
		return fmt.Errorf("%d notes about %d keys", q.mu.notes.Len(), notes)
	}
	return nil
}

// checkLines: each line is in order, and in the heap where it belongs.
func (q *Queue[T]) checkLines() error {
	stand, blockedKeys := 0, 0
	heaps, rings := map[*slotheap.Heap]int{}, map[int]int{}
	for _, n := range slotsOf(&q.mu.lines) {
		e := q.mu.lines.At(n)
		l := &e.Value
		stand += l.members.Len()
		queuedKeys, before := 0, longAgo
		for s := range q.mu.lists.All(&l.members) {
			if q.mu.keys.At(s).Value.state == queued {
				queuedKeys++
			}
			if q.mu.keys.At(s).Value.line != n {
				return fmt.Errorf("slot %d stands in line %d, and is in the list of %d", s, q.mu.keys.At(s).Value.line, n)
			}
			if placed := q.mu.details.At(s).placedOrAsked; q.config.Aging > 0 {
				if placed < before {
					return fmt.Errorf("slot %d took its place before the one in front of it", s)
				}
				before = placed
			}
		}
		want := &q.mu.order
		switch {
		case queuedKeys == 0:
			want = nil
		case q.config.Group != nil && q.mu.groups.At(e.Key.group).Value.blocked:
			want = &q.mu.blocked
			blockedKeys += queuedKeys
		}
		heaps[want]++
		if l.heap != want || l.queued != queuedKeys || l.members.Len() == 0 && n != q.mu.zeroLine {
			return fmt.Errorf("line %+v with %d queued keys counts %d, in heap %p, want %p", e.Key, queuedKeys,
				l.queued, l.heap, want)
		}
		if want == nil {
			continue
		}
		if got, want := want.At(n), q.entryLocked(n, q.firstQueuedLocked(l)); got != want {
			return fmt.Errorf("line %+v stands as %v, and should as %v", e.Key, got, want)
		}
		if want == &q.mu.order && q.config.Group != nil {
			rings[e.Key.priority]++
		}
	}
	for priority, n := range rings {
		if _, ring := q.mu.rings.Find(keytable.HashOf(priority), priority); ring == nil || ring.Value.Len() != n {
			return fmt.Errorf("the ring of priority %d does not have %d lines", priority, n)
		}
	}
	placed := q.mu.queued + q.mu.reruns - q.mu.rerunsOnHold
	if stand != placed || heaps[&q.mu.order] != q.mu.order.Len() || heaps[&q.mu.blocked] != q.mu.blocked.Len() ||
		blockedKeys != q.mu.blockedKeys || len(rings) != q.mu.rings.Len() {
		return fmt.Errorf("%d keys in lines, counted %d; heaps %v, %d and %d; %d blocked, counted %d; %d rings, %d",
			stand, placed,
			heaps, q.mu.order.Len(), q.mu.blocked.Len(), blockedKeys, q.mu.blockedKeys, len(rings), q.mu.rings.Len())
	}
	return nil
}

// checkPauses: each pause has an end, the next one is noted, and so is whether the queue itself is paused.
func (q *Queue[T]) checkPauses() error {
	queue, _ := q.pauseOfLocked(pausable{queue: true})
	n, end := q.mu.pauses.ends.Len(), dueloop.Never
	if n > 0 {
		end = time.Duration(q.mu.pauses.ends.First().Rank)
	}
	if n != q.mu.pauses.all.Len() || end != q.mu.pauseEnd || queue != q.mu.queuePaused {
		return fmt.Errorf(
			"%d pauses have ends, of %d; the next is noted as %d, and is %d; the queue is paused: %v, noted: %v",
			n, q.mu.pauses.all.Len(), q.mu.pauseEnd, end, queue, q.mu.queuePaused)
	}
	return nil
}

// checkGroups: there is a group for each that has keys, with their numbers and its lines.
func (q *Queue[T]) checkGroups() error {
	if q.config.Group == nil {
		if n := q.mu.groups.Len() + q.mu.rings.Len(); n > 0 {
			return fmt.Errorf("%d groups and rings in a queue without", n)
		}
		return nil
	}
	var paused []pausable
	for e := range q.mu.pauses.ends.InOrder() {
		paused = append(paused, q.mu.pauses.all.At(e.Slot).Key)
	}
	want := map[keytable.Slot]group{}
	for _, s := range slotsOf(&q.mu.keys) {
		if info := &q.mu.keys.At(s).Value; info.state != resting {
			g := want[q.groupOfLocked(s)]
			if g.keys++; info.state.isHeld() {
				g.held++
			}
			want[q.groupOfLocked(s)] = g
		}
	}
	if len(want) != q.mu.groups.Len() {
		return fmt.Errorf("%d groups, counted %d", len(want), q.mu.groups.Len())
	}
	lines := 0
	for g, w := range want {
		e := q.mu.groups.At(g)
		mustBlock := e.Value.paused || e.Value.limit > 0 && e.Value.held >= e.Value.limit
		if e.Value.blocked != mustBlock || e.Value.keys != w.keys || e.Value.held != w.held || e.Value.weight < 1 ||
			e.Value.paused != slices.Contains(paused, pausable{group: e.Key}) {
			return fmt.Errorf("group %q is %+v, counted %+v", e.Key, e.Value, w)
		}
		for n := range q.mu.linesOfGroup.All(&e.Value.lines) {
			if lines++; q.mu.lines.At(n).Key.group != g {
				return fmt.Errorf("line %v in the list of group %q", q.mu.lines.At(n).Key, e.Key)
			}
		}
	}
	if lines != q.mu.lines.Len() {
		return fmt.Errorf("groups have %d lines of %d", lines, q.mu.lines.Len())
	}
	return nil
}

// checkMetrics: depths has the keys that need processing, and the observer the queued and the held ones.
func (q *Queue[T]) checkMetrics() error {
	want := map[int]int{}
	for _, s := range slotsOf(&q.mu.keys) {
		switch info := &q.mu.keys.At(s).Value; {
		case info.state == queued:
			want[info.priority]++
		case info.state == rerun && !info.onHold:
			want[q.mu.details.At(s).nextPriority]++
		}
	}
	n := q.mu.depths.others
	for _, d := range q.mu.depths.known {
		if n += d.Queued; d.Queued != want[d.Priority] {
			return fmt.Errorf("depths are %+v, want %v", q.mu.depths, want)
		}
	}
	if all := q.mu.queued + q.mu.reruns - q.mu.rerunsOnHold; n != all {
		return fmt.Errorf("depths are %+v, of %d keys", q.mu.depths, all)
	}
	if q.observer == nil {
		return nil
	}
	inLine, running := 0, 0
	for s := range q.observer.InLine() {
		if inLine++; q.mu.keys.At(s).Value.state != queued {
			return fmt.Errorf("slot %d of state %d waits for a worker", s, q.mu.keys.At(s).Value.state)
		}
	}
	for s := range q.observer.Running() {
		if running++; !q.mu.keys.At(s).Value.state.isHeld() || q.mu.keys.At(s).Value.onHold {
			return fmt.Errorf("slot %d of state %d is running", s, q.mu.keys.At(s).Value.state)
		}
	}
	if inLine != q.mu.queued || running != q.mu.held-q.mu.onHold {
		return fmt.Errorf("the observer has %d and %d keys", inLine, running)
	}
	return nil
}

// checkLoop: the loop runs if a key waits, and callers read the clock.
func (q *Queue[T]) checkLoop() error {
	waits := q.nextDueLocked() != dueloop.Never
	if waits && !q.loop.TendLocked(dueloop.Never) {
		return errors.New("a key waits, and the loop does not run")
	}
	return nil
}

// Remembered returns the number of keys, groups and lines that the queue has memory for.
func (q *Queue[T]) Remembered() (keys, groups, lines int) {
	q.mu.Lock()
	defer q.mu.UnlockAndSend()
	return q.mu.keys.Len(), q.mu.groups.Len(), q.mu.lines.Len()
}

// A key has 16 bytes of its own, and 40 more if it has details: with one more, each would take eight more.
func TestSizeOfAKey(t *testing.T) {
	if n, m := unsafe.Sizeof(keyInfo{}), unsafe.Sizeof(details{}); n > 16 || m > 40 {
		t.Errorf("keyInfo has %d bytes and details %d, more than 16 and 40", n, m)
	}
}
