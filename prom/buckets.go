package prom

import (
	"fmt"
	"math"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// buckets are what the queues' histograms divide times by, and how classic and native buckets are made
// of that.
//
// A queue's histogram has one list of upper bounds. So that both kinds can be made of it exactly, it has
// all bounds of both: then each classic and each native bucket is a number of neighbours in it. Both kinds
// and the queue's own mean the same by a bound, the longest time that still belongs to the bucket.
//
// Native buckets have no end. But the times are whole nanoseconds, of which an int64 can count 2³³ s, so
// none is outside of the native buckets between 2⁻³⁰ s, which is less than a nanosecond, and 2³⁴ s. What
// is zero belongs to the zero bucket; so does what is negative, which comes only from a clock that was set
// back.
type buckets struct {
	// bounds are all the upper bounds, in seconds.
	bounds []float64
	// classic are those of the classic buckets, the i-th of which ends with bounds[ends[i]].
	classic []float64
	ends    []int
	// empty are the classic buckets of no times. All histograms share those below their shortest time,
	// which are many: most of what a scrape takes memory for are buckets.
	empty []*dto.Bucket

	native bool
	// schema says that there are 2^schema native buckets from a power of two to the next.
	schema int32
	// fractions are the upper bounds from one to the next power of two.
	fractions []float64
	// index has the numbers of the native buckets that the bounds, and last what is above them, belong to.
	index []int32
}

const (
	minSchema, maxSchema = -4, 8
	// lowestExponent and highestExponent are powers of two with all positive times in between.
	lowestExponent, highestExponent = -30, 34
	// zeroBucket is a number that no native bucket has.
	zeroBucket = math.MinInt32
)

// kubernetesBuckets are multiplied up, like Kubernetes' own: then even the last digits of the label le are
// the same, which must be equal for buckets of several programs to be added.
var kubernetesBuckets = prometheus.ExponentialBuckets(10e-9, 10, 10)

func newBuckets(classic []float64, nativeFactor float64) (*buckets, error) {
	if classic == nil {
		classic = kubernetesBuckets
	}
	if n := len(classic); n > 0 && math.IsInf(classic[n-1], 1) {
		classic = classic[:n-1] // There is always this one.
	}
	for i, bound := range classic {
		if math.IsNaN(bound) || math.IsInf(bound, 0) || i > 0 && bound <= classic[i-1] {
			return nil, fmt.Errorf("the bounds in Buckets must ascend and be finite, but the one at %d is %v", i, bound)
		}
	}
	b := &buckets{bounds: slices.Concat([]float64{}, classic), classic: slices.Clone(classic)}
	switch {
	case nativeFactor > 1:
		b.native = true
		b.schema = schemaFor(nativeFactor)
		b.fractions = fractionsOf(b.schema)
		b.bounds = append(b.bounds, 0)
		for i := b.lowest(); i <= b.highest(); i++ {
			b.bounds = append(b.bounds, b.bound(i))
		}
		slices.Sort(b.bounds)
		b.bounds = slices.Compact(b.bounds)
	case nativeFactor != 0:
		return nil, fmt.Errorf("the NativeHistogramBucketFactor must be greater than 1, but is %v", nativeFactor)
	}
	for i, bound := range b.classic {
		end, _ := slices.BinarySearch(b.bounds, bound)
		b.ends = append(b.ends, end)
		b.empty = append(b.empty, &dto.Bucket{CumulativeCount: new(uint64), UpperBound: &b.classic[i]})
	}
	if b.native {
		b.numberNative()
	}
	return b, nil
}

// schemaFor returns the schema of the fewest native buckets that grow by no more than factor. The finest
// that there is grows by 0.3 %.
func schemaFor(factor float64) int32 {
	for schema := int32(minSchema); schema < maxSchema; schema++ {
		if math.Exp2(math.Exp2(-float64(schema))) <= factor {
			return schema
		}
	}
	return maxSchema
}

// fractionsOf returns the upper bounds of a schema's native buckets, from one to the next power of two. They
// are rounded as client_golang has them: each schema has the bounds of the one before, and a multiple of each.
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

// bound returns the upper bound of the native bucket of that number.
func (b *buckets) bound(i int32) float64 {
	if b.schema < 0 {
		return math.Ldexp(1, int(i)<<-b.schema)
	}
	return math.Ldexp(b.fractions[i&(1<<b.schema-1)], int(i)>>b.schema)
}

// lowest is the number of the last native bucket that is below all positive times.
func (b *buckets) lowest() int32 {
	return int32(math.Floor(math.Ldexp(lowestExponent, int(b.schema))))
}

// highest is the number of the last native bucket that a time can belong to.
func (b *buckets) highest() int32 {
	return int32(math.Ceil(math.Ldexp(highestExponent, int(b.schema))))
}

func (b *buckets) numberNative() {
	b.index = make([]int32, len(b.bounds)+1)
	i := b.lowest()
	for n := range b.index {
		if n < len(b.bounds) && b.bounds[n] <= 0 {
			b.index[n] = zeroBucket
			continue
		}
		for i <= b.highest() && (n == len(b.bounds) || b.bounds[n] > b.bound(i)) {
			i++
		}
		b.index[n] = i
	}
}

// zeros returns the counts of no times.
func (b *buckets) zeros() []uint64 { return make([]uint64, len(b.bounds)+1) }

// fill makes h what Prometheus is told of those times.
func (b *buckets) fill(h *dto.Histogram, times *histogram) {
	counts := times.counts
	if counts == nil {
		counts = b.zeros()
	}
	type bucket struct {
		dto.Bucket
		count uint64
	}
	var filled []bucket // after those that are empty, as the counts are cumulative
	next, empty, count := 0, 0, uint64(0)
	h.Bucket = slices.Clone(b.empty)
	for i, end := range b.ends {
		for ; next <= end; next++ {
			count += counts[next]
		}
		if count == 0 {
			empty++
			continue
		}
		if filled == nil {
			filled = make([]bucket, len(b.ends)-empty)
		}
		one := &filled[i-empty]
		one.count = count
		one.CumulativeCount, one.UpperBound = &one.count, &b.classic[i]
		h.Bucket[i] = &one.Bucket
	}
	for ; next < len(counts); next++ {
		count += counts[next]
	}
	h.SampleCount, h.SampleSum = &count, &times.sum
	if b.native {
		b.addNative(h, counts)
	}
}

// addNative adds the native buckets to h. Those that are not empty come in spans, and each as the
// difference to the one before.
func (b *buckets) addNative(h *dto.Histogram, counts []uint64) {
	schema, threshold, zero := b.schema, prometheus.DefNativeHistogramZeroThreshold, uint64(0)
	h.Schema, h.ZeroThreshold, h.ZeroCount = &schema, &threshold, &zero
	var e spanEncoder
	for n := 0; n < len(counts); {
		i, count := b.index[n], uint64(0)
		for ; n < len(counts) && b.index[n] == i; n++ {
			count += counts[n]
		}
		if i == zeroBucket {
			zero = count
		} else if count > 0 {
			e.add(i, int64(count))
		}
	}
	h.PositiveSpan, h.PositiveDelta = e.spans, e.deltas
}

// spanEncoder writes down native buckets in ascending order.
type spanEncoder struct {
	spans  []*dto.BucketSpan
	deltas []int64
	// next is the number of the bucket after the last one, which had that count.
	next int32
	last int64
}

func (e *spanEncoder) add(i int32, count int64) {
	if gap := i - e.next; len(e.spans) == 0 || gap > maxGap {
		e.spans = append(e.spans, &dto.BucketSpan{Offset: &gap, Length: new(uint32)})
		e.next = i
	}
	for e.next < i {
		e.push(0)
	}
	e.push(count)
}

func (e *spanEncoder) push(count int64) {
	*e.spans[len(e.spans)-1].Length++
	e.deltas = append(e.deltas, count-e.last)
	e.last = count
	e.next++
}

// maxGap is the number of empty buckets that cost less than the span that would leave them out.
const maxGap = 2
