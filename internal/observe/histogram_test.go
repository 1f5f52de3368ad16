package observe

import (
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"
)

// A duration belongs to the first bucket whose bound is not below the number of seconds that it is, which
// is what a comparison of seconds as floats finds.
func TestBuckets(t *testing.T) {
	for name, bounds := range map[string][]float64{
		"powers of ten": {1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10, 100, 1000},
		"fine":          {0.1, 0.100000001, 0.1000000015, 0.2, 0.3},
		"odd":           {-1, 0, 1e-10, 1e-9, 2.5e-9, 1, 9e9, 1e18, math.Inf(1)},
		"one":           {1},
		"none":          {},
	} {
		t.Run(name, func(t *testing.T) {
			check := func(d time.Duration) {
				t.Helper()
				checkBucket(t, bounds, d)
			}
			for _, b := range bounds {
				for d := -3; d <= 3; d++ {
					if math.Abs(b) < 9e9 {
						check(time.Duration(b*1e9) + time.Duration(d))
					}
				}
			}
			rng := rand.New(rand.NewPCG(1, 2))
			for range 1000 {
				check(time.Duration(rng.Uint64()) >> rng.IntN(64))
			}
			for _, d := range []time.Duration{math.MinInt64, -1, 0, 1, math.MaxInt64} {
				check(d)
			}
		})
	}
}

// checkBucket asserts that a histogram with those bounds counts d where it belongs.
func checkBucket(t *testing.T, bounds []float64, d time.Duration) {
	t.Helper()
	h := Histogram{buckets: NewBuckets(bounds)}
	h.Observe(d)
	times := h.Read()
	got, counts, sum := times.Bounds, times.Counts, times.Sum
	want := sort.Search(len(bounds), func(i int) bool { return d.Seconds() <= bounds[i] })
	if counts[want] != 1 || len(counts) != len(bounds)+1 || !slices.Equal(got, bounds) {
		t.Fatalf("%v: %v, want it at %d", d, counts, want)
	}
	if sum != float64(d)/1e9 {
		t.Fatalf("%v: the sum is %v", d, sum)
	}
}

// FuzzBuckets tries four bounds that ascend, and the durations at each of them.
func FuzzBuckets(f *testing.F) {
	f.Fuzz(func(t *testing.T, a, b, c, d float64, other int64) {
		bounds := []float64{a, b, c, d}
		slices.Sort(bounds)
		buckets, err := BucketsOf(slices.Clone(bounds))
		ascend := !math.IsNaN(bounds[0]) // which is where NaN is sorted to
		for i := range bounds[1:] {
			ascend = ascend && bounds[i] < bounds[i+1]
		}
		if (err == nil) != ascend {
			t.Fatalf("BucketsOf(%v): %v", bounds, err)
		}
		if !ascend {
			return
		}
		checkBucket(t, bounds, time.Duration(other))
		for _, bound := range buckets.seconds {
			if math.Abs(bound) < 9e9 {
				for n := range time.Duration(3) {
					checkBucket(t, bounds, time.Duration(bound*1e9)+n-1)
				}
			}
		}
	})
}

func TestHistogramAddsUp(t *testing.T) {
	h := Histogram{buckets: NewBuckets([]float64{1, 2})}
	if got := h.Read(); !slices.Equal(got.Counts, []uint64{0, 0, 0}) || got.Sum != 0 {
		t.Errorf("a new one has %v", got)
	}
	for range 3 {
		h.Observe(time.Second)
		h.Observe(3 * time.Second)
	}
	h.Read().Counts[0]++ // a copy
	if got := h.Read(); !slices.Equal(got.Counts, []uint64{3, 0, 3}) || got.Sum != 12 {
		t.Errorf("got %v", got)
	}
}

func TestBucketsOf(t *testing.T) {
	if d, err := BucketsOf(nil); d != DefaultBuckets || err != nil {
		t.Errorf("without bounds: %v, %v", d, err)
	}
	for _, bad := range [][]float64{{1, 1}, {2, 1}, {math.NaN()}, {1, math.NaN()}, make([]float64, 1<<16)} {
		if _, err := BucketsOf(bad); err == nil || !strings.Contains(err.Error(), "bucket") {
			t.Errorf("%d bounds: %v", len(bad), err)
		}
	}
}
