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
	info                         Info            // only Errors, LostLeases and LostDones
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
	if inspector, ok := stats.(workqueue.InspectorProvider); ok {
		i := workqueue.Inspect[T](q)
		i.Stats, i.Facts = q.metricsStats, q.Facts
		inspector.InspectQueue(q.config.Name, i)
	}
	return nil
}

// Info is what a replica knows. Its counters begin with [New], but for Repaired, which the server keeps.
type Info struct {
	// Counts are those of the whole queue. Failing, GivenUp, OldestQueued and the pause are as old as
	// [workqueue.Stats] says in Shared, the others of the last call of the server.
	Counts
	// Unsent is the number of operations in the buffer, which grows while the server does not answer: each
	// takes the encoded key and about 150 bytes.
	Unsent int
	// Outage is why the last attempt to reach the server failed, that it takes no adds because its memory is
	// full, or that it may evict keys ([ErrEviction]), which is checked every half minute; otherwise nil.
	Outage error
	// Errors counts the attempts that failed.
	Errors uint64
	// LostLeases counts the keys of this replica whose lease was lost while a worker had them. LostDones
	// counts the calls of Done that came too late, and those that the server had executed before it answered
	// with an error.
	LostLeases, LostDones uint64
	// Held is the number of keys that this replica's workers have.
	Held int
	// Calls counts the batches that this replica has sent. CallDuration has the times until the server
	// answered them, but for those to a full server; nil without metrics.
	Calls        uint64
	CallDuration *workqueue.Histogram
}

// Info returns the replica's numbers, without asking the server, also after shutdown. Its cost grows with the
// shards alone.
func (q *Queue[T]) Info() Info {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.infoLocked()
}

func (q *Queue[T]) infoLocked() Info {
	info := q.mu.totals.info
	info.Held, info.CallDuration = len(q.mu.held), q.mu.totals.calls.read()
	info.Outage = q.mu.eviction.err
	for _, s := range q.shards {
		info.Counts.add(s.counts)
		info.Unsent += s.buffer.len()
		info.Calls += s.batches
		if s.server.outage != nil {
			info.Outage = s.server.outage
		}
	}
	return info
}

// Facts returns, for display, what of Info and the config is on no other part of a page. It does not ask the
// server.
func (q *Queue[T]) Facts() []operate.Fact {
	i := q.Info()
	server := "answers"
	if i.Outage != nil {
		server = "fails: " + i.Outage.Error()
	}
	startLimit := "none"
	if l := q.config.StartLimit; l.Rate > 0 {
		startLimit = fmt.Sprintf("%g a second, %d at once", l.Rate, l.Burst)
		if i.Limited {
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
// PausedUntil and OldestQueued are of the whole queue, and so are those of Shared that say so: they are from
// the server's last reply, and Shared has its time. All others are of this replica, and new. From a call of
// Stats on the queue asks the server every second in the background, until nobody has called it for a minute,
// and until shutdown. [Admin.Counts] asks, and waits. The cost of Stats grows with the keys that this
// replica's workers hold.
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
	q.mu.Lock()
	defer q.mu.Unlock()
	q.noteQuestionLocked()
	st := q.statsLocked(time.Now())
	if q.mu.ending.over {
		st.Queued, st.Processing, st.Again, st.Waiting, st.Failing = 0, 0, 0, 0, 0
	}
	return st
}

func (q *Queue[T]) statsLocked(now time.Time) workqueue.Stats {
	t := &q.mu.totals
	st := t.stats
	st.ShuttingDown = q.mu.ending.stopping
	st.Latency, st.WorkDuration = t.latency.read(), t.workDuration.read()
	i := q.infoLocked()
	st.Queued, st.Processing, st.Again, st.Waiting = i.Queued, i.Processing, i.Again, i.Waiting
	for _, s := range q.shards {
		if s.counts.Limited {
			st.Blocked += s.counts.Queued
		}
	}
	st.Paused, st.PausedUntil, st.OldestQueued = i.Paused, i.PausedUntil, i.OldestQueued
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
	st.Failing = i.Failing
	st.Shared = &leasing.Stats{
		Outage: i.Outage != nil, Unsent: i.Unsent, Errors: i.Errors,
		LostLeases: i.LostLeases, LostDones: i.LostDones, CallDuration: i.CallDuration,
		GivenUp: i.GivenUp, Repaired: i.Repaired,
		PausedBy: i.PausedBy, PausedSince: i.PausedSince, AsOf: q.asOfLocked(),
	}
	return st
}
