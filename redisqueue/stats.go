package redisqueue

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/keyedqueue/workqueue"
)

// totals count what this replica has done. Guarded by the queue's mutex.
type totals struct {
	adds, retries, dropped, unmatchedDones uint64
	lostLeases, lostDones, errors          uint64
	latency, workDuration                  *workqueue.Histogram // nil without metrics
}

// defaultBounds are powers of ten from 10 ns to 1,000 s, in seconds.
var defaultBounds = []float64{1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1, 10, 100, 1000}

func (t *totals) observe(bounds []float64) {
	if bounds == nil {
		bounds = defaultBounds
	}
	bounds = slices.Clone(bounds)
	t.latency = &workqueue.Histogram{Bounds: bounds, Counts: make([]uint64, len(bounds)+1)}
	t.workDuration = &workqueue.Histogram{Bounds: bounds, Counts: make([]uint64, len(bounds)+1)}
}

func (t *totals) waited(d time.Duration)   { observe(t.latency, d) }
func (t *totals) finished(d time.Duration) { observe(t.workDuration, d) }

func observe(h *workqueue.Histogram, d time.Duration) {
	if h == nil {
		return
	}
	seconds := max(d, 0).Seconds()
	i, _ := slices.BinarySearch(h.Bounds, seconds)
	h.Counts[i]++
	h.Sum += seconds
}

func copied(h *workqueue.Histogram) *workqueue.Histogram {
	if h == nil {
		return nil
	}
	return &workqueue.Histogram{Bounds: h.Bounds, Counts: slices.Clone(h.Counts), Sum: h.Sum}
}

// Info is what a replica knows beside [workqueue.Stats]. Its counters begin with [New].
type Info struct {
	// Unsent is the number of operations in the buffer, which grows while the server does not answer: each takes the
	// encoded key and about 150 bytes.
	Unsent int
	// Outage is why the last attempt to reach the server failed, nil if it succeeded.
	Outage error
	// Errors counts the attempts that failed.
	Errors uint64
	// LostLeases counts the keys of this replica whose lease was lost while a worker had them. LostDones counts the calls
	// of Done that came too late.
	LostLeases, LostDones uint64
	// Failing is the number of keys of the whole queue with failures that are counted, SetAside that of keys that could
	// not be decoded. Both are as of the last call of the server.
	Failing, SetAside int
	// Held is the number of keys that this replica's workers have.
	Held int
	// Calls counts the batches that this replica has sent.
	Calls uint64
}

// Info returns the replica's numbers, without asking the server, also after shutdown. Its cost grows with the shards alone.
func (q *Queue[T]) Info() Info {
	q.mu.Lock()
	defer q.mu.Unlock()
	info := Info{
		Errors: q.totals.errors, LostLeases: q.totals.lostLeases, LostDones: q.totals.lostDones, Held: len(q.held),
	}
	for _, s := range q.shards {
		info.Unsent += len(s.ops)
		info.Failing += s.counts.failing
		info.SetAside += s.counts.aside
		info.Calls += s.batches
		if s.outage != nil {
			info.Outage = s.outage
		}
	}
	return info
}

// Len returns the number of keys that are queued, on all replicas. It asks the server, and blocks, as Stats does.
func (q *Queue[T]) Len() int { return q.Stats().Queued }

// Stats returns the numbers of the queue. Queued, Processing, Again and Waiting are of the whole queue; all others
// are of this replica. Stats asks the server, after what was called before, for up to a second; if it does not answer, and
// after shutdown, the numbers are those of its last reply. Its cost grows with the keys that this replica's workers hold, not
// with those that are queued. OldestQueued is zero: [Queue.Snapshot] has the oldest key.
func (q *Queue[T]) Stats() workqueue.Stats {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	q.refresh(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.statsLocked(time.Now())
}

// refresh waits for a reply of each shard to a batch that is sent after the call.
func (q *Queue[T]) refresh(ctx context.Context) {
	q.mu.Lock()
	var all []*confirmation
	if !q.ending.over {
		for _, s := range q.shards {
			all = append(all, s.refreshLocked())
		}
	}
	q.mu.Unlock()
	for _, c := range all {
		select {
		case <-c.result:
		case <-ctx.Done():
			return
		}
	}
}

// latestStats is Stats for a provider of metrics, which must not wait: it returns the numbers of the last reply, and asks
// for new ones if that was a while ago.
func (q *Queue[T]) latestStats() workqueue.Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.ending.over {
		for _, s := range q.shards {
			if s.outage == nil && !s.sending {
				s.refreshLocked()
			}
		}
	}
	return q.statsLocked(time.Now())
}

func (q *Queue[T]) statsLocked(now time.Time) workqueue.Stats {
	st := workqueue.Stats{
		Name:           q.config.Name,
		Adds:           q.totals.adds,
		Retries:        q.totals.retries,
		Dropped:        q.totals.dropped,
		UnmatchedDones: q.totals.unmatchedDones,
		ShuttingDown:   q.ending.stopping,
		Latency:        copied(q.totals.latency),
		WorkDuration:   copied(q.totals.workDuration),
	}
	for _, s := range q.shards {
		st.Queued += s.counts.queued
		st.Processing += s.counts.processing
		st.Again += s.counts.again
		st.Waiting += s.counts.waiting
	}
	for _, h := range q.held {
		d := now.Sub(h.began)
		st.UnfinishedWork += d
		st.LongestRunning = max(st.LongestRunning, d)
	}
	return st
}

