package priorityqueue

import (
	"cmp"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/observe"
)

// beginObserving gives q metrics, if it shall have any.
func (q *Queue[T]) beginObserving(config *Config[T]) {
	provider := config.MetricsProvider
	if global := observe.Global.Load(); provider == nil && global != nil {
		provider, _ = (*global).(workqueue.StatsProvider)
	}
	if q.name == "" || provider == nil {
		return
	}
	q.alwaysTimed = true
	buckets, err := observe.SharedBuckets(provider.HistogramBounds())
	if err != nil {
		panic("priorityqueue: StatsProvider: " + err.Error())
	}
	q.observer = observe.New(q.clock, buckets, nil)
	provider.WatchQueue(q.name, q.Stats)
}

// addedLocked counts an add that made the key at s ready, or to come again at once.
func (q *Queue[T]) addedLocked(s keytable.Slot, now int64) {
	q.adds++
	if q.observer != nil {
		q.observer.Added(s, time.Duration(now))
	}
}

// Stats returns a snapshot of the queue. It takes constant time, but for keys that have just come due. A key
// that a worker holds and that is not to come again before its time counts as Processing and as Waiting.
// Keys of a group that is at its limit are Queued.
func (q *Queue[T]) Stats() workqueue.Stats {
	now := q.lock(false)
	defer q.unlock()
	return q.statsLocked(now)
}

func (q *Queue[T]) statsLocked(now int64) workqueue.Stats {
	st := workqueue.Stats{
		Name:           q.name,
		ShuttingDown:   q.shuttingDown.Load(),
		Queued:         q.queued,
		Processing:     q.running,
		Again:          q.wishes,
		Waiting:        q.due.Len(),
		Adds:           q.adds,
		Retries:        q.retries,
		Dropped:        q.dropped,
		UnmatchedDones: q.unmatchedDones,
	}
	if q.observer == nil {
		return st
	}
	for s := range q.observer.InLine() {
		st.OldestQueued = q.observer.SinceAdded(s, time.Duration(now))
		break
	}
	st.UnfinishedWork, st.LongestRunning = q.observer.Unfinished(time.Duration(now))
	st.Latency = histogram(&q.observer.Latency)
	st.WorkDuration = histogram(&q.observer.WorkDuration)
	st.ByPriority = q.depths.public()
	return st
}

func histogram(h *observe.Histogram) *workqueue.Histogram {
	bounds, counts, sum := h.Read()
	return &workqueue.Histogram{Bounds: bounds, Counts: counts, Sum: sum}
}

// depths counts the queued keys of the first priorities that it meets, and of all others together.
type depths struct {
	known  []workqueue.PriorityDepth
	others int
}

// maxDepths is how many priorities are counted by themselves.
const maxDepths = 10

func (d *depths) add(priority, n int) {
	for i := range d.known {
		if d.known[i].Priority == priority {
			d.known[i].Queued += n
			return
		}
	}
	if len(d.known) < maxDepths {
		d.known = append(d.known, workqueue.PriorityDepth{Priority: priority, Queued: n})
		return
	}
	d.others += n
}

func (d *depths) public() *workqueue.PriorityDepths {
	known := slices.Clone(d.known)
	slices.SortFunc(known, func(a, b workqueue.PriorityDepth) int { return cmp.Compare(b.Priority, a.Priority) })
	return &workqueue.PriorityDepths{Depths: known, Others: d.others}
}

// Snapshot copies up to limit keys of each state, and tells what Stats does. Queued keys come in the order in
// which they became ready, whatever their priority. A key that is processed, and waits to come again, is among
// both. Snapshot holds the lock for about as long as it takes to copy them, and asks the limiter for the
// requeues of each afterwards.
//
// In a queue without metrics it looks at all keys, some hundred at a time with the lock given back in
// between, and takes the first ones that it meets.
func (q *Queue[T]) Snapshot(limit int) workqueue.Snapshot[T] {
	limit = max(limit, 0)
	stats := q.Stats()
	s := workqueue.Snapshot[T]{
		Processing: make([]workqueue.KeySnapshot[T], 0, min(limit, stats.Processing)),
		Queued:     make([]workqueue.KeySnapshot[T], 0, min(limit, stats.Queued)),
		Waiting:    make([]workqueue.KeySnapshot[T], 0, min(limit, stats.Waiting)),
	}
	q.copyInOrder(&s)
	if q.observer == nil {
		s.Processing = q.scan(s.Processing, running)
		s.Queued = q.scan(s.Queued, ready)
	}
	for _, keys := range [][]workqueue.KeySnapshot[T]{s.Processing, s.Queued, s.Waiting} {
		for i := range keys {
			keys[i].Requeues = q.limiter.NumRequeues(keys[i].Key)
		}
	}
	if lister, ok := q.limiter.(workqueue.RequeueLister[T]); ok {
		s.Failing = lister.MostRequeued(limit)
		for i := range s.Failing {
			if info := q.inspect(s.Failing[i].Key); info.State == Waiting {
				s.Failing[i].Since, s.Failing[i].Due = info.Added, info.Due
			}
		}
	}
	return s
}

// copyInOrder fills s from those lists that q has in the right order, up to the capacity of the slices.
func (q *Queue[T]) copyInOrder(s *workqueue.Snapshot[T]) {
	now := q.lock(false)
	defer q.unlock()
	s.Stats = q.statsLocked(now)
	for e := range q.due.InOrder() {
		if len(s.Waiting) == cap(s.Waiting) {
			break
		}
		info := q.infoLocked(e.Slot)
		s.Waiting = append(s.Waiting, workqueue.KeySnapshot[T]{Key: info.Key, Since: info.Added, Due: info.Due})
	}
	if q.observer == nil {
		return
	}
	for slot := range q.observer.Running() {
		if len(s.Processing) == cap(s.Processing) {
			break
		}
		s.Processing = append(s.Processing, q.keyLocked(slot))
	}
	for slot := range q.observer.InLine() {
		if len(s.Queued) == cap(s.Queued) {
			break
		}
		s.Queued = append(s.Queued, q.keyLocked(slot))
	}
}

// keyLocked returns what Snapshot tells of the key at s, which is ready or running, but for its failures.
func (q *Queue[T]) keyLocked(s keytable.Slot) workqueue.KeySnapshot[T] {
	info := q.infoLocked(s)
	k := workqueue.KeySnapshot[T]{Key: info.Key, Again: info.Again}
	switch {
	case q.observer == nil:
	case info.State == Processing:
		k.Since = q.timeOf(int64(q.observer.StartedAt(s)))
	default:
		k.Since = q.timeOf(int64(q.observer.AddedAt(s)))
	}
	return k
}

// scan appends the keys in that state, up to the capacity of keys.
func (q *Queue[T]) scan(keys []workqueue.KeySnapshot[T], wanted state) []workqueue.KeySnapshot[T] {
	scanSlab := func(n int) bool {
		q.lock(false)
		defer q.unlock()
		for slot, e := range q.keys.Slab(n) {
			if len(keys) == cap(keys) {
				return false
			}
			if e.Value.state&wanted != 0 {
				keys = append(keys, q.keyLocked(slot))
			}
		}
		return n+1 < q.keys.Slabs()
	}
	for n := 0; scanSlab(n); n++ {
	}
	return keys
}
