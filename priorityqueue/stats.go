package priorityqueue

import (
	"cmp"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/observe"
)

// beginObserving gives q metrics if it has a name and a provider.
func (q *Queue[T]) beginObserving() {
	provider := q.config.MetricsProvider
	if global := observe.Global.Load(); provider == nil && global != nil {
		provider, _ = (*global).(workqueue.StatsProvider)
	}
	if q.config.Name == "" || provider == nil {
		return
	}
	q.alwaysTimed = true
	buckets, err := observe.SharedBuckets(provider.HistogramBounds())
	if err != nil {
		panic("priorityqueue: StatsProvider: " + err.Error())
	}
	q.observer = observe.New(q.config.Clock, buckets, nil)
	provider.WatchQueue(q.config.Name, q.Stats)
	if provider, ok := provider.(workqueue.InspectorProvider); ok {
		provider.InspectQueue(q.config.Name, workqueue.Inspect(q))
	}
}

// beginNeedLocked counts an add that made the key at s ready, or come again at once, with that priority.
func (q *Queue[T]) beginNeedLocked(s keytable.Slot, priority int, now int64) {
	q.adds++
	if q.observer != nil {
		q.observer.Added(s, time.Duration(now))
		q.depths.add(priority, 1)
	}
}

// endNeedLocked counts a key for which beginNeedLocked was called, and which is handed out or dropped.
func (q *Queue[T]) endNeedLocked(priority int) {
	if q.observer != nil {
		q.depths.add(priority, -1)
	}
}

// Stats returns the queue's numbers. It takes constant time, except for keys that have just come due. A key
// that a worker holds and that must not come again before its time counts as Processing and as Waiting.
func (q *Queue[T]) Stats() workqueue.Stats {
	now := q.readClock(false)
	q.lockAt(now)
	defer q.unlock()
	return q.statsLocked(now)
}

func (q *Queue[T]) statsLocked(now int64) workqueue.Stats {
	st := workqueue.Stats{
		Name:           q.config.Name,
		ShuttingDown:   q.shuttingDown.Load(),
		Queued:         q.queued,
		Blocked:        q.blockedKeys,
		Paused:         q.paused,
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

// depths counts the keys that need processing, of the first priorities that it meets, and of all others together.
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
