package priorityqueue

import (
	"fmt"
	"iter"
	"math"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
)

// CheckInvariants returns an error if one of the invariants that the code's comments state does not hold. No
// other goroutine may be in the middle of a call of q.
func (q *Queue[T]) CheckInvariants() error {
	q.gate.Lock()
	defer q.gate.Unlock()
	counts := map[state]int{}
	inLines := 0
	perPriority := map[int]int{}
	perGroup := map[keytable.Slot]group{}
	live := 0
	for s := keytable.Slot(1); live < q.keys.Len(); s++ {
		if !q.keys.HasMemory(s) || q.keys.At(s).Value.state == 0 {
			continue
		}
		live++
		e := q.keys.At(s)
		it := &e.Value
		if found, _ := q.keys.Find(keytable.HashOf(e.Key), e.Key); found != s {
			return fmt.Errorf("key %v of slot %d is found in slot %d", e.Key, s, found)
		}
		where := it.state & (ready | waiting | running | resting)
		if where&(where-1) != 0 || where == 0 {
			return fmt.Errorf("key %v is in state %b", e.Key, it.state)
		}
		counts[where]++
		if it.state&parked != 0 {
			if it.state&(running|again|timed) != running|again {
				return fmt.Errorf("key %v of state %b is parked", e.Key, it.state)
			}
			counts[parked]++
		}
		if it.state&timed != 0 {
			counts[timed]++
		} else if it.state&again != 0 {
			counts[again]++
		}
		if it.state&(waiting|timed) != 0 && q.due.At(s).Slot != s {
			return fmt.Errorf("key %v is not in due", e.Key)
		}
		priority := it.priority
		if it.state&again != 0 {
			priority = q.details.At(s).priority
		}
		if it.state&(ready|parked) != 0 {
			l := q.lines.At(it.home)
			if priority < l.Key.priority || priority != l.Key.priority && q.config.Aging == 0 {
				return fmt.Errorf("key %v of priority %d stands in the line of %d", e.Key, priority, l.Key.priority)
			}
		}
		if it.state&ready != 0 || it.state&again != 0 && it.state&timed == 0 {
			perPriority[priority]++
		}
		if where == resting {
			continue
		}
		home := q.groupOfLocked(it)
		g := perGroup[home]
		g.keys++
		if where == running {
			g.running++
		}
		perGroup[home] = g
	}
	if counts[ready] != q.queued || counts[running] != q.running || counts[waiting]+counts[timed] != q.due.Len() {
		return fmt.Errorf("states %v, counted %d queued, %d running, %d due", counts, q.queued, q.running, q.due.Len())
	}
	if s := q.last.Slot(); s != keytable.None && (!q.keys.HasMemory(s) || q.keys.At(s).Value.state&running == 0) {
		return fmt.Errorf("slot %d was handed out last, and is not held", s)
	}
	if counts[again] != q.wishes {
		return fmt.Errorf("%d running keys to come at once, counted %d", counts[again], q.wishes)
	}
	if n, err := q.checkList(&q.resting, resting); err != nil || n != counts[resting] {
		return fmt.Errorf("%d keys rest, %d in the list: %v", counts[resting], n, err)
	}
	if q.config.PlaceOfAdd != (counts[parked] == counts[again]) && counts[again] > 0 {
		return fmt.Errorf("%d of %d keys that come again are parked", counts[parked], counts[again])
	}
	lines, ordered, blocked, blockedKeys := 0, 0, 0, 0
	rings := map[int]int{}
	for n := keytable.Slot(1); lines < q.lines.Len(); n++ {
		if !q.lines.HasMemory(n) {
			continue
		}
		e := q.lines.At(n)
		l := &e.Value
		if l.first == keytable.None && n != q.lastLine {
			continue // not live, or it will be missing in the end
		}
		lines++
		keys, err := q.checkList(&l.list, ready|parked)
		if err != nil {
			return err
		}
		inLines += keys
		readyKeys := 0
		for s := l.first; s != keytable.None; s = q.keys.At(s).Value.next {
			if q.keys.At(s).Value.state&ready != 0 {
				readyKeys++
			}
		}
		want := inOrder
		switch {
		case readyKeys == 0:
			want = inNone
		case q.config.Group != nil && q.groups.At(e.Key.group).Value.isFull():
			want = inBlocked
			blocked++
			blockedKeys += readyKeys
		}
		if l.heap != want || l.ready != readyKeys {
			return fmt.Errorf("line %v with %d ready keys counts %d, in heap %d, want %d", e.Key, readyKeys, l.ready, l.heap, want)
		}
		if want == inNone {
			continue
		}
		if entry := q.heapOf(want).At(n); entry != q.entryLocked(n) {
			return fmt.Errorf("line %v stands as %v, and should as %v", e.Key, entry, q.entryLocked(n))
		}
		if want == inBlocked {
			continue
		}
		ordered++
		if q.config.Group != nil {
			rings[e.Key.priority]++
			if q.lines.At(l.next).Value.prev != n || q.lines.At(l.next).Key.priority != e.Key.priority {
				return fmt.Errorf("line %v and the one after it do not know each other", e.Key)
			}
		}
	}
	if blocked != q.blocked.Len() || blockedKeys != q.blockedKeys {
		return fmt.Errorf("%d lines with %d keys are blocked, counted %d, %d", blocked, blockedKeys, q.blocked.Len(), q.blockedKeys)
	}
	if inLines != q.queued+counts[parked] || ordered != q.order.Len() || len(rings) != q.rings.Len() {
		return fmt.Errorf("%d keys in lines, %d queued; %d lines in order, %d counted; %d rings, %d counted",
			inLines, q.queued, ordered, q.order.Len(), len(rings), q.rings.Len())
	}
	if err := q.checkGroups(perGroup); err != nil {
		return err
	}
	if err := q.checkObserver(perPriority); err != nil {
		return err
	}
	return q.checkWakeUps()
}

