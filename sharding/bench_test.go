package sharding

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
)

// BenchmarkBesideInner measures a queue and the one below it in turn, because on a shared machine only what
// is measured together can be compared, and reports medians of all rounds:
//
//	go test -run '^$' -bench BesideInner -benchtime 300x ./sharding
func BenchmarkBesideInner(b *testing.B) {
	const n = 1000
	keys := make([]namespacedName, n)
	for i := range keys {
		keys[i] = namespacedName{"namespace", fmt.Sprintf("website-%03d", i)}
	}
	newInner := func() workqueue.TypedRateLimitingInterface[namespacedName] {
		return workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[namespacedName]())
	}
	inner := newInner()
	sharded := mustQueue(newInner(), holdingAll(256), QueueConfig[namespacedName]{Keys: noKeys[namespacedName]})
	queues := []workqueue.TypedRateLimitingInterface[namespacedName]{inner, sharded}
	adds, cycles := make([][]float64, 2), make([][]float64, 2)
	for b.Loop() {
		for i, q := range queues {
			began := time.Now()
			for _, key := range keys {
				q.Add(key)
			}
			added := time.Since(began)
			for range keys {
				key, _ := q.Get()
				q.Done(key)
			}
			adds[i] = append(adds[i], float64(added.Nanoseconds())/n)
			cycles[i] = append(cycles[i], float64(time.Since(began).Nanoseconds())/n)
		}
	}
	median := func(times []float64) float64 {
		slices.Sort(times)
		return times[len(times)/2]
	}
	b.ReportMetric(0, "ns/op") // says nothing
	b.ReportMetric(median(adds[0]), "inner-Add-ns")
	b.ReportMetric(median(adds[1])-median(adds[0]), "more-Add-ns")
	b.ReportMetric(median(cycles[0]), "inner-cycle-ns")
	b.ReportMetric(median(cycles[1])-median(cycles[0]), "more-cycle-ns")
}

// A cycle allocates nothing, and a handler's context only itself.
func TestFewAllocations(t *testing.T) {
	q := mustQueue(workqueue.NewTypedRateLimitingQueue(
		workqueue.DefaultTypedControllerRateLimiter[namespacedName]()),
		holdingAll(256), QueueConfig[namespacedName]{Keys: noKeys[namespacedName]})
	key := namespacedName{"namespace", "name"}
	cycle := func(withLease bool) float64 {
		return testing.AllocsPerRun(1000, func() {
			q.Add(key)
			got, _ := q.Get()
			if withLease {
				_, release := q.Lease(t.Context(), got)
				defer release()
			}
			q.Done(got)
		})
	}
	if n := cycle(false); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if n := cycle(true); n > 12 {
		t.Errorf("%v allocations with Lease", n)
	}
}
