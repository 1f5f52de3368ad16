package worker

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
)

// BusyKey is a key that is called often: see Busiest of [Snapshot].
type BusyKey[T comparable] struct {
	Key T `json:"key"`
	// Calls is how many calls of the last ten minutes were for the key, and Share which part of all calls.
	Calls uint64  `json:"calls"`
	Share float64 `json:"share"`
	// Causes are those of a recent call, if the key came at least twice in a minute.
	Causes workqueue.Causes `json:"causes,omitzero"`
}

// busiest counts the calls of the keys that are called most, in the last ten minutes. For each minute it has
// a space-saving sketch: counts of a hundred keys, where a new key takes over the count of the rarest one. So
// in a minute with n calls no key is counted more than n/100 too high, and no key that is missing had more
// than n/100.
type busiest[T comparable] struct{ minutes [busyMinutes]busyMinute[T] }

const (
	busyMinutes = 10
	maxBusyKeys = 100
	// fewCalls are too few to say that one key takes most of them.
	fewCalls = 100
)

type busyMinute[T comparable] struct {
	number int64 // in minutes since 1970
	calls  uint64
	keys   map[T]busyCount
}

type busyCount struct {
	calls  uint64
	causes workqueue.Causes
}

func minuteOf(t time.Time) int64 { return t.Unix() / 60 }

// count counts a call of key, and reports whether to note its causes.
func (b *busiest[T]) count(key T, at time.Time) (noteCauses bool) {
	n := minuteOf(at)
	m := &b.minutes[n%busyMinutes]
	if m.number != n || m.keys == nil {
		*m = busyMinute[T]{number: n, keys: make(map[T]busyCount)}
	}
	m.calls++
	c, found := m.keys[key]
	if !found && len(m.keys) == maxBusyKeys {
		c = m.dropRarest()
	}
	c.calls++
	m.keys[key] = c
	return c.calls > 1 && c.calls&(c.calls-1) == 0
}

// dropRarest deletes the key with the smallest count, and returns the count.
func (m *busyMinute[T]) dropRarest() busyCount {
	first := true
	var rarest T
	var least uint64
	for key, c := range m.keys {
		if first || c.calls < least {
			first, rarest, least = false, key, c.calls
		}
	}
	delete(m.keys, rarest)
	return busyCount{calls: least}
}

// noteCauses notes the causes of a call of key that count has just counted.
func (b *busiest[T]) noteCauses(key T, at time.Time, causes workqueue.Causes) {
	m := &b.minutes[minuteOf(at)%busyMinutes]
	if c, found := m.keys[key]; found {
		c.causes = causes
		m.keys[key] = c
	}
}

// sum adds up the minutes until now. It goes over a thousand counts at most.
func (b *busiest[T]) sum(now time.Time) (calls uint64, keys map[T]busyCount) {
	keys = make(map[T]busyCount)
	last := minuteOf(now)
	for n := last - busyMinutes + 1; n <= last; n++ {
		m := &b.minutes[n%busyMinutes]
		if m.number != n {
			continue
		}
		calls += m.calls
		for key, c := range m.keys {
			before := keys[key]
			if c.calls += before.calls; c.causes.IsZero() {
				c.causes = before.causes
			}
			keys[key] = c
		}
	}
	return calls, keys
}

// share returns which part of all calls the key with the most calls takes, or zero if there were few calls.
func (b *busiest[T]) share(now time.Time) float64 {
	calls := uint64(0)
	for i := range b.minutes {
		calls += b.minutes[i].calls
	}
	if calls < fewCalls { // Most pools: no sum is needed.
		return 0
	}
	calls, keys := b.sum(now)
	if calls < fewCalls {
		return 0
	}
	most := uint64(0)
	for _, c := range keys {
		most = max(most, c.calls)
	}
	return float64(most) / float64(calls)
}

// busiestKeys returns up to limit keys with the most calls. A key that was called once is not busy.
func busiestKeys[T, K comparable](t *Tracker[T], limit int, show func(T) K) []BusyKey[K] {
	now := t.options.Clock.Now()
	t.mu.Lock()
	calls, counts := t.mu.busiest.sum(now)
	t.mu.Unlock()
	maps.DeleteFunc(counts, func(_ T, c busyCount) bool { return c.calls < 2 })
	keys := []BusyKey[K]{}
	for key, c := range counts {
		keys = append(keys, BusyKey[K]{show(key), c.calls, float64(c.calls) / float64(calls), c.causes})
	}
	slices.SortFunc(keys, func(a, b BusyKey[K]) int { return cmp.Compare(b.Calls, a.Calls) })
	return keys[:max(0, min(limit, len(keys)))]
}
