package debug

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// seconds is a duration, which is a number of seconds in JSON.
type seconds time.Duration

// MarshalJSON returns the number of seconds.
func (s seconds) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, time.Duration(s).Seconds(), 'f', -1, 64), nil
}

// queueReport is what is shown of each queue.
type queueReport struct {
	queueName
	Queued         int          `json:"queued"`
	Blocked        int          `json:"blocked"`
	Paused         bool         `json:"paused"`
	PausedGroups   int          `json:"paused_groups,omitempty"`
	Processing     int          `json:"processing"`
	Waiting        int          `json:"waiting"`
	Adds           uint64       `json:"adds"`
	Retries        uint64       `json:"retries"`
	Dropped        uint64       `json:"dropped"`
	UnmatchedDones uint64       `json:"unmatched_dones"`
	ShuttingDown   bool         `json:"shutting_down"`
	Timed          bool         `json:"timed"`
	OldestQueued   seconds      `json:"oldest_queued_seconds"`
	LongestRunning seconds      `json:"longest_running_seconds"`
	UnfinishedWork seconds      `json:"unfinished_work_seconds"`
	Minute         rates        `json:"last_minute"`
	Depth          []float64    `json:"depth"`
	Pools          []poolReport `json:"pools"`
	Error          string       `json:"error,omitempty"`
	// Unanswered is how old the numbers are, if the queue does not answer.
	Unanswered *seconds `json:"unanswered_seconds,omitempty"`

	// Workers is the sum of the pools, and GivenUp of their keys that were given up.
	Workers worker.Stats `json:"-"`
	GivenUp int          `json:"-"`
	// HasQueue reports that more is known than pools, and Late that the queue does not answer.
	HasQueue bool `json:"-"`
	Late     bool `json:"-"`
	timeline timeline
}

// poolReport is what is shown of a pool of workers.
type poolReport struct {
	worker.Stats
	GivenUp int          `json:"given_up"`
	Handler *timesReport `json:"handler"`

	// These of the pool's numbers are left out of the JSON, because these fields hide them.
	RequeuedAfter *int `json:"requeued_after,omitempty"`
	Interrupted   *int `json:"interrupted,omitempty"`
	Durations     *int `json:"durations,omitempty"`
	Ended         *int `json:"ended,omitempty"`
}

func newPoolReports(pools []poolReading) []poolReport {
	all := make([]poolReport, len(pools))
	for i, p := range pools {
		all[i] = poolReport{Stats: p.Stats, GivenUp: p.DroppedKeys, Handler: newTimesReport(p.Stats.Durations)}
		all[i].Name = short(p.Stats.Name, maxName)
	}
	return all
}

func (h *Handler) newQueueReport(r *reading, now time.Time) queueReport {
	s := r.stats
	q := queueReport{
		queueName: queueName{r.entry.id, r.entry.name}, HasQueue: r.entry.hasQueue(), Late: r.late,
		Queued: s.Queued, Blocked: s.Blocked, Paused: s.Paused, PausedGroups: len(r.pausedGroups), Processing: s.Processing, Waiting: s.Waiting,
		Adds: s.Adds, Retries: s.Retries, Dropped: s.Dropped, UnmatchedDones: s.UnmatchedDones,
		ShuttingDown: s.ShuttingDown, Timed: s.Latency != nil, OldestQueued: seconds(s.OldestQueued),
		LongestRunning: seconds(s.LongestRunning), UnfinishedWork: seconds(s.UnfinishedWork),
		Minute: r.minute, Pools: newPoolReports(r.pools), Workers: r.workers, GivenUp: r.givenUp,
		timeline: r.entry.history.timeline(r.measure(), h.every),
	}
	q.Depth = column(q.timeline.points, queued.of)
	if r.panicked != nil {
		q.Error = r.panicked.Error()
	}
	if r.late {
		q.Error = "The queue does not answer, and never has."
		if !r.at.IsZero() {
			age := seconds(now.Sub(r.at))
			q.Unanswered = &age
			q.Error = fmt.Sprintf("The queue does not answer. These are its numbers of %s ago.", human(time.Duration(age)))
		}
	}
	return q
}

func column[V any](points []point, of func(point) V) []V {
	all := make([]V, len(points))
	for i, p := range points {
		all[i] = of(p)
	}
	return all
}

// timesReport sums up a histogram.
type timesReport struct {
	Count uint64  `json:"count"`
	Mean  float64 `json:"mean_seconds"`
	// Half and Most are nil if they are above all bounds.
	Half *float64 `json:"p50_at_most_seconds,omitempty"`
	Most *float64 `json:"p99_at_most_seconds,omitempty"`
}

func newTimesReport(h *workqueue.Histogram) *timesReport {
	if h == nil {
		return nil
	}
	r := &timesReport{Count: h.Count()}
	if r.Count > 0 {
		r.Mean = h.Sum / float64(r.Count)
		r.Half = atMost(h, r.Count, 0.5)
		r.Most = atMost(h, r.Count, 0.99)
	}
	return r
}

// atMost returns the bound that a part of count times does not exceed, or nil if there is none.
func atMost(h *workqueue.Histogram, count uint64, part float64) *float64 {
	want := uint64(math.Ceil(float64(count) * part))
	seen := uint64(0)
	for i, bound := range h.Bounds {
		if seen += h.Counts[i]; seen >= want {
			return &bound
		}
	}
	return nil
}
