package main

import (
	"math"
	"strings"
	"testing"
)

const exposition = `# TYPE go_goroutines gauge
go_goroutines 42
# TYPE workqueue_queue_duration_seconds histogram
workqueue_queue_duration_seconds_bucket{name="job",le="0.001"} 50
workqueue_queue_duration_seconds_bucket{name="job",le="0.01"} 90
workqueue_queue_duration_seconds_bucket{name="job",le="+Inf"} 100
workqueue_queue_duration_seconds_sum{name="job"} 2
workqueue_queue_duration_seconds_count{name="job"} 100
workqueue_queue_duration_seconds_bucket{name="idle",le="0.001"} 100
workqueue_queue_duration_seconds_bucket{name="idle",le="0.01"} 100
workqueue_queue_duration_seconds_bucket{name="idle",le="+Inf"} 100
workqueue_queue_duration_seconds_sum{name="idle"} 0.01
workqueue_queue_duration_seconds_count{name="idle"} 100
`

func TestQueueLatency(t *testing.T) {
	f, err := parseMetrics(strings.NewReader(exposition))
	if err != nil {
		t.Fatal(err)
	}
	if n := f.value("go_goroutines"); n != 42 {
		t.Errorf("%v goroutines, want 42", n)
	}
	job, all, none := f.queueLatency("job"), f.queueLatency(""), f.queueLatency("other")
	for _, test := range []struct {
		name      string
		got, want float64
	}{
		{"job mean", job.mean(), 0.02},
		{"job p50", job.quantile(0.5), 0.001},
		{"job p25", job.quantile(0.25), 0.0005}, // Half-way through the first bucket.
		{"job p70", job.quantile(0.7), 0.0055},  // Half-way through the second.
		{"job p99", job.quantile(0.99), 0.01},   // Above the highest finite bound.
		{"all keys", float64(all.count), 200},
		{"all p50", all.quantile(0.5), 0.001 * 100 / 150},
		{"no keys", float64(none.count), 0},
	} {
		if math.Abs(test.got-test.want) > 1e-9 {
			t.Errorf("%s: got %v, want %v", test.name, test.got, test.want)
		}
	}
	if !math.IsNaN(none.quantile(0.5)) {
		t.Error("a queue without keys has no quantile")
	}
}

func TestDuration(t *testing.T) {
	for seconds, want := range map[float64]string{2e-6: "2 µs", 1.2345e-2: "12.3 ms", 3.21: "3.21 s"} {
		if got := duration(seconds); got != want {
			t.Errorf("duration(%v) = %q, want %q", seconds, got, want)
		}
	}
	if got := duration(math.NaN()); got != "–" {
		t.Errorf("duration(NaN) = %q", got)
	}
}

func TestMedian(t *testing.T) {
	if m := median([]float64{9, 1, 5}); m != 5 {
		t.Errorf("the median of three is %v, want 5", m)
	}
	if m := median([]float64{4, 1, 2, 9}); m != 3 {
		t.Errorf("the median of four is %v, want 3", m)
	}
}
