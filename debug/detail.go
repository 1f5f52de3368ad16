package debug

import (
	"cmp"
	"context"
	"net/url"
	"strconv"
	"time"

	"github.com/keyedqueue/workqueue"
)

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

	// Sharing is how many queues show the same pools.
	Sharing int `json:"-"`

	failingUnlisted bool
	limit           int
	Actions         actionSet `json:"-"`
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

const (
	// someKeys is how many keys of each state are shown unless more are asked for, maxKeys the most.
	someKeys = 25
	maxKeys  = 250
)

// detail reports the queue that query asks for, or returns nil if there is none.
func (h *Handler) detail(ctx context.Context, query url.Values) *detailReport {
	e := h.find(query.Get("queue"))
	if e == nil {
		return nil
	}
	limit, err := strconv.Atoi(query.Get("keys"))
	if err != nil {
		limit = someKeys
	}
	limit = min(max(limit, 1), maxKeys)
	ask := limits{limit, limit}
	if query.Has("key") {
		ask = searchLimits
	}
	now := h.clock.Now()
	reading := *h.readOne(ctx, e, ask)
	known := reading.poolKeys()
	lists := newKeyLists(reading.keys, known)
	r := &detailReport{
		Time:            now.UTC(),
		SampleEvery:     seconds(h.every),
		Latency:         newTimesReport(reading.stats.Latency),
		Work:            newTimesReport(reading.stats.WorkDuration),
		keyLists:        lists.cut(limit),
		Sharing:         h.countNamed(e),
		failingUnlisted: reading.keys.FailingUnlisted,
		limit:           limit,
		Actions:         h.actionsOf(e, reading.stats),
	}
	if !reading.late && e.queue.SnapshotKey != nil {
		reading.panicked = cmp.Or(reading.panicked, guarded("queue", func() { r.findGivenUp(e.queue) }))
	}
	if query.Has("key") {
		reading.panicked = cmp.Or(reading.panicked, guarded("queue", func() {
			r.Found = h.search(ctx, e, lists, known, query.Get("key"))
		}))
	}
	r.Queue = h.newQueueReport(&reading, now)
	r.History = newHistoryReport(r.Queue.timeline.points)
	if r.Queue.Timed {
		latency, work, covers := e.history.recent(reading.measure())
		r.Recent = &recentReport{seconds(covers), newTimesReport(latency), newTimesReport(work)}
	}
	r.finish(r.Time)
	return r
}

// findGivenUp notes which of the keys that were given up are in the queue again.
func (r *detailReport) findGivenUp(q workqueue.Inspector) {
	for i := range r.GivenUp {
		if k, ok := q.SnapshotKey(r.GivenUp[i].raw); ok {
			r.GivenUp[i].State = string(k.State)
		}
	}
}

func (r *detailReport) finish(now time.Time) {
	r.keyLists.finish(now)
	if r.Found != nil {
		for i := range r.Found.Keys {
			r.Found.Keys[i].finish(now)
		}
	}
}
