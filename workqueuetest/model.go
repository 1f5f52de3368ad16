package workqueuetest

import (
	"cmp"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
)

// modelKeys is how many keys a model can have: "a" and those after it.
const modelKeys = 8

func modelKey(n int) string { return string(rune('a' + n)) }

// keySet is a set of them.
type keySet [modelKeys]bool

func (s *keySet) at(key string) *bool { return &s[key[0]-'a'] }

func (s *keySet) keys() (keys []string) {
	for n, in := range s {
		if in {
			keys = append(keys, modelKey(n))
		}
	}
	return keys
}

func (s *keySet) len() int { return len(s.keys()) }

// slowFIFO is a queue, written in the obvious way. It is a value, which a search can copy and compare.
type slowFIFO struct {
	queued      string // the keys, in order
	dirty, held keySet
	down        bool
	shared      bool // as in Suite
}

// drained reports whether no drain waits.
func (m *slowFIFO) drained() bool { return m.held.len() == 0 && (m.queued == "" || m.shared) }

// empty reports whether nothing can be got.
func (m *slowFIFO) empty() bool { return m.queued == "" || m.down && m.shared }

// add returns whether it changed anything. Shutting down a shared queue ends that only when all workers are done.
func (m *slowFIFO) add(key string) bool {
	if m.down && (!m.shared || m.held.len() == 0) || *m.dirty.at(key) {
		return false
	}
	*m.dirty.at(key) = true
	if !*m.held.at(key) {
		m.queued += key
	}
	return true
}

func (m *slowFIFO) get() string {
	key := m.queued[:1]
	m.queued = m.queued[1:]
	*m.dirty.at(key), *m.held.at(key) = false, true
	return key
}

// done returns whether the key was held.
func (m *slowFIFO) done(key string) bool {
	if !*m.held.at(key) {
		return false
	}
	*m.held.at(key) = false
	if *m.dirty.at(key) {
		m.queued += key
	}
	return true
}

// slowQueue is a slowFIFO with AddAfter and Stats.
type slowQueue struct {
	slowFIFO
	oneEntry bool // as in Suite
	waiting  []slowWaiting
	seq      int
	stats    workqueue.Stats // the counters
}

type slowWaiting struct {
	key string
	seq int
	due time.Time
}

func (m *slowQueue) add(key string) {
	if m.oneEntry && !m.down {
		m.waiting = slices.DeleteFunc(m.waiting, func(w slowWaiting) bool { return w.key == key })
	}
	if m.slowFIFO.add(key) {
		m.stats.Adds++
	}
}

func (m *slowQueue) done(key string) {
	if !m.slowFIFO.done(key) {
		m.stats.UnmatchedDones++
	}
}

func (m *slowQueue) addAfter(key string, now time.Time, d time.Duration) {
	if m.down {
		return
	}
	m.stats.Retries++
	if d <= 0 {
		m.add(key)
		return
	}
	if m.oneEntry && *m.dirty.at(key) {
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

// pass adds the keys that are due at now.
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

// waits reports whether key waits for its time.
func (m *slowQueue) waits(key string) bool {
	return slices.ContainsFunc(m.waiting, func(w slowWaiting) bool { return w.key == key })
}

func (m *slowQueue) shutDown() {
	if m.down = true; !m.shared {
		m.stats.Dropped += uint64(len(m.waiting))
		m.waiting = nil
	}
}
