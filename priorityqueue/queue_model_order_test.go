package priorityqueue_test

import (
	"math"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
)

// This file has the part of slowQueue that decides which key comes next, and what follows its Done.

type slowTurn struct {
	group string
	left  int
}

func (m *slowQueue) line(level int, group string) (line []*slowKey) {
	for _, k := range m.sorted(workqueue.KeyQueued) {
		if k.level == level && k.group == group {
			line = append(line, k)
		}
	}
	return line
}

func (m *slowQueue) blocked(group string) bool {
	if _, paused := m.pausedGroups[group]; paused {
		return true
	}
	n := 0
	for _, k := range m.sorted(workqueue.KeyProcessing) {
		if k.group == group {
			n++
		}
	}
	if m.config.Limit == nil {
		return false
	}
	limit := m.config.Limit(group)
	return limit > 0 && n >= limit
}

// update gives turns to those groups, and no others, from which a key can be taken.
func (m *slowQueue) update() {
	if m.turns == nil {
		m.turns = map[int][]slowTurn{}
	}
	for level, ring := range m.turns {
		m.turns[level] = slices.DeleteFunc(ring, func(t slowTurn) bool {
			return m.blocked(t.group) || len(m.line(level, t.group)) == 0
		})
	}
	for _, k := range m.sorted(workqueue.KeyQueued) {
		has := slices.ContainsFunc(m.turns[k.level], func(t slowTurn) bool { return t.group == k.group })
		if !has && !m.blocked(k.group) {
			m.turns[k.level] = append(m.turns[k.level], slowTurn{group: k.group})
		}
	}
}

func (m *slowQueue) rank(since time.Duration, level int) time.Duration {
	return since - time.Duration(level)*m.config.Aging
}

// losesPlace reports whether a key that is ready, or has its place, goes to the end of another line when its
// priority changes.
func (m *slowQueue) losesPlace(k *slowKey, before, after int) bool {
	if after <= before || m.config.Aging == 0 {
		return after != before
	}
	return m.rank(k.since, k.level) > m.rank(max(m.lastReady, m.now), after)
}

// next returns the key that is to be handed out next, or nil.
func (m *slowQueue) next() *slowKey {
	if m.paused {
		return nil
	}
	var best *slowKey
	for level, ring := range m.turns {
		for _, t := range ring {
			k := m.line(level, t.group)[0]
			if best == nil || m.before(k, best) {
				best = k
			}
		}
	}
	if best == nil {
		return nil
	}
	return m.line(best.level, m.turns[best.level][0].group)[0]
}

// before reports whether the line whose first key is a comes before the one whose first key is b.
func (m *slowQueue) before(a, b *slowKey) bool {
	if m.config.Aging > 0 {
		if ra, rb := m.rank(a.since, a.level), m.rank(b.since, b.level); ra != rb {
			return ra < rb
		}
	}
	return a.level > b.level
}

func (m *slowQueue) get() (key, priority int) {
	k := m.next()
	m.taken++
	ring := m.turns[k.level]
	t := ring[0]
	if t.left == 0 {
		t.left = m.weight(t.group)
	}
	t.left--
	if t.left == 0 {
		m.turns[k.level] = append(ring[1:], t)
	} else {
		ring[0] = t
	}
	k.state, k.failed = workqueue.KeyProcessing, false
	k.currentCauses, k.nextCauses, k.waits = k.nextCauses, nil, nil
	m.lastStart[k.key] = m.now
	m.update()
	return k.key, k.priority
}

func (m *slowQueue) done(key int) {
	k := m.keys[key]
	if k == nil || k.state != workqueue.KeyProcessing {
		m.stats.UnmatchedDones++
		return
	}
	m.ended = append(m.ended, k.waits...)
	k.currentCauses, k.waits, k.onHold = nil, nil, false
	// Not held any more, and not ready yet: the group's other keys take their places first.
	delete(m.keys, key)
	m.update()
	if !k.again {
		return
	}
	m.keys[key] = k
	k.priority = k.againPriority
	if k.timed {
		k.state = workqueue.KeyWaiting
	} else {
		m.becomeReady(k, m.now)
	}
	k.again, k.timed = false, false
}

// inOrder sorts queued keys as Snapshot does in a queue without groups: by rank, and each line as it stands.
// With groups only the ranks of the keys are in this order.
func (m *slowQueue) inOrder(keys []*slowKey) {
	slices.SortStableFunc(keys, func(a, b *slowKey) int {
		switch {
		case m.before(a, b):
			return -1
		case m.before(b, a):
			return 1
		}
		return a.seq - b.seq
	})
}

// pauseGroup pauses a group until a time, or as long as it is paused already.
func (m *slowQueue) pauseGroup(group string, until time.Duration) {
	if p, paused := m.pausedGroups[group]; !paused || until > p.until {
		m.seq++
		m.pausedGroups[group] = slowPause{until, m.seq}
	}
	m.update()
}

// endPauses ends those that are over at now, the earliest first.
func (m *slowQueue) endPauses(now time.Duration) {
	for {
		group, first := "", slowPause{now, math.MaxInt}
		for g, p := range m.pausedGroups {
			if p.until < first.until || p.until == first.until && p.seq < first.seq {
				group, first = g, p
			}
		}
		if first.seq == math.MaxInt {
			return
		}
		delete(m.pausedGroups, group)
		m.update()
	}
}
