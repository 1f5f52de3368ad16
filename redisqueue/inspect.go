package redisqueue

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/observe"
	"github.com/redis/go-redis/v9"
)

// totals count what this replica has done. Guarded by the queue's mutex.
type totals struct {
	stats                        workqueue.Stats // Name, Adds, Retries, Dropped and UnmatchedDones
	info                         Info            // Errors, LostLeases and LostDones
	latency, workDuration, calls histogram
}

// histogram counts times, and nothing without metrics.
type histogram struct{ *observe.Histogram }

func (h histogram) observe(d time.Duration) {
	if h.Histogram != nil {
		h.Observe(max(d, 0))
	}
}

func (h histogram) read() *workqueue.Histogram {
	if h.Histogram == nil {
		return nil
	}
	bounds, counts, sum := h.Read()
	return &workqueue.Histogram{Bounds: bounds, Counts: counts, Sum: sum}
}

// observe shows a new queue to its provider of metrics: that of the config or, without one, that of workqueue.SetProvider.
func (q *Queue[T]) observe() {
	provider := q.config.MetricsProvider
	if global := observe.Global.Load(); provider == nil && global != nil {
		provider, _ = (*global).(workqueue.MetricsProvider)
	}
	stats, ok := provider.(workqueue.StatsProvider)
	if !ok {
		return
	}
	buckets, err := observe.SharedBuckets(stats.HistogramBounds())
	if err != nil {
		panic("redisqueue: StatsProvider: " + err.Error())
	}
	for _, h := range []*histogram{&q.mu.totals.latency, &q.mu.totals.workDuration, &q.mu.totals.calls} {
		made := observe.NewHistogram(buckets)
		h.Histogram = &made
	}
	stats.WatchQueue(q.config.Name, q.latestStats)
	if inspector, ok := provider.(workqueue.InspectorProvider); ok {
		i := workqueue.Inspect[T](q)
		i.Stats = q.latestStats
		inspector.InspectQueue(q.config.Name, i)
	}
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
	// not be decoded, GivenUp that of keys that are not tried any more. Repaired counts the entries on the server that did not
	// fit together, and were repaired or skipped; places of removed keys in a long line are among them. All are as of the
	// last Stats or scrape of metrics.
	Failing, SetAside, GivenUp, Repaired int
	// Held is the number of keys that this replica's workers have.
	Held int
	// Calls counts the batches that this replica has sent. CallDuration has the times until the server answered them, nil
	// without metrics.
	Calls        uint64
	CallDuration *workqueue.Histogram
}

// Info returns the replica's numbers, without asking the server, also after shutdown. Its cost grows with the shards alone.
func (q *Queue[T]) Info() Info {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.infoLocked()
}

func (q *Queue[T]) infoLocked() Info {
	info := q.mu.totals.info
	info.Held, info.CallDuration = len(q.mu.held), q.mu.totals.calls.read()
	for _, s := range q.shards {
		info.Unsent += len(s.ops)
		info.Failing += s.info.Failing
		info.SetAside += s.info.SetAside
		info.GivenUp += s.info.GivenUp
		info.Repaired += s.info.Repaired
		info.Calls += s.batches
		if s.outage != nil {
			info.Outage = s.outage
		}
	}
	return info
}

// Facts returns Info for people. It does not ask the server.
func (q *Queue[T]) Facts() []workqueue.Fact {
	i := q.Info()
	server := "answers"
	if i.Outage != nil {
		server = "fails: " + i.Outage.Error()
	}
	facts := []workqueue.Fact{
		{Name: "Server", Value: fmt.Sprintf("%s; %d attempts have failed", server, i.Errors)},
		{Name: "Data", Value: q.description},
		{Name: "Lease", Value: q.config.Lease.String()},
		{Name: "Held by this process", Value: fmt.Sprint(i.Held)},
		{Name: "Not sent yet", Value: fmt.Sprint(i.Unsent)},
		{Name: "Calls of the server", Value: fmt.Sprint(i.Calls)},
		{Name: "Leases lost here", Value: fmt.Sprintf("%d, and %d calls of Done after that", i.LostLeases, i.LostDones)},
		{Name: "Failing, given up, set aside", Value: fmt.Sprintf("%d, %d, %d", i.Failing, i.GivenUp, i.SetAside)},
		{Name: "Repaired on the server", Value: fmt.Sprint(i.Repaired)},
	}
	if h := i.CallDuration; h != nil && h.Count() > 0 {
		average := time.Duration(h.Sum / float64(h.Count()) * float64(time.Second)).Round(time.Microsecond)
		facts = append(facts, workqueue.Fact{Name: "A call takes", Value: fmt.Sprintf("%v on average", average)})
	}
	return facts
}

// Len returns the number of keys that are queued, on all replicas. It asks the server, and blocks, as Stats does.
func (q *Queue[T]) Len() int { return q.Stats().Queued }

