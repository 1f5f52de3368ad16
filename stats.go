package workqueue

import (
	"slices"
	"time"
)

// Stats are a queue's numbers at one moment.
type Stats struct {
	// Name is the queue's name, or empty.
	Name string

	// Queued is the number of keys that wait for a worker.
	Queued int
	// Blocked is how many of those cannot be handed out, because their group is at its limit or paused, or a
	// limit holds all. Paused reports a pause of the queue. Only queues with such features set them.
	Blocked int
	Paused  bool
	// PausedUntil is when a pause of the queue ends, zero if it has no end.
	PausedUntil time.Time
	// Processing is the number of keys that workers hold.
	Processing int
	// OnHold is how many of those are on hold, and Again how many of the others were added meanwhile.
	OnHold, Again int
	// Waiting is the number of keys that wait for their time. A key can wait and be queued or held at once. If
	// Queued, Processing and Waiting are all zero, the queue had no key at some moment.
	Waiting int
	// Failing is the number of keys with failures that Fail of [ExtendedRateLimiting] has counted.
	Failing int

	// Adds counts adds, except of keys that needed processing already.
	Adds uint64
	// Retries counts, before shutdown, AddAfter, AddRateLimited, and Fail unless it gives the key up.
	Retries uint64
	// Dropped counts the keys that were waiting for their time at shutdown, and those that DropQueued or
	// ShutDownWithDrain has dropped. (In a shared queue: the adds that were not sent to the server.)
	Dropped uint64
	// UnmatchedDones counts the calls of Done for a key that no worker held. Each is a bug in the caller.
	UnmatchedDones uint64

	// OldestQueued is how long ago the longest queued key was added or came due. Like the other times, it is
	// zero without metrics. It is also zero with a custom Queue, whose head is unknown.
	OldestQueued time.Duration
	// ShuttingDown reports whether one of the ShutDown methods was called.
	ShuttingDown bool
	// LongestRunning is for how long the longest held key has been held, UnfinishedWork the sum over all held
	// keys. Both leave out keys on hold.
	LongestRunning, UnfinishedWork time.Duration
	// Latency has the times from first add to Get, WorkDuration those from Get to Done or PutOnHold. They are
	// nil without metrics.
	Latency, WorkDuration *Histogram
	// ByPriority divides Queued and Again together. It is nil without priorities.
	ByPriority *PriorityDepths
	// Shared has further numbers of a queue that processes share: see StatsOf of package lease. It is nil in
	// others.
	Shared any
}

// PriorityDepths are the numbers of keys of each priority that are queued, or were added again while a worker
// holds them, but for keys on hold.
type PriorityDepths struct {
	// Depths has the 25 priorities that the queue has met first, highest first.
	Depths []PriorityDepth
	// Others is the number of keys of all other priorities.
	Others int
}

// PriorityDepth is the number of keys of one priority.
type PriorityDepth struct{ Priority, Queued int }

// Histogram counts times by their length. It is a copy and does not change.
type Histogram struct {
	// Bounds are the longest times that each bucket takes, in seconds, ascending. Do not change them.
	Bounds []float64 `json:"bounds"`
	// Counts are the numbers of times in each bucket alone and, last, above all bounds.
	Counts []uint64 `json:"counts"`
	// Sum is the sum of all times, in seconds.
	Sum float64 `json:"sum_seconds"`
}

// Count returns the number of times.
func (h *Histogram) Count() uint64 {
	n := uint64(0)
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// Plus returns the sum of h and other. Either may be nil. If their bounds differ, it returns h.
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

// Stats implements [Extended].
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
