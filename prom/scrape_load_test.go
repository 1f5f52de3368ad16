package prom_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/prom"
)

// While workers are busy and queues with the same name come and go, the numbers of each scrape are
// consistent, and no counter falls.
func TestScrapeUnderLoad(t *testing.T) {
	for name, keys := range map[string]int{
		"many keys": 1000, // mostly added again while they are queued
		"few keys":  3,    // mostly added again while they are held
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			registry := prometheus.NewPedanticRegistry()
			p := prom.NewProvider(registry, prom.Options{NativeHistogramBucketFactor: 2})
			stop := make(chan struct{})
			var all sync.WaitGroup
			all.Go(func() { keepBusy(p, "steady", keys, stop) })
			all.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						brief := make(chan struct{})
						time.AfterFunc(time.Millisecond, func() { close(brief) })
						keepBusy(p, "brief", keys, brief)
					}
				}
			})
			all.Go(func() { // A second Prometheus. What one has gathered must not change when the other gathers.
				for deadline := time.Now().Add(500 * time.Millisecond); time.Now().Before(deadline); {
					families, err := registry.Gather()
					if err != nil {
						t.Error(err)
					}
					wantConsistent(t, families, "steady", keys)
				}
			})
			last := map[string]float64{}
			for deadline := time.Now().Add(500 * time.Millisecond); time.Now().Before(deadline); {
				families, err := registry.Gather()
				if err != nil {
					t.Fatal(err)
				}
				wantConsistent(t, families, "steady", keys)
				wantConsistent(t, families, "brief", keys)
				wantGrowing(t, families, last)
			}
			close(stop)
			all.Wait()
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			wantGrowing(t, families, last)
			for _, name := range []string{"steady", "brief"} {
				v := numbers(families, name)
				if v.adds == 0 || v.adds != v.got || v.got != v.done || find(families, "depth", name) != nil {
					t.Errorf("%s in the end: %+v, want all of its adds done, and no depth", name, v)
				}
			}
		})
	}
}

// keepBusy has workers and a producer work on a queue until stop is closed.
func keepBusy(p *prom.Provider, name string, keys int, stop <-chan struct{}) {
	q := workqueue.NewTypedRateLimitingQueueWithConfig(nil,
		workqueue.TypedRateLimitingQueueConfig[int]{Name: name, MetricsProvider: p})
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for key, down := q.Get(); !down; key, down = q.Get() {
				q.Done(key)
			}
		})
	}
	for i := 0; ; i++ {
		select {
		case <-stop:
			q.ShutDownWithDrain()
			workers.Wait()
			return
		default:
			q.Add(i % keys)
			q.AddAfter(i%keys, time.Duration(i%3)*time.Microsecond)
		}
	}
}

type seen struct{ depth, adds, got, done float64 }

func numbers(families []*dto.MetricFamily, name string) seen {
	return seen{
		depth: find(families, "depth", name).GetGauge().GetValue(),
		adds:  find(families, "adds_total", name).GetCounter().GetValue(),
		got:   float64(find(families, "queue_duration_seconds", name).GetHistogram().GetSampleCount()),
		done:  float64(find(families, "work_duration_seconds", name).GetHistogram().GetSampleCount()),
	}
}

// wantConsistent fails unless these are numbers of one moment.
func wantConsistent(t *testing.T, families []*dto.MetricFamily, name string, keys int) {
	t.Helper()
	if v := numbers(families, name); v.depth != v.adds-v.got || v.depth > float64(keys) || v.done > v.got ||
		v.got > v.done+4 {
		t.Errorf("%s: %+v, want as depth what was added and not got, and no more than four keys held", name, v)
	}
}

func wantGrowing(t *testing.T, families []*dto.MetricFamily, last map[string]float64) {
	t.Helper()
	for _, f := range families {
		for _, m := range f.GetMetric() {
			v := m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			id := fmt.Sprint(f.GetName(), m.GetLabel())
			if v < last[id] {
				t.Errorf("%s fell from %v to %v", id, last[id], v)
			}
			last[id] = v
		}
	}
}

// A reader that stops leaves nothing locked. (TestScrapeUnderLoad has two readers at once.)
func TestSlowScrape(t *testing.T) {
	b := newBench(prom.Options{})
	for i := range manyNames {
		defer b.queue(fmt.Sprint("name ", i)).ShutDown()
	}
	for range 50 {
		q := b.queue("q")
		q.Add("a")
		process(t, q, 1)
		q.ShutDown()
	}
	stuck := make(chan prometheus.Metric)
	collected := make(chan struct{})
	go func() {
		b.provider.Collect(stuck)
		close(collected)
	}()
	<-stuck // and the next one has to wait
	b.queue("q").ShutDown()
	b.get(t, "depth", "q")
	received := 1
	for open := true; open; {
		select {
		case <-stuck:
			received++
		case <-collected:
			open = false
		}
	}
	// The queues of q have ended, so it has only its counters and histograms.
	if want := 11*manyNames + 6; received != want {
		t.Errorf("the slow scrape got %d metrics, want %d", received, want)
	}
}

// manyNames is a number of names whose metrics are not sent all at once.
const manyNames = 500
