package workqueue

import (
	"slices"
	"time"
)

// Stats are a queue's numbers at one moment.
type Stats struct {
	Name string `json:"name"`

	Queued int `json:"queued"`
	// Blocked is how many queued keys their group, or a limit for all, keeps from being handed out.
	Blocked int  `json:"blocked,omitempty"`
	Paused  bool `json:"paused,omitempty"`
	// PausedUntil is when a pause ends, zero if it has no end.
	PausedUntil  time.Time `json:"paused_until,omitzero"`
	ShuttingDown bool      `json:"shutting_down"`
	// Processing keys are held by workers.
	Processing int `json:"processing"`
	// OnHold is how many of those are on hold. Again is how many of the others were added since their hand-out.
	OnHold int `json:"on_hold"`
	Again  int `json:"again"`
	// Waiting keys wait for their time, and may also be queued or held.
	Waiting int `json:"waiting"`
	// Failing keys have failures that Fail has counted.
	Failing int `json:"failing"`

	// Adds counts adds, except of keys that needed processing already.
	Adds uint64 `json:"adds"`
	// Retries counts AddAfter, AddRateLimited, and Fail unless it gives up, before shutdown.
	Retries uint64 `json:"retries"`
	// Dropped counts keys that a shutdown, a drain or DropQueued has dropped; in a shared queue, adds that were
	// not sent.
	Dropped uint64 `json:"dropped"`
	// UnmatchedDones counts calls of Done for a key that no worker held: bugs in the caller.
	UnmatchedDones uint64 `json:"unmatched_dones"`

	// OldestQueued is the longest time for which a key has been queued. Like the other times it needs metrics.
	OldestQueued time.Duration `json:"oldest_queued_ns"`
	// LongestRunning is the longest time of a held key, UnfinishedWork the sum for all, without keys on hold.
	LongestRunning time.Duration `json:"longest_running_ns"`
	UnfinishedWork time.Duration `json:"unfinished_work_ns"`
	// Latency has the times from first add to Get, WorkDuration those from Get to Done or PutOnHold.
	Latency      *Histogram      `json:"latency,omitempty"`
	WorkDuration *Histogram      `json:"work_duration,omitempty"`
	ByPriority   *PriorityDepths `json:"by_priority,omitempty"`
	// Shared has what only a queue that processes share counts: see leasing.StatsOf. This package does not know
	// its type. It stands here because a [StatsProvider] gets one function for all numbers of a queue.
	Shared any `json:"shared,omitempty"`
}

// PriorityDepths divides the keys that are queued, or added again while held and not on hold, by priority.
type PriorityDepths struct {
	// Depths has the 25 priorities that were met first, highest first.
	Depths []PriorityDepth `json:"depths"`
	Others int             `json:"others"`
}

// PriorityDepth is the number of keys of one priority.
type PriorityDepth struct {
	Priority int `json:"priority"`
	Queued   int `json:"queued"`
}

// Histogram counts times by their length.
type Histogram struct {
	// Bounds are the buckets' upper bounds, in seconds, ascending. Do not change them.
	Bounds []float64 `json:"bounds"`
	// Counts are the numbers in each bucket alone and, last, above all bounds.
	Counts []uint64 `json:"counts"`
	Sum    float64  `json:"sum_seconds"`
}

// Count returns the number of times.
func (h *Histogram) Count() uint64 {
	n := uint64(0)
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// Plus returns the sum of h and other, or h if their bounds differ. Both may be nil.
func (h *Histogram) Plus(other *Histogram) *Histogram {
	if h == nil {
		return other
	}
	if other == nil || len(h.Counts) != len(other.Counts) || !slices.Equal(h.Bounds, other.Bounds) {
		return h
	}
	counts := slices.Clone(h.Counts)
	for i, n := range other.Counts {
		counts[i] += n
	}
	return &Histogram{Bounds: h.Bounds, Counts: counts, Sum: h.Sum + other.Sum}
}

// See [Extended].
func (q *Typed[T]) Stats() Stats {
	q.mu.Lock()
	defer q.unlock()
	return q.statsLocked()
}

func (q *Typed[T]) statsLocked() Stats {
	st := Stats{
		Name: q.name, ShuttingDown: q.shuttingDown.Load(),
		Queued: q.lenLocked(), Processing: q.mu.processing, OnHold: q.mu.onHold,
		Again: q.mu.again - q.mu.againOnHold,
		Adds:  q.mu.adds, Dropped: q.mu.dropped, UnmatchedDones: q.mu.unmatchedDones,
	}
	if q.observer == nil {
		return st
	}
	now := q.observer.Now()
	if q.custom == nil && q.mu.ready.n > 0 {
		st.OldestQueued = q.observer.SinceAdded(q.mu.ready.ahead(1)[0], now)
	}
	st.UnfinishedWork, st.LongestRunning = q.observer.Unfinished(now)
	st.Latency = (*Histogram)(q.observer.Latency.Read())
	st.WorkDuration = (*Histogram)(q.observer.WorkDuration.Read())
	return st
}
