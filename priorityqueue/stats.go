package priorityqueue

import (
	"cmp"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/observe"
	"github.com/keyedqueue/workqueue/operate"
)

// beginObserving gives q metrics if it has a name and a provider.
func (q *Queue[T]) beginObserving() {
	provider := workqueue.StatsProviderFor(q.config.MetricsProvider)
	if q.config.Name == "" || provider == nil {
		return
	}
	q.alwaysTimed = true
	buckets, err := observe.BucketsOf(provider.HistogramBounds())
	if err != nil {
		panic("priorityqueue: StatsProvider: " + err.Error())
	}
	q.observer = observe.New(q.config.Clock, buckets, nil)
	provider.WatchQueue(q.config.Name, q.Stats)
	if provider, ok := provider.(workqueue.QueueInspector); ok {
		provider.InspectQueue(q.config.Name, q, operate.Untyped(q))
	}
}

// See [workqueue.Extended]. A held key that waits for a time counts as Processing and as Waiting.
func (q *Queue[T]) Stats() workqueue.Stats {
	st := q.ownStats()
	st.Failing = q.failures.Len() // Not under mu: they have a lock of their own.
	return st
}

// ownStats returns Stats without Failing.
func (q *Queue[T]) ownStats() workqueue.Stats {
	q.mu.Lock()
	defer q.unlock()
	now := q.advanceLocked()
	return q.statsLocked(now)
}

func (q *Queue[T]) statsLocked(now time.Duration) workqueue.Stats {
	st := workqueue.Stats{
		Name:           q.config.Name,
		ShuttingDown:   q.shuttingDown.Load(),
		Queued:         q.mu.queued,
		Blocked:        q.mu.blockedKeys,
		Processing:     q.mu.held,
		OnHold:         q.mu.onHold,
		Again:          q.mu.reruns - q.mu.rerunsOnHold,
		Waiting:        q.mu.due.Len(),
		Adds:           q.mu.adds,
		Retries:        q.mu.retries,
		Dropped:        q.mu.dropped,
		UnmatchedDones: q.mu.unmatchedDones,
		ByPriority:     q.mu.depths.public(),
	}
	st.Paused, st.PausedUntil = q.pauseOfLocked(pausable{queue: true})
	if q.observer == nil {
		return st
	}
	for s := range q.observer.InLine() {
		st.OldestQueued = q.observer.SinceAdded(s, now)
		break
	}
	st.UnfinishedWork, st.LongestRunning = q.observer.Unfinished(now)
	st.Latency = (*workqueue.Histogram)(q.observer.Latency.Read())
	st.WorkDuration = (*workqueue.Histogram)(q.observer.WorkDuration.Read())
	return st
}

// depths counts the queued and rerun keys of each of the first priorities that it meets, and those of all
// others together.
type depths struct {
	known  []workqueue.PriorityDepth
	others int
}

// maxDepths is how many priorities are counted by themselves, as in controller-runtime.
const maxDepths = 25

func (d *depths) add(priority, n int) {
	for i := range d.known {
		if d.known[i].Priority == priority {
			d.known[i].Queued += n
			return
		}
	}
	if len(d.known) < maxDepths {
		d.known = append(d.known, workqueue.PriorityDepth{Priority: priority, Queued: n})
	} else {
		d.others += n
	}
}

func (d *depths) public() *workqueue.PriorityDepths {
	known := slices.Clone(d.known)
	slices.SortFunc(known, func(a, b workqueue.PriorityDepth) int { return cmp.Compare(b.Priority, a.Priority) })
	return &workqueue.PriorityDepths{Depths: known, Others: d.others}
}
