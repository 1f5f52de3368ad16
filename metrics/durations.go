package metrics

import (
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/observe"
)

// Durations counts times for a [workqueue.Histogram]. It is for queues of other packages, and not safe for
// concurrent use.
type Durations struct{ counts observe.Histogram }

// NewDurations returns Durations without any. The bounds are those of a [workqueue.StatsProvider]: they must
// ascend and be finite.
func NewDurations(bounds []float64) (*Durations, error) {
	buckets, err := observe.BucketsOf(bounds)
	if err != nil {
		return nil, err
	}
	return &Durations{observe.NewHistogram(buckets)}, nil
}

// Observe counts a time. One below zero counts as zero.
func (d *Durations) Observe(t time.Duration) { d.counts.Observe(max(t, 0)) }

// Read returns a copy of the counts.
func (d *Durations) Read() *workqueue.Histogram { return (*workqueue.Histogram)(d.counts.Read()) }
