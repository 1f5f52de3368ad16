package prom

import (
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/metrics"
)

// buckets describe the histograms, and turn those of the queues into Prometheus' classic and native ones.
//
// A queue counts by one list of bounds. It contains the bounds of all classic and all native buckets, so each
// of these is the sum of neighbours in the list, and both kinds are exact.
type buckets struct {
	// bounds are all upper bounds, in seconds, ascending.
	bounds []float64
	// classic are the bounds of the classic buckets; the i-th one ends at bounds[ends[i]].
	classic []float64
	ends    []int
	// native is nil without native buckets.
	native *nativeBuckets
}

// kubernetesBuckets come from the same function as Kubernetes' own, and so have the same rounding errors. The
// label le must be equal to the last digit for Prometheus to add up the buckets of several programs.
var kubernetesBuckets = prometheus.ExponentialBuckets(10e-9, 10, 10)

// controllerRuntimeBuckets and controllerRuntimePoolBuckets are controller-runtime's for queues and
// reconcilers.
var (
	controllerRuntimeBuckets     = prometheus.ExponentialBuckets(10e-9, 10, 12)
	controllerRuntimePoolBuckets = []float64{
		0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1,
		1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60,
	}
)

// farBounds are further bounds by which queues count without native buckets, for those who look at the queue
// itself, as package debug does: a backlog of half an hour is longer than Kubernetes' last bound, 10 s.
var farBounds = []float64{30, 60, 300, 600, 1800, 3600}

func newBuckets(classic []float64, nativeFactor float64) (*buckets, error) {
	if n := len(classic); n > 0 && math.IsInf(classic[n-1], 1) {
		classic = classic[:n-1] // Every histogram has this one.
	}
	if err := metrics.CheckBounds(classic); err != nil {
		return nil, fmt.Errorf("the bounds in Buckets %w", err)
	}
	b := &buckets{bounds: append([]float64{}, classic...), classic: slices.Clone(classic)}
	switch {
	case nativeFactor > 1:
		b.native = newNativeBuckets(nativeFactor)
		b.bounds = append(append(b.bounds, 0), b.native.bounds...)
		slices.Sort(b.bounds)
		b.bounds = slices.Compact(b.bounds)
	case nativeFactor == 0:
		for _, bound := range farBounds {
			if n := len(b.bounds); n == 0 || bound > b.bounds[n-1] {
				b.bounds = append(b.bounds, bound)
			}
		}
	default:
		return nil, fmt.Errorf("the NativeHistogramBucketFactor must be greater than 1, but is %v", nativeFactor)
	}
	for _, bound := range b.classic {
		end, _ := slices.BinarySearch(b.bounds, bound)
		b.ends = append(b.ends, end)
	}
	return b, nil
}

// cachedHistogram is a histogram as Prometheus has it, which is kept until its times change.
type cachedHistogram struct {
	times     *workqueue.Histogram
	histogram *dto.Histogram
}

// cached returns histogram(times), or what last keeps if that is the same. It must not be changed.
func (b *buckets) cached(last *atomic.Pointer[cachedHistogram], times *workqueue.Histogram) *dto.Histogram {
	if times == nil {
		return b.histogram(nil)
	}
	if kept := last.Load(); kept != nil && slices.Equal(kept.times.Counts, times.Counts) &&
		slices.Equal(kept.times.Bounds, times.Bounds) {
		return kept.histogram
	}
	now := &cachedHistogram{times, b.histogram(times)}
	last.Store(now)
	return now.histogram
}

// histogram returns times, which may be nil, as Prometheus has it.
func (b *buckets) histogram(times *workqueue.Histogram) *dto.Histogram {
	if times == nil {
		times = &workqueue.Histogram{Bounds: b.bounds, Counts: make([]uint64, len(b.bounds)+1)}
	}
	b = b.fitting(times)
	type bucket struct {
		dto.Bucket
		count uint64
	}
	// One piece of memory, because a scrape makes many; the last one is +Inf.
	all := make([]bucket, len(b.ends)+1)
	h := &dto.Histogram{Bucket: make([]*dto.Bucket, len(b.ends)), SampleSum: &times.Sum}
	next, count := 0, uint64(0)
	for i, end := range b.ends {
		for ; next <= end; next++ {
			count += times.Counts[next]
		}
		all[i].count = count
		all[i].CumulativeCount, all[i].UpperBound = &all[i].count, &b.classic[i]
		h.Bucket[i] = &all[i].Bucket
	}
	for ; next < len(times.Counts); next++ {
		count += times.Counts[next]
	}
	all[len(b.ends)].count = count
	h.SampleCount = &all[len(b.ends)].count
	if b.native != nil {
		b.native.addTo(h, b.bounds, times.Counts)
	}
	return h
}

