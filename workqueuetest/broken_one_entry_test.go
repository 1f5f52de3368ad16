package workqueuetest

import (
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/priorityqueue"
)

// merging is a correct queue with OneEntry. Its own package runs the whole suite on it. The queues below have one bug
// each, in how they treat the second add of a key.
type merging = *priorityqueue.Queue[string]

func newMerging(c Config[string]) merging {
	return priorityqueue.New(priorityqueue.Config[string]{Clock: c.Clock, RateLimiter: c.RateLimiter})
}

// delayWins ignores adds of keys that wait.
type delayWins struct{ merging }

func (q delayWins) Add(key string) {
	if info, _ := q.Inspect(key); info.State != priorityqueue.Waiting {
		q.merging.Add(key)
	}
}

// putsOff makes a queued key wait when it is added with a delay.
type putsOff struct{ merging }

func (q putsOff) AddAfter(key string, d time.Duration) {
	if info, _ := q.Inspect(key); info.State == priorityqueue.Queued && d > 0 {
		q.Remove(key)
	}
	q.merging.AddAfter(key, d)
}

// lastAddCounts forgets the earlier adds of a key that a worker holds.
type lastAddCounts struct{ merging }

func (q lastAddCounts) AddAfter(key string, d time.Duration) {
	if info, _ := q.Inspect(key); info.State == priorityqueue.Processing {
		q.Remove(key)
	}
	q.merging.AddAfter(key, d)
}

// firstAddCounts ignores further adds of a held key that Done will queue anyway.
type firstAddCounts struct{ merging }

func (q firstAddCounts) Add(key string) {
	if info, _ := q.Inspect(key); info.State != priorityqueue.Processing || !info.Again {
		q.merging.Add(key)
	}
}

// losesMergedAdds forgets adds of keys that workers hold.
type losesMergedAdds struct{ merging }

func (q losesMergedAdds) Add(key string) {
	if info, _ := q.Inspect(key); info.State != priorityqueue.Processing {
		q.merging.Add(key)
	}
}

// losesDelays forgets delayed adds of keys that workers hold.
type losesDelays struct{ merging }

func (q losesDelays) AddAfter(key string, d time.Duration) {
	if info, _ := q.Inspect(key); info.State != priorityqueue.Processing || d <= 0 {
		q.merging.AddAfter(key, d)
	}
}

// losesKeys removes a key that was queued before its time came.
type losesKeys struct{ merging }

func (q losesKeys) Add(key string) {
	if q.Remove(key) != priorityqueue.Waiting {
		q.merging.Add(key)
	}
}

// countsMerged counts a key as waiting that was added with a delay and then without.
type countsMerged struct {
	merging
	merged *int
}

func (q countsMerged) Add(key string) {
	if info, _ := q.Inspect(key); info.State == priorityqueue.Waiting && !q.ShuttingDown() {
		*q.merged++
	}
	q.merging.Add(key)
}

func (q countsMerged) Stats() workqueue.Stats {
	st := q.merging.Stats()
	st.Waiting += *q.merged
	return st
}

// retriesAtOnce queues a waiting key at once when it fails a second time.
type retriesAtOnce struct{ merging }

func (q retriesAtOnce) AddRateLimited(key string) {
	if info, _ := q.Inspect(key); info.State == priorityqueue.Waiting {
		q.Add(key)
		return
	}
	q.merging.AddRateLimited(key)
}
