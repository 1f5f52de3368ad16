package workqueuetest

import (
	"cmp"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
)

// slowQueue is what a queue with a delay does, in the obvious way. Its keys are numbers.
type slowQueue struct {
	oneEntry bool

	line        []int
	dirty, held map[int]bool
	waiting     []slowWaiting
	seq         int
	down        bool
	stats       workqueue.Stats // the counters
}

type slowWaiting struct {
	key, seq int
	due      time.Time
}

func newSlowQueue(oneEntry bool) *slowQueue {
	return &slowQueue{oneEntry: oneEntry, dirty: make(map[int]bool), held: make(map[int]bool)}
}

func (m *slowQueue) add(key int) {
	if m.down {
		return
	}
	if m.oneEntry {
		m.waiting = slices.DeleteFunc(m.waiting, func(w slowWaiting) bool { return w.key == key })
	}
	if m.dirty[key] {
		return
	}
	m.stats.Adds++
	m.dirty[key] = true
	if !m.held[key] {
		m.line = append(m.line, key)
	}
}

func (m *slowQueue) get() int {
	key := m.line[0]
	m.line = m.line[1:]
	delete(m.dirty, key)
	m.held[key] = true
	return key
}

func (m *slowQueue) done(key int) {
	if !m.held[key] {
		m.stats.UnmatchedDones++
		return
	}
	delete(m.held, key)
	if m.dirty[key] {
		m.line = append(m.line, key)
	}
}

func (m *slowQueue) addAfter(key int, now time.Time, d time.Duration) {
	if m.down {
		return
	}
	m.stats.Retries++
	if d <= 0 {
		m.add(key)
		return
	}
	if m.oneEntry && m.dirty[key] {
		return
	}
	m.seq++
	w := slowWaiting{key, m.seq, now.Add(d)}
	i := slices.IndexFunc(m.waiting, func(w slowWaiting) bool { return w.key == key })
	switch {
	case i < 0:
		m.waiting = append(m.waiting, w)
	case w.due.Before(m.waiting[i].due):
		m.waiting[i] = w
	}
}

// pass adds what is due at now.
func (m *slowQueue) pass(now time.Time) {
	slices.SortFunc(m.waiting, func(a, b slowWaiting) int {
		return cmp.Or(a.due.Compare(b.due), a.seq-b.seq)
	})
	for len(m.waiting) > 0 && !m.waiting[0].due.After(now) {
		key := m.waiting[0].key
		m.waiting = m.waiting[1:]
		m.add(key)
	}
}

func (m *slowQueue) shutDown() {
	m.down = true
	m.stats.Dropped += uint64(len(m.waiting))
	m.waiting = nil
}

func (m *slowQueue) wantStats() workqueue.Stats {
	want := m.stats
	want.Queued, want.Processing, want.Waiting = len(m.line), len(m.held), len(m.waiting)
	return want
}