// fitting returns b or, if the sources of times have other bounds, as a controller has whose page is over
// this provider, buckets with theirs, without native ones.
func (b *buckets) fitting(times *workqueue.Histogram) *buckets {
	if slices.Equal(times.Bounds, b.bounds) {
		return b
	}
	theirs, err := newBuckets(times.Bounds, 0)
	if err != nil { // Prometheus has no buckets with such bounds. The sums are right.
		return new(buckets)
	}
	return theirs
}

// times is the inverse of histogram, for one whose classic buckets are all of b.bounds. It returns nil for
// nil.
func (b *buckets) times(h *dto.Histogram) *workqueue.Histogram {
	if h == nil {
		return nil
	}
	times := &workqueue.Histogram{Bounds: b.bounds, Counts: make([]uint64, len(b.bounds)+1),
		Sum: h.GetSampleSum()}
	before := uint64(0)
	for i := range b.bounds {
		count := h.Bucket[i].GetCumulativeCount()
		times.Counts[i] = count - before
		before = count
	}
	times.Counts[len(b.bounds)] = h.GetSampleCount() - before
	return times
}

// nativeBuckets are the buckets of a native histogram that times can fall into. The bucket of index i ends at
// 2^(i/2^schema) seconds.
//
// Times are whole nanoseconds in an int64, so all positive ones lie between 2⁻³⁰ s, which is less than a
// nanosecond, and 2³⁴ s. Zero is in the zero bucket, and so are negative times, which come from a clock that
// was set back.
type nativeBuckets struct {
	schema int32
	// bounds are the upper bounds in seconds. The first one is that of the bucket with index lowest.
	bounds []float64
	lowest int32
}

const (
	minSchema, maxSchema            = -4, 8
	lowestExponent, highestExponent = -30, 34
)

// newNativeBuckets returns the coarsest buckets that grow by no more than factor from one to the next. The
// finest ones grow by 0.3 %.
func newNativeBuckets(factor float64) *nativeBuckets {
	n := &nativeBuckets{schema: minSchema}
	for n.schema < maxSchema && math.Exp2(math.Exp2(-float64(n.schema))) > factor {
		n.schema++
	}
	n.lowest = int32(math.Floor(math.Ldexp(lowestExponent, int(n.schema))))
	highest := int32(math.Ceil(math.Ldexp(highestExponent, int(n.schema))))
	fractions := fractionsOf(n.schema)
	for i := n.lowest; i <= highest; i++ {
		if n.schema < 0 {
			n.bounds = append(n.bounds, math.Ldexp(1, int(i)<<-n.schema))
		} else {
			n.bounds = append(n.bounds, math.Ldexp(fractions[i&(1<<n.schema-1)], int(i)>>n.schema))
		}
	}
	return n
}

// fractionsOf returns the bounds from one to the next power of two. They are rounded as in client_golang: the
// bounds of a schema are those of the one before, and in between a multiple of each.
func fractionsOf(schema int32) []float64 {
	bounds := []float64{1}
	for s := int32(1); s <= schema; s++ {
		factor := math.Exp2(math.Exp2(-float64(s)))
		var finer []float64
		for _, bound := range bounds {
			finer = append(finer, bound, bound*factor)
		}
		bounds = finer
	}
	return bounds
}

// maxGap is the number of empty buckets in a row that take less space than a new span.
const maxGap = 2

// addTo adds the native buckets to h. The i-th of counts has the times up to bounds[i], and the last one
// those above. Prometheus encodes buckets as spans of consecutive ones, and each count as the difference from
// the one before.
func (n *nativeBuckets) addTo(h *dto.Histogram, bounds []float64, counts []uint64) {
	schema, threshold, zeros := n.schema, prometheus.DefNativeHistogramZeroThreshold, uint64(0)
	h.Schema, h.ZeroThreshold, h.ZeroCount = &schema, &threshold, &zeros
	next := 0 // in counts
	for ; next < len(bounds) && bounds[next] <= 0; next++ {
		zeros += counts[next]
	}
	var span *dto.BucketSpan
	end, last := int32(0), int64(0) // the index after the last bucket, and its count
	push := func(count int64) {
		*span.Length++
		h.PositiveDelta = append(h.PositiveDelta, count-last)
		last = count
		end++
	}
	for i, bound := range n.bounds {
		count := uint64(0)
		for ; next < len(bounds) && bounds[next] <= bound; next++ {
			count += counts[next]
		}
		if count == 0 {
			continue
		}
		index := n.lowest + int32(i)
		if gap := index - end; span == nil || gap > maxGap {
			span = &dto.BucketSpan{Offset: &gap, Length: new(uint32)}
			h.PositiveSpan = append(h.PositiveSpan, span)
			end = index
		}
		for end < index {
			push(0)
		}
		push(int64(count))
	}
}
