package workqueue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
)

type pair struct{ namespace, name string }

func TestWarmOperationsDoNotAllocate(t *testing.T) {
	if testkit.RaceEnabled {
		t.Skip("the race detector allocates")
	}
	t.Run("string", func(t *testing.T) { testAllocs(t, func(i int) string { return fmt.Sprint("key ", i) }) })
	t.Run("struct", func(t *testing.T) { testAllocs(t, func(i int) pair { return pair{"namespace", fmt.Sprint(i)} }) })
	t.Run("pointer", func(t *testing.T) { testAllocs(t, func(i int) *int { return &i }) })
	t.Run("any", func(t *testing.T) { testAllocs(t, func(i int) any { return &i }) })
}

func testAllocs[T comparable](t *testing.T, keyOf func(int) T) {
	const n = 100
	var keys [n]T
	for i := range keys {
		keys[i] = keyOf(i)
	}
	zero := func(what string, f func()) {
		t.Helper()
		f() // warms it
		if a := testing.AllocsPerRun(200, f); a != 0 {
			t.Errorf("%s: %v allocations", what, a)
		}
	}
	for _, named := range []bool{false, true} {
		o := options[T]{limiter: workqueue.NewTypedItemExponentialFailureRateLimiter[T](time.Hour, 2*time.Hour)}
		if named {
			o.name, o.provider = "q", silent{}
		}
		q := o.rateLimiting()
		what := func(s string) string { return fmt.Sprintf("%s, metrics: %v", s, named) }
		process := func() {
			for range n {
				key, _ := q.Get()
				q.Done(key)
			}
		}
		zero(what("Add, Get, Done"), func() {
			q.Add(keys[0])
			key, _ := q.Get()
			q.Done(key)
		})
		zero(what("many Add, Get, Done"), func() {
			for _, key := range keys {
				q.Add(key)
			}
			process()
		})
		zero(what("Add while processing"), func() {
			q.Add(keys[0])
			key, _ := q.Get()
			q.Add(key)
			q.Done(key)
			key, _ = q.Get()
			q.Done(key)
		})
		q.Add(keys[0])
		zero(what("Add of a queued key"), func() { q.Add(keys[0]) })
		zero(what("Done of a key that is not held"), func() { q.Done(keys[0]) })
		zero(what("Len"), func() { q.Len() })
		if !named { // The histograms of Stats are copies.
			zero(what("Stats"), func() { q.(workqueue.Extended[T]).Stats() })
		}
		q.AddAfter(keys[1], time.Hour)
		zero(what("AddAfter of a waiting key"), func() { q.AddAfter(keys[1], 2*time.Hour) })
		zero(what("AddAfter of a waiting key, earlier"), func() { q.AddAfter(keys[1], time.Minute) })
		q.AddRateLimited(keys[2])
		zero(what("AddRateLimited, Forget"), func() {
			q.AddRateLimited(keys[2])
			q.NumRequeues(keys[2])
			q.Forget(keys[2])
		})
		q.ShutDown()
	}
}

// Delayed keys that come and go: the heap and its loop keep what they need. (The loop allocates when it
// is started, for a queue in which no key waits, so one does.)
func TestDelayedKeysDoNotAllocate(t *testing.T) {
	if testkit.RaceEnabled {
		t.Skip("the race detector allocates")
	}
	q := workqueue.NewTypedDelayingQueue[int]()
	defer q.ShutDown()
	q.AddAfter(-1, time.Hour)
	cycle := func() {
		for key := range 50 {
			q.AddAfter(key, time.Duration(1+key))
		}
		for range 50 {
			key, _ := q.Get()
			q.Done(key)
		}
	}
	cycle()
	if a := testing.AllocsPerRun(100, cycle); a > 1 {
		t.Errorf("%v allocations for 50 delayed keys", a)
	}
}

// silent is a provider whose metrics do nothing.
type silent struct{}

func (silent) Inc()            {}
func (silent) Dec()            {}
func (silent) Set(float64)     {}
func (silent) Observe(float64) {}

func (silent) NewDepthMetric(string) workqueue.GaugeMetric            { return silent{} }
func (silent) NewAddsMetric(string) workqueue.CounterMetric           { return silent{} }
func (silent) NewLatencyMetric(string) workqueue.HistogramMetric      { return silent{} }
func (silent) NewWorkDurationMetric(string) workqueue.HistogramMetric { return silent{} }
func (silent) NewRetriesMetric(string) workqueue.CounterMetric        { return silent{} }
func (silent) NewUnfinishedWorkSecondsMetric(string) workqueue.SettableGaugeMetric {
	return silent{}
}
func (silent) NewLongestRunningProcessorSecondsMetric(string) workqueue.SettableGaugeMetric {
	return silent{}
}
