package redisqueue

import (
	"fmt"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/metrics"
	"github.com/keyedqueue/workqueue/operate"
)

// totals count what this replica has done. Guarded by the queue's mutex.
type totals struct {
	stats                        workqueue.Stats // only Name, Adds, Retries, Dropped and UnmatchedDones
	shared                       leasing.Stats   // only Errors, LostLeases and LostDones
	latency, workDuration, calls histogram
}

// histogram counts times, and nothing without metrics.
type histogram struct{ *metrics.Durations }

func (h histogram) observe(d time.Duration) {
	if h.Durations != nil {
		h.Observe(d)
	}
}

func (h histogram) read() *workqueue.Histogram {
	if h.Durations == nil {
		return nil
	}
	return h.Read()
}

// publish shows a new queue to its provider of metrics: that of the config or, without one, that of
// workqueue.SetProvider.
func (q *Queue[T]) publish() error {
	stats := workqueue.StatsProviderFor(q.config.MetricsProvider)
	if stats == nil {
		return nil
	}
	for _, h := range []*histogram{&q.mu.totals.latency, &q.mu.totals.workDuration, &q.mu.totals.calls} {
		var err error
		if h.Durations, err = metrics.NewDurations(stats.HistogramBounds()); err != nil {
			return fmt.Errorf("redisqueue: StatsProvider: %w", err)
		}
	}
	stats.WatchQueue(q.config.Name, q.metricsStats)
	if inspector, ok := stats.(workqueue.QueueInspector); ok {
		inspector.InspectQueue(q.config.Name, q, operate.Untyped[T](metricsView[T]{q}))
	}
	return nil
}

// Facts returns, for display, what of Stats and the config is on no other part of a page. It does not ask the
// server.
func (q *Queue[T]) Facts() []operate.Fact {
	st, outage := q.Stats(), q.outage()
	i := leasing.StatsOf(st)
	server := "answers"
	if outage != nil {
		server = "fails: " + outage.Error()
	}
	startLimit := "none"
	if l := q.config.StartLimit; l.Rate > 0 {
		startLimit = fmt.Sprintf("%g a second, %d at once", l.Rate, l.Burst)
		if st.Blocked > 0 {
			startLimit += "; it holds keys back"
		}
	}
	return []operate.Fact{
		{Name: "Server", Value: fmt.Sprintf("%s; %d attempts have failed", server, i.Errors)},
		{Name: "Data", Value: q.config.description},
		{Name: "Start limit", Value: startLimit},
		{Name: "Lease", Value: q.config.Lease.String()},
		{Name: "Not sent yet", Value: fmt.Sprint(i.Unsent)},
		{Name: "Leases lost here",
			Value: fmt.Sprintf("%d, and %d calls of Done after that", i.LostLeases, i.LostDones)},
		{Name: "Repaired on the server", Value: fmt.Sprint(i.Repaired)},
	}
}

// Stats returns the numbers of the queue at once. Queued, Blocked, Processing, Again, Waiting, Paused,
// PausedUntil and Repaired of Shared are of the whole queue, from the server's last reply. Failing,
// OldestQueued, and GivenUp, PausedBy and PausedSince of Shared are from the last one with all counts, whose
// time is AsOf. The rest is this replica's own, and current. The first call makes the queue ask the server
// for all counts every second, in the background, until a minute after the last call or until shutdown.
// [Admin.Counts] asks, and waits. The cost of Stats grows with the keys that this replica's workers hold.
func (q *Queue[T]) Stats() workqueue.Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.noteQuestionLocked()
	return q.statsLocked(time.Now())
}

// Len returns the number of keys that are queued, on all replicas, as Stats has it.
func (q *Queue[T]) Len() int { return q.Stats().Queued }

// metricsStats is Stats for a provider of metrics: a replica that has ended sees no keys any more.
func (q *Queue[T]) metricsStats() workqueue.Stats {
	st := q.Stats()
	select {
	case <-q.ended:
		st.Queued, st.Processing, st.Again, st.Waiting, st.Failing = 0, 0, 0, 0, 0
	default:
	}
	return st
}

// metricsView is the queue with metricsStats as its Stats.
type metricsView[T comparable] struct{ *Queue[T] }

func (v metricsView[T]) Stats() workqueue.Stats { return v.metricsStats() }

func (q *Queue[T]) statsLocked(now time.Time) workqueue.Stats {
	t := &q.mu.totals
	st := t.stats
	st.ShuttingDown = q.mu.ending.stopping
	st.Latency, st.WorkDuration = t.latency.read(), t.workDuration.read()
	shared, whole := t.shared, Counts{}
	for _, s := range q.shards {
		whole.add(s.counts)
		if s.counts.Limited {
			st.Blocked += s.counts.Queued
		}
		shared.Unsent += s.buffer.len()
	}
	st.Queued, st.Processing, st.Again, st.Waiting = whole.Queued, whole.Processing, whole.Again, whole.Waiting
	st.Failing, st.OldestQueued = whole.Failing, whole.OldestQueued
	st.Paused, st.PausedUntil = whole.Paused, whole.PausedUntil
	for _, h := range q.mu.held {
		if h.onHold && !h.lost {
			st.OnHold++
		}
		if h.onHold {
			continue
		}
		d := now.Sub(h.began)
		st.UnfinishedWork += d
		st.LongestRunning = max(st.LongestRunning, d)
	}
	// The server does not say which of the keys on hold were added again. This takes all of them for such.
	st.Again -= min(st.Again, st.OnHold)
	shared.Outage, shared.CallDuration = q.outageLocked() != nil, t.calls.read()
	shared.GivenUp, shared.Repaired = whole.GivenUp, whole.Repaired
	shared.PausedBy, shared.PausedSince, shared.AsOf = whole.PausedBy, whole.PausedSince, q.asOfLocked()
	st.Shared = &shared
	return st
}
