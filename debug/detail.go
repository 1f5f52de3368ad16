package debug

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strconv"
	"time"
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

	// FailingUnlisted reports that the limiter cannot list the keys that fail.
	FailingUnlisted bool      `json:"-"`
	Actions         actionSet `json:"-"`
	limit           int
}

// historyReport has one value for each of the last samples, oldest first, and the last ones since then.
type historyReport struct {
	Queued     []float64  `json:"queued"`
	Processing []float64  `json:"processing"`
	Waiting    []float64  `json:"waiting"`
	Adds       []float64  `json:"adds_per_second"`
	Dones      []float64  `json:"dones_per_second"`
	Errors     []float64  `json:"errors_per_second"`
	Retries    []float64  `json:"retries_per_second"`
	Latency    []*float64 `json:"latency_mean_seconds"`
	Work       []*float64 `json:"work_mean_seconds"`
}

func newHistoryReport(points []point) historyReport {
	known := func(of func(point) float64) []*float64 {
		return column(points, func(p point) *float64 {
			if v := of(p); v > 0 {
				return &v
			}
			return nil
		})
	}
	return historyReport{
		Queued: column(points, queued.of), Processing: column(points, held.of), Waiting: column(points, waiting.of),
		Adds: column(points, adds.of), Dones: column(points, dones.of),
		Errors: column(points, failures.of), Retries: column(points, retries.of),
		Latency: known(latency.of), Work: known(work.of),
	}
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
	ask := limit
	if query.Has("key") {
		ask = searchLimit
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
		FailingUnlisted: reading.keys.FailingUnlisted,
		limit:           limit,
		Actions:         h.actionsOf(e, reading.stats),
	}
	failure := guarded("queue", func() {
		if !reading.late && e.queue.SnapshotKey != nil {
			for i, k := range r.GivenUp { // It may be in the queue again.
				if now, ok := e.queue.SnapshotKey(k.raw); ok {
					r.GivenUp[i].State = string(now.State)
				}
			}
		}
		if query.Has("key") {
			r.Found = h.search(ctx, e, lists, known, query.Get("key"))
		}
	})
	reading.panicked = cmp.Or(reading.panicked, failure)
	for _, other := range h.entries() {
		if other.queueName == e.queueName {
			r.Sharing++
		}
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

func (r *detailReport) finish(now time.Time) {
	r.keyLists.finish(now)
	if r.Found != nil {
		for i := range r.Found.Keys {
			r.Found.Keys[i].finish(now)
		}
	}
}

// HrefAll returns the address of the same page with as many keys as can be had, or "" if that is this one.
func (r *detailReport) HrefAll() string {
	for _, keys := range r.all() {
		if len(*keys) == r.limit && r.limit < maxKeys {
			return "?" + url.Values{"queue": {r.Queue.ID}, "keys": {strconv.Itoa(maxKeys)}}.Encode()
		}
	}
	return ""
}

// HrefJSON returns the address of the same as JSON.
func (r *detailReport) HrefJSON() string {
	v := url.Values{"queue": {r.Queue.ID}, "format": {"json"}}
	if r.Found != nil {
		v.Set("key", r.Found.Search)
	} else if r.limit != someKeys {
		v.Set("keys", strconv.Itoa(r.limit))
	}
	return "?" + v.Encode()
}

// Refresh is after how many seconds the page asks for itself, or 0 if that would be a search among all keys.
func (r *detailReport) Refresh() int {
	if r.Found != nil && !r.Found.cheap {
		return 0
	}
	return refreshSeconds
}

// HasErrors reports whether there may be errors of failing keys.
func (r *detailReport) HasErrors() bool {
	return len(r.Queue.Pools) > 0 || slices.ContainsFunc(r.Failing, func(k keyReport) bool { return k.Error != "" })
}

// section is a list of keys on a queue's page.
type section struct {
	Kind, Title, Hint, Empty string
	Keys                     []keyReport
	// Total is the number of keys in that state, or -1 if it is not known.
	Total int
	// Prioritized reports that some of them have a priority other than 0.
	Prioritized bool
	// Attempts reports that it is known how often each of them was handled.
	Attempts bool
	// Queue is the id of the queue, and Actions what can be done with each key.
	Queue   string
	Actions actionSet
}

// Section returns the keys of that kind. Hint says what they are, and empty what it means that there are none.
func (r *detailReport) Section(kind, title, hint, empty string) section {
	s := section{Kind: kind, Title: title, Hint: hint, Empty: empty, Total: -1, Queue: r.Queue.ID, Actions: r.Actions}
	workers, pools := r.Queue.Workers, len(r.Queue.Pools) > 0
	switch kind {
	case "running":
		s.Keys, s.Total = r.Running, max(r.Queue.Processing, workers.Busy)
		s.Actions, s.Attempts = actionSet{}, pools
	case "queued":
		s.Keys, s.Total = r.Queued, r.Queue.Queued
		s.Actions.Retry = false
	case "waiting":
		s.Keys, s.Total = r.Waiting, r.Queue.Waiting
	case "given-up":
		s.Keys, s.Total = r.GivenUp, r.Queue.GivenUp
		s.Actions.Remove = false
	case "failing":
		s.Keys = r.Failing
		if pools {
			s.Total = max(workers.Failing, len(r.Failing))
		}
	case "found":
		s.Keys = r.Found.Keys
	}
	s.Prioritized = slices.ContainsFunc(s.Keys, func(k keyReport) bool { return k.Priority != 0 })
	return s
}

// AnyAction reports whether something can be done with the keys.
func (s section) AnyAction() bool { return s.Actions.Retry || s.Actions.Remove }

// row is a key in a section.
type row struct {
	keyReport
	section
}

// Rows returns the keys with what the rows of a table need beside them.
func (s section) Rows() []row {
	all := make([]row, len(s.Keys))
	for i, k := range s.Keys {
		all[i] = row{k, s}
	}
	return all
}

// HrefKey returns the address of what is known of one key.
func (r row) HrefKey() string { return "?" + url.Values{"queue": {r.Queue}, "key": {r.Key}}.Encode() }
