package prom

import (
	"runtime"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/keyedqueue/workqueue"
)

// What has ended leaves nothing behind but its counts: no entry of the queue, and few of the gauges.
func TestNothingPilesUp(t *testing.T) {
	registry := prometheus.NewRegistry()
	p := NewProvider(registry, Options{})
	s := p.seriesOf("q")
	for range 3 {
		for range 100 {
			workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[int]{Name: "q", MetricsProvider: p}).ShutDown()
		}
		if _, err := registry.Gather(); err != nil {
			t.Fatal(err)
		}
		if len(s.layers) != 0 || p.layers != 0 {
			t.Errorf("%d entries of queues that have ended are kept, and %d are counted", len(s.layers), p.layers)
		}
	}
	// Nobody keeps the gauges, and nobody scrapes.
	for range 50 {
		for range 100 {
			p.NewDepthMetric("q")
		}
		runtime.GC()
	}
	if n := cap(s.pushed.depth.members); n > 1000 {
		t.Errorf("room for %d gauges", n)
	}
}

// What one scrape has read stays as it is when another one counts the next queue that has ended.
func TestReadValuesStay(t *testing.T) {
	p, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := p.seriesOf("q")
	for round := range 5 {
		q := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[int]{Name: "q", MetricsProvider: p})
		before, _, _ := s.read()
		q.Add(1)
		q.Get()
		q.Done(1)
		q.ShutDown()
		after, _, _ := s.read()
		s.read()
		for _, v := range []*values{before, after} {
			want := uint64(round)
			if v == after {
				want++
			}
			if n := sampleCount(p, v); n != want {
				t.Errorf("round %d: %d times, want %d", round, n, want)
			}
		}
		defer func() {
			if n := sampleCount(p, after); n != uint64(round+1) {
				t.Errorf("what was read in round %d, %d times, has become %d", round, round+1, n)
			}
		}()
	}
}

func sampleCount(p *Provider, v *values) uint64 {
	var h dto.Histogram
	p.buckets.fill(&h, &v.latency)
	return h.GetSampleCount()
}