// checkObserver: the observer has the queued and the running keys, and depths has the former.
func (q *Queue[T]) checkObserver(perPriority map[int]int) error {
	if q.observer == nil {
		return nil
	}
	for _, l := range []struct {
		slots iter.Seq[keytable.Slot]
		state state
		n     int
	}{{q.observer.InLine(), ready, q.queued}, {q.observer.Running(), running, q.running}} {
		n := 0
		for s := range l.slots {
			if q.keys.At(s).Value.state&l.state == 0 {
				return fmt.Errorf("slot %d of state %b is in the observer's list of state %b", s, q.keys.At(s).Value.state, l.state)
			}
			n++
		}
		if n != l.n {
			return fmt.Errorf("the observer has %d keys of state %b, want %d", n, l.state, l.n)
		}
	}
	n := q.depths.others
	for _, d := range q.depths.known {
		n += d.Queued
		if d.Queued != perPriority[d.Priority] {
			return fmt.Errorf("depths are %+v, want %v", q.depths, perPriority)
		}
	}
	if n != q.queued+q.wishes {
		return fmt.Errorf("depths are %+v, want %d together", q.depths, q.queued+q.wishes)
	}
	return nil
}

func (q *Queue[T]) checkList(l *list, want state) (n int, err error) {
	prev := keytable.None
	at := unknown
	for s := l.first; s != keytable.None; s = q.keys.At(s).Value.next {
		it := &q.keys.At(s).Value
		if it.prev != prev || it.state&want == 0 || n > q.keys.Len() {
			return n, fmt.Errorf("slot %d after %d in a list: %+v", s, prev, it)
		}
		if q.config.Aging > 0 && want&ready != 0 {
			if t := q.details.At(s).since; t < at {
				return n, fmt.Errorf("slot %d after %d became ready before it", s, prev)
			} else {
				at = t
			}
		}
		prev = s
		n++
	}
	if l.last != prev {
		return n, fmt.Errorf("the last of a list is %d, and should be %d", l.last, prev)
	}
	return n, nil
}

func (q *Queue[T]) checkGroups(want map[keytable.Slot]group) error {
	if q.config.Group == nil {
		if q.groups.Len()+q.rings.Len() > 0 {
			return fmt.Errorf("%d groups and %d rings in a queue without", q.groups.Len(), q.rings.Len())
		}
		return nil
	}
	if len(want) != q.groups.Len() {
		return fmt.Errorf("%d groups, counted %d", len(want), q.groups.Len())
	}
	for g, w := range want {
		e := q.groups.At(g)
		if e.Value.keys != w.keys || e.Value.running != w.running || e.Value.weight < 1 {
			return fmt.Errorf("group %q is %+v, counted %+v", e.Key, e.Value, w)
		}
		prev := keytable.None
		for n := e.Value.lines; n != keytable.None; n = q.lines.At(n).Value.nextOfGroup {
			if l := q.lines.At(n); l.Key.group != g || l.Value.prevOfGroup != prev {
				return fmt.Errorf("line %v in the list of group %q", l.Key, e.Key)
			}
			prev = n
		}
	}
	return nil
}

func (q *Queue[T]) checkWakeUps() error {
	if q.due.Len() > 0 && (!q.looping || q.shuttingDown.Load()) {
		return fmt.Errorf("%d keys wait, looping: %v, shutting down: %v", q.due.Len(), q.looping, q.shuttingDown.Load())
	}
	if pending := q.due.Len() > 0; pending != q.timesPending.Load() {
		return fmt.Errorf("times pending: %v, and should be %v", q.timesPending.Load(), pending)
	}
	return nil
}

// Remembered returns the number of keys, groups and lines that the queue has memory for.
func (q *Queue[T]) Remembered() (keys, groups, lines int) {
	q.gate.Lock()
	defer q.gate.Unlock()
	return q.keys.Len(), q.groups.Len(), q.lines.Len()
}

func TestAddSaturated(t *testing.T) {
	for _, c := range []struct {
		t    int64
		d    time.Duration
		want int64
	}{
		{3, 4, 7}, {3, -4, -1}, {-3, 4, 1}, {-3, -4, -7},
		{math.MaxInt64 - 1, 1, math.MaxInt64}, {math.MaxInt64 - 1, 2, math.MaxInt64}, {math.MaxInt64, math.MaxInt64, math.MaxInt64},
		{math.MinInt64 + 1, -1, math.MinInt64}, {math.MinInt64 + 1, -2, math.MinInt64}, {math.MinInt64, math.MinInt64, math.MinInt64},
	} {
		if got := addSaturated(c.t, c.d); got != c.want {
			t.Errorf("%d + %d = %d, want %d", c.t, c.d, got, c.want)
		}
	}
}