// Stats returns the numbers of the queue. Queued, Processing, Again, Waiting, Paused and OldestQueued are of the whole queue; all
// others are of this replica. Stats asks the server, after what was called before, for up to a second; if it does not answer,
// and after shutdown, the numbers are those of its last reply. Its cost grows with the keys that this replica's workers hold,
// not with those that are queued.
func (q *Queue[T]) Stats() workqueue.Stats {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	q.refresh(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.statsLocked(time.Now())
}

// refresh waits for a reply of each shard to a batch that is sent after the call.
func (q *Queue[T]) refresh(ctx context.Context) { _ = q.confirmAll(ctx, (*shard[T]).refreshLocked) }

// latestStats is Stats for a provider of metrics, which must not wait: it returns the numbers of the last reply, and asks
// for new ones if no call is under way. A replica that has ended sees no keys any more.
func (q *Queue[T]) latestStats() workqueue.Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	st := q.statsLocked(time.Now())
	if q.mu.ending.over {
		st.Queued, st.Processing, st.Again, st.Waiting = 0, 0, 0, 0
		return st
	}
	for _, s := range q.shards {
		if s.outage == nil && !s.sending {
			s.refreshLocked()
		}
	}
	return st
}

func (q *Queue[T]) statsLocked(now time.Time) workqueue.Stats {
	t := &q.mu.totals
	st := t.stats
	st.ShuttingDown = q.mu.ending.stopping
	st.Latency, st.WorkDuration = t.latency.read(), t.workDuration.read()
	for _, s := range q.shards {
		st.Queued += s.stats.Queued
		st.Processing += s.stats.Processing
		st.Again += s.stats.Again
		st.Waiting += s.stats.Waiting
		st.Paused = st.Paused || s.stats.Paused
		if s.stats.Queued > 0 {
			st.OldestQueued = max(st.OldestQueued, s.oldest)
		}
	}
	for _, h := range q.mu.held {
		d := now.Sub(h.began)
		st.UnfinishedWork += d
		st.LongestRunning = max(st.LongestRunning, d)
	}
	if t.calls.Histogram == nil {
		return st
	}
	i := q.infoLocked()
	st.Shared = &workqueue.SharedStats{
		Outage: i.Outage != nil, Unsent: i.Unsent, Errors: i.Errors, LostLeases: i.LostLeases, LostDones: i.LostDones,
		CallDuration: i.CallDuration, Failing: i.Failing, GivenUp: i.GivenUp, SetAside: i.SetAside, Repaired: i.Repaired,
	}
	return st
}

// Snapshot returns Stats and up to limit keys of each state, at most 512, of the whole queue, as the server has them when
// it has executed what was called before. Each state is read by calls of its own, none of which takes more than about a
// millisecond: a key that changes its state meanwhile may be in two lists. If more than limit keys are processed, it has any
// of them, not the oldest. It asks the server for up to two seconds, and lacks the keys of a state if that does not answer.
// After shutdown it still reads the keys.
func (q *Queue[T]) Snapshot(limit int) workqueue.Snapshot[T] {
	snapshot := workqueue.Snapshot[T]{Stats: q.Stats()}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	limit = min(max(limit, 0), maxSnapshot)
	type keySnapshot = workqueue.KeySnapshot[T]
	read := func(list string, order func(a, b keySnapshot) int) (keys []keySnapshot) {
		for _, s := range q.shards {
			_ = s.read(ctx, list, limit, func(raw rawKey) {
				if k, ok := q.snapshotOf(list, raw); ok {
					keys = append(keys, k)
				}
			})
		}
		if len(q.shards) > 1 || list == listProcessing {
			keys = sortFirst(keys, limit, order)
		}
		return keys
	}
	bySince := func(a, b keySnapshot) int { return a.Since.Compare(b.Since) }
	// In the order in which a key passes through them: one that goes on meanwhile is seen twice rather than not at all.
	snapshot.Failing = read(listFailing, func(a, b keySnapshot) int { return b.Requeues - a.Requeues })
	snapshot.Waiting = read(listWaiting, func(a, b keySnapshot) int { return a.Due.Compare(b.Due) })
	snapshot.Queued = read(listQueued, bySince)
	snapshot.Processing = read(listProcessing, bySince)
	return snapshot
}

// sortFirst sorts keys and returns the first of them.
func sortFirst[K any](keys []K, limit int, order func(a, b K) int) []K {
	slices.SortStableFunc(keys, order)
	return keys[:min(len(keys), max(limit, 0))]
}

// SnapshotKey returns what the server knows of key, and whether key is in the queue. It asks the server for up to a second,
// and returns false if that does not answer.
func (q *Queue[T]) SnapshotKey(key T) (k workqueue.KeySnapshot[T], found bool) {
	encoded, s := q.locate(key)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	page, _, err := s.readPage(ctx, oneKey, encoded, 1)
	if err != nil || len(page) == 0 {
		return workqueue.KeySnapshot[T]{Key: key}, false
	}
	k, ok := q.snapshotOf(oneKey, page[0])
	return k, ok && k.State != ""
}

