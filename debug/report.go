package debug

import (
	"math"
	"strconv"
	"time"

	"github.com/keyedqueue/workqueue"
)

// seconds is a duration, which is a number of seconds in JSON.
type seconds time.Duration

// MarshalJSON returns the number of seconds.
func (s seconds) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, time.Duration(s).Seconds(), 'f', -1, 64), nil
}

// listReport is what the list page tells.
type listReport struct {
	Time        time.Time     `json:"time"`
	Registered  int           `json:"registered"`
	Matching    int           `json:"matching"`
	Queued      int           `json:"queued"`
	Processing  int           `json:"processing"`
	Waiting     int           `json:"waiting"`
	Search      string        `json:"search"`
	Sort        string        `json:"sort"`
	Page        int           `json:"page"`
	Pages       int           `json:"pages"`
	SampleEvery seconds       `json:"sample_seconds"`
	Queues      []queueReport `json:"queues"`
}

// queueReport is what is told of each queue.
type queueReport struct {
	ID             string   `json:"id"`
	Name           string   `json:"name"`
	Queued         int      `json:"queued"`
	Processing     int      `json:"processing"`
	Waiting        int      `json:"waiting"`
	Adds           uint64   `json:"adds"`
	Retries        uint64   `json:"retries"`
	Dropped        uint64   `json:"dropped"`
	UnmatchedDones uint64   `json:"unmatched_dones"`
	ShuttingDown   bool     `json:"shutting_down"`
	Timed          bool     `json:"timed"`
	OldestQueued   seconds  `json:"oldest_queued_seconds"`
	LongestRunning seconds  `json:"longest_running_seconds"`
	UnfinishedWork seconds  `json:"unfinished_work_seconds"`
	Depth          []uint32 `json:"depth"`
	Error          string   `json:"error,omitempty"`
}

func newQueueReport(e *entry, s workqueue.Stats, err string) queueReport {
	return queueReport{
		ID:             e.id,
		Name:           e.name,
		Queued:         s.Queued,
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
		Depth:          e.depth.all(s.Queued),
		Error:          err,
	}
}

// detailReport is what a queue's own page tells.
type detailReport struct {
	Time        time.Time    `json:"time"`
	SampleEvery seconds      `json:"sample_seconds"`
	Queue       queueReport  `json:"queue"`
	Latency     *timesReport `json:"latency"`
	Work        *timesReport `json:"work"`
	keyLists
	limit int
}

// keyLists are the keys of a snapshot.
type keyLists struct {
	Running []keyReport `json:"running"`
	Queued  []keyReport `json:"queued"`
	Waiting []keyReport `json:"waiting"`
	Failing []keyReport `json:"failing"`
}

func newKeyLists[T comparable](s workqueue.Snapshot[T], limit int) keyLists {
	return keyLists{
		Running: newKeyReports(s.Processing, limit),
		Queued:  newKeyReports(s.Queued, limit),
		Waiting: newKeyReports(s.Waiting, limit),
		Failing: newKeyReports(s.Failing, limit),
	}
}

// keyReport is what is told of a key.
type keyReport struct {
	Key      string    `json:"key"`
	Bytes    int       `json:"bytes"`
	Cut      bool      `json:"-"`
	Since    time.Time `json:"since,omitzero"`
	For      *seconds  `json:"for_seconds,omitempty"`
	Due      time.Time `json:"due,omitzero"`
	DueIn    *seconds  `json:"due_in_seconds,omitempty"`
	Again    bool      `json:"again"`
	Requeues int       `json:"requeues"`
}

// newKeyReports cuts keys at limit, because a queue or a limiter of somebody else's may not.
func newKeyReports[T comparable](keys []workqueue.KeySnapshot[T], limit int) []keyReport {
	keys = keys[:min(len(keys), limit)]
	all := make([]keyReport, len(keys))
	for i, k := range keys {
		l := newLabel(keyText(k.Key), maxKey)
		all[i] = keyReport{
			Key: l.Text, Bytes: l.Bytes, Cut: l.Cut,
			Since: k.Since.UTC(), Due: k.Due.UTC(), Again: k.Again, Requeues: k.Requeues,
		}
	}
	return all
}

// tellTimes sets the times that depend on now.
func (k *keyLists) tellTimes(now time.Time) {
	for _, keys := range []*[]keyReport{&k.Running, &k.Queued, &k.Waiting, &k.Failing} {
		if *keys == nil {
			*keys = []keyReport{} // JSON has [], not null
		}
		for i := range *keys {
			key := &(*keys)[i]
			if !key.Since.IsZero() {
				d := seconds(max(0, now.Sub(key.Since)))
				key.For = &d
			}
			if !key.Due.IsZero() {
				d := seconds(max(0, key.Due.Sub(now)))
				key.DueIn = &d
			}
		}
	}
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