// Snapshot returns Stats and up to limit keys of each state, at most 1,000, of the whole queue, as the server has them when
// it has executed what was called before. Each state is read by a call of its own, for a thousand keys about 2 ms of the
// server's time: a key that changes its state meanwhile may be in two lists. If more than limit keys are processed, it has any
// of them, not the oldest. It asks the server for up to two seconds, and lacks the keys
// of a state if that does not answer. After shutdown it still reads the keys.
func (q *Queue[T]) Snapshot(limit int) workqueue.Snapshot[T] {
	snapshot := workqueue.Snapshot[T]{Stats: q.Stats()}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	limit = min(max(limit, 0), 1000)
	lists := []struct {
		state string
		keys  *[]workqueue.KeySnapshot[T]
	}{
		// In the order in which a key passes through them: one that goes on meanwhile is seen twice rather than not at all.
		{"failing", &snapshot.Failing}, {"waiting", &snapshot.Waiting}, {"queued", &snapshot.Queued}, {"processing", &snapshot.Processing},
	}
	for _, s := range q.shards {
		for _, list := range lists {
			if limit == 0 {
				break
			}
			if result, err := q.scripts.snapshot.run(ctx, q.client, s.names.of("none"), []any{limit, list.state}); err == nil {
				q.appendKeys(list.keys, result)
			}
		}
	}
	bySince := func(a, b workqueue.KeySnapshot[T]) int { return a.Since.Compare(b.Since) }
	slices.SortStableFunc(snapshot.Processing, bySince)
	if len(q.shards) > 1 {
		slices.SortStableFunc(snapshot.Queued, bySince)
		slices.SortStableFunc(snapshot.Waiting, func(a, b workqueue.KeySnapshot[T]) int { return a.Due.Compare(b.Due) })
		slices.SortStableFunc(snapshot.Failing, func(a, b workqueue.KeySnapshot[T]) int { return b.Requeues - a.Requeues })
	}
	for _, list := range lists {
		*list.keys = (*list.keys)[:min(len(*list.keys), limit)]
	}
	for i := range snapshot.Queued {
		snapshot.Queued[i].Due = time.Time{}
	}
	for i := range snapshot.Processing {
		snapshot.Processing[i].Due = time.Time{}
	}
	for i := range snapshot.Waiting {
		snapshot.Waiting[i].Since, snapshot.Waiting[i].Again = time.Time{}, false
	}
	if len(snapshot.Queued) > 0 {
		snapshot.Stats.OldestQueued = max(0, time.Since(snapshot.Queued[0].Since))
	}
	return snapshot
}

// appendKeys appends the keys of a list of snapshot.lua, without those that cannot be decoded.
func (q *Queue[T]) appendKeys(to *[]workqueue.KeySnapshot[T], list any) {
	fields, _ := list.([]any)
	for ; len(fields) >= 4; fields = fields[4:] {
		text := func(i int) string { s, _ := fields[i].(string); return s }
		item, err := q.decode(text(0))
		if err != nil {
			continue
		}
		k := workqueue.KeySnapshot[T]{Key: item}
		if state := text(1); len(state) >= 16 {
			k.Again = state[0] == 'd'
			if state[0] == 'd' || state[0] == 'p' {
				state = state[12:28]
			}
			micros, _ := strconv.ParseInt(state, 10, 64)
			k.Since = time.UnixMicro(micros)
		}
		failures, _ := strconv.ParseFloat(text(2), 64)
		k.Requeues = int(failures)
		if due, err := strconv.ParseFloat(text(3), 64); err == nil && due < math.MaxInt64 {
			k.Due = time.UnixMicro(int64(due))
		}
		*to = append(*to, k)
	}
}

// SetAside returns up to limit strings that could not be decoded, in no order, and how many there are. They stay on the server,
// and stop nothing, until DropSetAside. It returns an error if the server does not answer or ctx ends, with what it has until
// then. It works after shutdown too.
func (q *Queue[T]) SetAside(ctx context.Context, limit int) (encoded []string, total int, err error) {
	for _, s := range q.shards {
		n, err := q.client.SCard(ctx, s.names.aside()).Result()
		if err != nil {
			return encoded, total, fmt.Errorf("redisqueue: %w", err)
		}
		total += int(n)
		if limit > len(encoded) && n > 0 {
			some, err := q.client.SRandMemberN(ctx, s.names.aside(), int64(limit-len(encoded))).Result()
			if err != nil {
				return encoded, total, fmt.Errorf("redisqueue: %w", err)
			}
			encoded = append(encoded, some...)
		}
	}
	return encoded, total, nil
}

// DropSetAside deletes what was set aside, without blocking the server. It returns an error if the server does not answer or
// ctx ends, and works after shutdown too.
func (q *Queue[T]) DropSetAside(ctx context.Context) error {
	for _, s := range q.shards {
		if err := q.client.Unlink(ctx, s.names.aside()).Err(); err != nil {
			return fmt.Errorf("redisqueue: %w", err)
		}
	}
	return nil
}