// SnapshotKeys yields the keys of every state, in no particular order, with a call of the server for every few hundred. A key
// that is queued or held and waits as well is yielded for each. One that moves meanwhile may be yielded twice, or not at
// all. The iteration ends early if the server does not answer for a second.
func (q *Queue[T]) SnapshotKeys() iter.Seq[workqueue.KeySnapshot[T]] {
	return func(yield func(workqueue.KeySnapshot[T]) bool) {
		for _, s := range q.shards {
			for _, list := range []string{scanStates, scanDelays} {
				for from := "0"; from != ""; {
					ctx, cancel := context.WithTimeout(context.Background(), patience)
					page, next, err := s.readPage(ctx, list, from, maxPage)
					cancel()
					if err != nil {
						return
					}
					for _, raw := range page {
						if k, ok := q.snapshotOf(list, raw); ok && !yield(k) {
							return
						}
					}
					from = next
				}
			}
		}
	}
}

// snapshotOf decodes a key, and returns what that list shows of it, or false if it does not belong there.
func (q *Queue[T]) snapshotOf(list string, raw rawKey) (k workqueue.KeySnapshot[T], ok bool) {
	item, err := q.decode(raw.encoded)
	if err != nil {
		return k, false
	}
	k = workqueue.KeySnapshot[T]{Key: item, Due: raw.due}
	if since := raw.state; len(since) >= 16 {
		k.State = workqueue.KeyQueued
		if len(since) > 16 {
			k.State, k.Again, since = workqueue.KeyProcessing, since[0] != 'p', since[12:28]
		}
		micros, _ := strconv.ParseInt(since, 10, 64)
		k.Since = time.UnixMicro(micros - raw.offset)
	} else if !raw.due.IsZero() {
		k.State = workqueue.KeyWaiting
	}
	failures, _ := strconv.ParseFloat(raw.failures, 64)
	k.Requeues = int(failures)
	if raw.causes != "" {
		causes := decodeCauses(raw.causes)
		k.Causes = &causes
	}
	switch list {
	case listQueued, listProcessing, scanStates:
		k.Due = time.Time{}
	case listWaiting, scanDelays:
		k.State, k.Since, k.Again = workqueue.KeyWaiting, time.Time{}, false
	}
	return k, list != listQueued || k.State == workqueue.KeyQueued // The line may have keys that were removed.
}

// The lists that snapshot.lua reads. The first are in order, the next are read in steps.
const (
	listProcessing = "processing"
	listQueued     = "queued"
	listWaiting    = "waiting"
	listFailing    = "failing"
	listGivenUp    = "givenup"

	scanStates = "states"
	scanDelays = "delays"
	listAside  = "aside"

	oneKey     = "key"
	oneGivenUp = "givenupkey"
)

const (
	maxSnapshot = 512 // how many keys of each state a Snapshot has
	maxPage     = 256 // how many keys one call reads
)

// rawKey is a key as snapshot.lua returns it.
type rawKey struct {
	encoded  string
	state    string // see batch.lua
	failures string // their number; of keys that were given up, the attempts and the reason
	due      time.Time
	offset   int64  // how far the queue's clock is ahead of the server's, in microseconds
	causes   string // only of a key that is read alone
}

// read calls f with up to limit keys of a list.
func (s *shard[T]) read(ctx context.Context, list string, limit int, f func(rawKey)) error {
	for from := "0"; from != "" && limit > 0; {
		page, next, err := s.readPage(ctx, list, from, min(limit, maxPage))
		if err != nil {
			return err
		}
		for _, k := range page {
			f(k)
		}
		limit -= len(page)
		from = next
	}
	return nil
}

// readPage reads some keys of a list, and returns where to go on, empty at the end. It returns when ctx ends: by default
// go-redis does not interrupt a call then, and its goroutine stays until the client's ReadTimeout is over.
func (s *shard[T]) readPage(ctx context.Context, list, from string, count int) (keys []rawKey, next string, err error) {
	result := make(chan *redis.Cmd, 1)
	go func() { result <- snapshotScript.Run(ctx, s.q.client, s.names.of("none"), count, list, from) }()
	var fields []any
	select {
	case cmd := <-result:
		fields, err = cmd.Slice()
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return nil, "", fmt.Errorf("redisqueue: %w", err)
	}
	if len(fields) < 2 {
		return nil, "", errReply
	}
	text := func(i int) string { s, _ := fields[i].(string); return s }
	next = text(0)
	offset, _ := strconv.ParseInt(text(1), 10, 64)
	for fields = fields[2:]; len(fields) >= 4; fields = fields[4:] {
		k := rawKey{encoded: text(0), state: text(1), failures: text(2), offset: offset}
		if due, err := strconv.ParseFloat(text(3), 64); err == nil && due < math.MaxInt64 {
			k.due = time.UnixMicro(int64(due) - offset)
		}
		if k.encoded != filler {
			keys = append(keys, k)
		}
	}
	if len(fields) == 1 && len(keys) == 1 {
		keys[0].causes = text(0)
	}
	return keys, next, nil
}
