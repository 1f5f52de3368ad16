package redisqueue

import (
	"context"
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
	stats.WatchQueue(q.config.Name, q.latestStats)
	if inspector, ok := stats.(workqueue.InspectorProvider); ok {
		i := workqueue.Inspect[T](q)
		i.Stats, i.Facts = q.latestStats, q.Facts
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

// Facts returns Info for display. It does not ask the server.
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
	facts := []operate.Fact{
		{Name: "Server", Value: fmt.Sprintf("%s; %d attempts have failed", server, i.Errors)},
		{Name: "Data", Value: q.config.description},
		{Name: "Start limit", Value: startLimit},
		{Name: "Lease", Value: q.config.Lease.String()},
		{Name: "Held by this process", Value: fmt.Sprint(i.Held)},
		{Name: "Not sent yet", Value: fmt.Sprint(i.Unsent)},
		{Name: "Calls of the server", Value: fmt.Sprint(i.Calls)},
		{Name: "Leases lost here",
			Value: fmt.Sprintf("%d, and %d calls of Done after that", i.LostLeases, i.LostDones)},
		{Name: "Failing, given up", Value: fmt.Sprintf("%d, %d", i.Failing, i.GivenUp)},
		{Name: "Repaired on the server", Value: fmt.Sprint(i.Repaired)},
	}
	if h := i.CallDuration; h != nil && h.Count() > 0 {
		average := time.Duration(h.Sum / float64(h.Count()) * float64(time.Second)).Round(time.Microsecond)
		facts = append(facts, operate.Fact{Name: "A call takes", Value: fmt.Sprintf("%v on average", average)})
	}
	return facts
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

// Counts are the numbers of a whole queue, as the server has them at one moment. With several shards each has
// its own moment.
type Counts struct {
	// Queued, Processing, Again, Waiting, Paused and OldestQueued are those of [workqueue.Stats].
	Queued, Processing, Again, Waiting int
	OldestQueued                       time.Duration
	// Failing is the number of keys with failures that are counted, GivenUp that of keys that are not tried
	// any more. Repaired counts the entries on the server that did not fit together, and were repaired or
	// skipped.
	Failing, GivenUp, Repaired int
	// Paused reports that nothing is handed out, until PausedUntil, or without an end if that is zero.
	// PausedBy is the [Config].Replica that has paused the queue, and PausedSince when it did.
	Paused                   bool
	PausedUntil, PausedSince time.Time
	PausedBy                 string
	// Limited reports that keys are queued which the StartLimit holds back.
	Limited bool
}

// Counts asks the server for the numbers of the queue, and returns none beside an error. It reads alone.
func (a *Admin) Counts(ctx context.Context) (sum Counts, err error) {
	for _, s := range a.queue.shards {
		c, err := s.readCounts(ctx)
		if err != nil {
			return Counts{}, err
		}
		sum.add(c)
	}
	return sum, nil
}

// forever is FOREVER of batch.lua.
const forever = 1 << 53

// add adds the numbers of another shard.
func (c *Counts) add(other Counts) {
	c.Queued += other.Queued
	c.Processing += other.Processing
	c.Again += other.Again
	c.Waiting += other.Waiting
	c.Failing += other.Failing
	c.GivenUp += other.GivenUp
	c.Repaired += other.Repaired
	hasNoEnd := other.PausedUntil.IsZero()
	endsLater := !c.PausedUntil.IsZero() && (hasNoEnd || other.PausedUntil.After(c.PausedUntil))
	if other.Paused && (!c.Paused || endsLater) {
		c.Paused, c.PausedUntil = true, other.PausedUntil
		c.PausedSince, c.PausedBy = other.PausedSince, other.PausedBy
	}
	c.Limited = c.Limited || other.Limited
	if other.Queued > 0 { // Otherwise its oldest key has been handed out since that was read.
		c.OldestQueued = max(c.OldestQueued, other.OldestQueued)
	}
}

func (s *shard[T]) readCounts(ctx context.Context) (c Counts, err error) {
	reply, err := s.runRead(ctx, "counts")
	if err != nil {
		return c, err
	}
	var p rowParser
	f := p.fields(reply)
	// Each of these has a filler, once there was a batch.
	withoutFiller := func(name string) int { return max(0, p.number(f[name])-1) }
	c.Processing, c.Waiting = withoutFiller("held"), withoutFiller("delays")
	c.Failing = withoutFiller("failures")
	c.Queued, c.Limited = p.number(f["queued"]), p.number(f["limited"]) > 0
	c.GivenUp = p.number(f["givenUp"])
	c.Again, c.Repaired = p.number(f["dirty"]), p.number(f["repaired"])
	now, until := p.number(f["now"]), p.number(f["pausedUntil"])
	p.offset = int64(p.number(f["offset"]))
	if until > now {
		at, by := parsePausedBy(f["pausedBy"])
		c.Paused, c.PausedBy, c.PausedSince = true, by, p.at(at)
		if int64(until) < forever {
			c.PausedUntil = p.at(int64(until))
		}
	}
	var head KeyInfo[T]
	parseState(&head, f["head"], &p)
	if c.Queued > 0 && head.State == workqueue.KeyQueued {
		c.OldestQueued = max(0, p.at(int64(now)).Sub(head.Since))
	}
	return c, p.err
}
