package worker

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker/internal/sketch"
)

// BusyKey is a key that is called often: see Busiest of [Snapshot].
type BusyKey[T comparable] struct {
	Key T `json:"key"`
	// Calls is how many calls of the last ten minutes the key had, and Share which part of all calls.
	Calls uint64  `json:"calls"`
	Share float64 `json:"share"`
	// Causes are those of a recent call, if there were two in a minute.
	Causes workqueue.Causes `json:"causes,omitzero"`
}

// fewCalls are too few to say that one key takes most of them.
const fewCalls = 100

// busiestShareLocked returns which part of the last calls the key with the most calls takes, or zero if there
// were few calls.
func (t *Tracker[T]) busiestShareLocked(now time.Time) float64 {
	counts, total := t.mu.busiest.Sum(now)
	if total < fewCalls {
		return 0
	}
	most := uint64(0)
	for _, c := range counts {
		most = max(most, c.N)
	}
	return float64(most) / float64(total)
}

// busiestKeys returns up to limit keys with the most calls. A key that was called once is not busy.
func busiestKeys[T, K comparable](t *Tracker[T], limit int, show func(T) K) []BusyKey[K] {
	now := t.options.Clock.Now()
	t.mu.Lock()
	counts, total := t.mu.busiest.Sum(now)
	t.mu.Unlock()
	sorted := slices.Collect(maps.Keys(counts))
	sortByText(sorted) // Keys with equally many calls stay in their places from one Snapshot to the next.
	slices.SortStableFunc(sorted, func(a, b T) int { return cmp.Compare(counts[b].N, counts[a].N) })
	keys := []BusyKey[K]{}
	for _, key := range sorted[:max(0, min(limit, sketch.MaxKeys, len(sorted)))] {
		if c := counts[key]; c.N > 1 {
			keys = append(keys, BusyKey[K]{show(key), c.N, float64(c.N) / float64(total), c.Causes})
		}
	}
	return keys
}
