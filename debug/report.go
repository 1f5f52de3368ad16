package debug

import (
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

// listReport is what the list page shows.
type listReport struct {
	Time        time.Time     `json:"time"`
	Registered  int           `json:"registered"`
	Matching    int           `json:"matching"`
	Queued      int           `json:"queued"`
	Processing  int           `json:"processing"`
	Waiting     int           `json:"waiting"`
	Failing     int           `json:"failing"`
	GivenUp     uint64        `json:"given_up"`
	Search      string        `json:"search"`
	Sort        string        `json:"sort"`
	Page        int           `json:"page"`
	Pages       int           `json:"pages"`
	SampleEvery seconds       `json:"sample_seconds"`
	Queues      []queueReport `json:"queues"`
}

// queueReport is what is shown of each queue.
type queueReport struct {
	ID             string       `json:"id"`
	Name           string       `json:"name"`
	Queued         int          `json:"queued"`
	Blocked        int          `json:"blocked"`
	Paused         bool         `json:"paused"`
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
	Depth          []uint32     `json:"depth"`
	Pools          []poolReport `json:"pools"`
	Error          string       `json:"error,omitempty"`

	hasQueue bool
	timeline timeline
}

// poolReport is what is shown of a pool of workers.
type poolReport struct {
	Name     string       `json:"name"`
	Wanted   int          `json:"wanted"`
	Living   int          `json:"living"`
	Busy     int          `json:"busy"`
	Stuck    int          `json:"stuck"`
	Handled  uint64       `json:"handled"`
	Failed   uint64       `json:"failed"`
	Panicked uint64       `json:"panicked"`
	TimedOut uint64       `json:"timed_out"`
	Requeued uint64       `json:"requeued"`
	GivenUp  uint64       `json:"given_up"`
	Failing  int          `json:"failing"`
	Handler  *timesReport `json:"handler"`
}

func newPoolReports(pools []worker.Stats) []poolReport {
	all := make([]poolReport, len(pools))
	for i, s := range pools {
		all[i] = poolReport{
			Name: newLabel(s.Name, maxName).short(), Wanted: s.Wanted, Living: s.Living, Busy: s.Busy, Stuck: s.Stuck,
			Handled: s.Handled, Failed: s.Failed, Panicked: s.Panicked, TimedOut: s.TimedOut,
			Requeued: s.Requeued, GivenUp: s.Dropped, Failing: s.Failing, Handler: newTimesReport(s.Durations),
		}
	}
	return all
}

func (h *Handler) newQueueReport(r *reading) queueReport {
	s := r.stats
	q := queueReport{
		ID:             r.entry.id,
		Name:           r.entry.name,
		Queued:         s.Queued,
		Blocked:        s.Blocked,
		Paused:         s.Paused,
		Processing:     s.Processing,
		Waiting:        s.Waiting,
		Adds:           s.Adds,
		Retries:        s.Retries,
		Dropped:        s.Dropped,
		UnmatchedDones: s.UnmatchedDones,
		ShuttingDown:   s.ShuttingDown,
		Timed:          s.Latency != nil,
		OldestQueued:   seconds(s.OldestQueued),
		LongestRunning: seconds(s.LongestRunning),
		UnfinishedWork: seconds(s.UnfinishedWork),
		Pools:          newPoolReports(r.pools),
		Error:          r.err,
		hasQueue:       r.entry.hasQueue(),
	}
	m := r.measure()
	q.Minute = r.entry.history.rates(h.ticks(), m, h.every)
	q.timeline = r.entry.history.all(h.ticks(), m, h.every)
	q.Depth = column(q.timeline.points, func(p point) uint32 { return p.queued })
	return q
}

func column[V any](points []point, of func(point) V) []V {
	all := make([]V, len(points))
	for i, p := range points {
		all[i] = of(p)
	}
	return all
}

// detailReport is what a queue's own page shows.
type detailReport struct {
	Time        time.Time     `json:"time"`
	SampleEvery seconds       `json:"sample_seconds"`
	Queue       queueReport   `json:"queue"`
	Latency     *timesReport  `json:"latency"`
	Work        *timesReport  `json:"work"`
	Recent      *recentReport `json:"recent"`
	History     historyReport `json:"history"`
	keyLists
	// Found is not nil if a key was searched for.
	Found *foundReport `json:"found,omitempty"`

	limit   int
	actions actionSet
}

// historyReport has one value for each of the last samples, oldest first, and the last ones since then.
type historyReport struct {
	Queued     []uint32   `json:"queued"`
	Processing []uint32   `json:"processing"`
	Waiting    []uint32   `json:"waiting"`
	Adds       []float64  `json:"adds_per_second"`
	Dones      []float64  `json:"dones_per_second"`
	Errors     []float64  `json:"errors_per_second"`
	Retries    []float64  `json:"retries_per_second"`
	Latency    []*float64 `json:"latency_mean_seconds"`
	Work       []*float64 `json:"work_mean_seconds"`
}

func newHistoryReport(points []point) historyReport {
	perSecond := func(of func(point) uint32) []float64 {
		return column(points, func(p point) float64 { return perSecond(of(p), p) })
	}
	known := func(of func(point) float32) []*float64 {
		return column(points, func(p point) *float64 {
			if v := float64(of(p)); v > 0 {
				return &v
			}
			return nil
		})
	}
	return historyReport{
		Queued:     column(points, func(p point) uint32 { return p.queued }),
		Processing: column(points, func(p point) uint32 { return p.processing }),
		Waiting:    column(points, func(p point) uint32 { return p.waiting }),
		Adds:       perSecond(func(p point) uint32 { return p.adds }),
		Dones:      perSecond(func(p point) uint32 { return p.dones }),
		Errors:     perSecond(func(p point) uint32 { return p.errors }),
		Retries:    perSecond(func(p point) uint32 { return p.retries }),
		Latency:    known(func(p point) float32 { return p.latencyMean }),
		Work:       known(func(p point) float32 { return p.workMean }),
	}
}

func perSecond(n uint32, p point) float64 {
	if p.seconds <= 0 {
		return 0
	}
	return float64(n) / float64(p.seconds)
}

// recentReport is about the last minutes.
type recentReport struct {
	Covers  seconds      `json:"covers_seconds"`
	Latency *timesReport `json:"latency"`
	Work    *timesReport `json:"work"`
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
