package observe

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"
)

// Buckets divide durations into classes by their upper bounds. They do not change. Histograms share them.
type Buckets struct {
	seconds []float64
	// start[n] is the first bucket to which a duration of n bits can belong.
	start [64]uint32
}

// DefaultBuckets are controller-runtime's: powers of ten from 10 ns to 1,000 s.
var DefaultBuckets = NewBuckets([]float64{1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10, 100, 1000})

// HandlerBounds are the upper bounds of the buckets, in seconds, for the times that handlers take.
var HandlerBounds = []float64{
	1e-5, 1e-4, 1e-3, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25,
	60, 150, 300, 600, 1800,
}

// BucketsOf returns the buckets with those upper bounds in seconds, or DefaultBuckets if seconds is nil.
func BucketsOf(seconds []float64) (*Buckets, error) {
	if seconds == nil {
		return DefaultBuckets, nil
	}
	for i, s := range seconds {
		if math.IsNaN(s) || i > 0 && s <= seconds[i-1] {
			return nil, fmt.Errorf("bound %d of the buckets, %v, is not above the one before", i, s)
		}
	}
	return NewBuckets(seconds), nil
}

// NewBuckets returns the buckets with those upper bounds in seconds, which must ascend.
func NewBuckets(seconds []float64) *Buckets {
	b := &Buckets{seconds: slices.Clone(seconds)}
	for n := range b.start {
		i, _ := slices.BinarySearch(b.seconds, time.Duration(uint64(1)<<n>>1).Seconds())
		b.start[n] = uint32(i)
	}
	return b
}

// Histogram counts durations by [Buckets]. It takes memory only when it has counted one.
type Histogram struct {
	buckets *Buckets
	// counts has one more than the buckets, for what is longer than all of them.
	counts []uint64
	// sum is in nanoseconds.
	sum float64
}

func NewHistogram(buckets *Buckets) Histogram { return Histogram{buckets: buckets} }

// Observe counts d. It takes constant time, and allocates when it counts the first duration.
func (h *Histogram) Observe(d time.Duration) {
	if h.counts == nil {
		h.counts = make([]uint64, len(h.buckets.seconds)+1)
	}
	i := 0
	if d > 0 {
		i = int(h.buckets.start[bits.Len64(uint64(d))&63])
	}
	for seconds := d.Seconds(); i < len(h.buckets.seconds) && seconds > h.buckets.seconds[i]; {
		i++
	}
	h.counts[i]++
	h.sum += float64(d)
}

// Times are a workqueue.Histogram, which this package cannot name: callers convert them.
type Times struct {
	Bounds []float64
	Counts []uint64
	Sum    float64
}

// Read returns what was counted so far.
func (h *Histogram) Read() *Times {
	counts := slices.Clone(h.counts)
	if counts == nil {
		counts = make([]uint64, len(h.buckets.seconds)+1)
	}
	return &Times{h.buckets.seconds, counts, h.sum / float64(time.Second)}
}
