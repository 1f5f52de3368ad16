package main

import (
	"math"
	"strings"
	"testing"
)

const exposition = `# TYPE go_goroutines gauge
go_goroutines 42
# TYPE workqueue_queue_duration_seconds histogram
workqueue_queue_duration_seconds_bucket{name="job",le="0.01"} 90
workqueue_queue_duration_seconds_bucket{name="job",le="+Inf"} 100
workqueue_queue_duration_seconds_sum{name="job"} 2
workqueue_queue_duration_seconds_count{name="job"} 100
workqueue_queue_duration_seconds_bucket{name="idle",le="0.01"} 100
workqueue_queue_duration_seconds_bucket{name="idle",le="+Inf"} 100
workqueue_queue_duration_seconds_sum{name="idle"} 0.01
workqueue_queue_duration_seconds_count{name="idle"} 100
`

func TestLatency(t *testing.T) {
	f, err := parseMetrics(strings.NewReader(exposition))
	if err != nil {
		t.Fatal(err)
	}
	if n := f.value("go_goroutines"); n != 42 {
		t.Errorf("%v goroutines, want 42", n)
	}
	if l := f.latency(); l.keys != 200 || math.Abs(l.mean-0.01005) > 1e-9 {
		t.Errorf("got %+v, want 200 keys with a mean of 0.01005 s", l)
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
