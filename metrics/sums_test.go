package metrics

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/worker"
)

// statsSource returns a statsSource whose numbers are always st.
func statsSource(st workqueue.Stats) func() workqueue.Stats {
	return func() workqueue.Stats { return st }
}

// Everything that Stats has is added up, except for the two longest times, the name, the state, and what all
// processes that share a queue see of it.
func TestEveryField(t *testing.T) {
	full := func(n int) workqueue.Stats {
		var st workqueue.Stats
		v := reflect.ValueOf(&st).Elem()
		for i := range v.NumField() {
			switch f := v.Field(i); f.Kind() {
			case reflect.Int, reflect.Int64:
				f.SetInt(int64(n))
			case reflect.Uint64:
				f.SetUint(uint64(n))
			}
		}
		st.Latency = &workqueue.Histogram{Bounds: []float64{1}, Counts: []uint64{uint64(n), 1}, Sum: float64(n)}
		st.WorkDuration = &workqueue.Histogram{Bounds: []float64{1}, Counts: []uint64{2, uint64(n)},
			Sum: float64(n)}
		shared := &leasing.Stats{CallDuration: st.Latency}
		v = reflect.ValueOf(shared).Elem()
		for i := range v.NumField() {
			switch f := v.Field(i); f.Kind() {
			case reflect.Int:
				f.SetInt(int64(n))
			case reflect.Uint64:
				f.SetUint(uint64(n))
			}
		}
		st.Shared = shared
		st.ByPriority = &workqueue.PriorityDepths{Depths: []workqueue.PriorityDepth{{Priority: 1, Queued: n}},
			Others: n}
		return st
	}
	one, two := full(3), full(4)
	s := NewQueueSet()
	s.Watch("q", statsSource(one))
	s.Watch("q", statsSource(two))
	want := full(7)
	want.OldestQueued, want.LongestRunning = 4, 4
	want.Latency.Counts, want.WorkDuration.Counts = []uint64{7, 2}, []uint64{4, 7}
	// What processes see of a queue that they share is the same for all of them.
	want.Queued, want.Blocked, want.Processing, want.Again, want.Waiting, want.Failing = 4, 4, 4, 4, 4, 4
	sharedOf(&want).GivenUp, sharedOf(&want).Repaired = 4, 4
	for range 2 {
		if got := slices.Collect(s.All()); len(got) != 1 || !got[0].Live || !reflect.DeepEqual(got[0].Sum, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	if !reflect.DeepEqual(one, full(3)) || !reflect.DeepEqual(two, full(4)) {
		t.Error("adding has changed the numbers of a statsSource")
	}
}

// A queue has ended when it is shut down and has no key.
func TestEndOfAQueue(t *testing.T) {
	for _, c := range []struct {
		st   workqueue.Stats
		live bool
	}{
		{workqueue.Stats{}, true},
		{workqueue.Stats{ShuttingDown: true}, false},
		{workqueue.Stats{ShuttingDown: true, Queued: 1}, true},
		{workqueue.Stats{ShuttingDown: true, Processing: 1}, true},
		{workqueue.Stats{ShuttingDown: true, Waiting: 1}, true},
	} {
		s := NewQueueSet()
		s.Watch("q", statsSource(c.st))
		if live := slices.Collect(s.All())[0].Live; live != c.live {
			t.Errorf("%+v: live = %v", c.st, live)
		}
	}
}

// A queue that has ended, or a process that has left a shared one, leaves its counters, and nothing that
// still changes: its priorities do not take the places of others, and its pause does not count.
func TestWhatStaysOfEndedQueues(t *testing.T) {
	s := NewQueueSet()
	for priority, down := range []bool{true, false} {
		s.Watch("q", statsSource(workqueue.Stats{
			ShuttingDown: down, Paused: down,
			ByPriority: &workqueue.PriorityDepths{Depths: []workqueue.PriorityDepth{{Priority: priority}}},
			Shared: &leasing.Stats{Outage: down, Unsent: 1, Errors: 1, LostLeases: 1, LostDones: 1,
				GivenUp: 1},
		}))
	}
	sum := slices.Collect(s.All())[0].Sum
	shared := leasing.Stats{Unsent: 1, Errors: 2, LostLeases: 2, LostDones: 2, GivenUp: 1}
	if d := sum.ByPriority.Depths; len(d) != 1 || d[0].Priority != 1 || sum.Paused || *leasing.StatsOf(sum) != shared {
		t.Errorf("%+v, shared %+v, want only priority 1, no pause, and %+v", sum, *leasing.StatsOf(sum), shared)
	}
}

// All parts of a shared queue see the same keys, and a part that has ended sees none. Queues in memory have
// keys of their own.
func TestKeysOfASharedQueue(t *testing.T) {
	s := NewQueueSet()
	s.Watch("q", statsSource(workqueue.Stats{ShuttingDown: true, Failing: 7, Shared: &leasing.Stats{}}))
	for range 2 {
		s.Watch("q", statsSource(workqueue.Stats{Queued: 5, Failing: 7, OnHold: 1, Shared: &leasing.Stats{}}))
		s.Watch("memory", statsSource(workqueue.Stats{Queued: 5, Failing: 7, OnHold: 1}))
	}
	want := map[string]workqueue.Stats{"q": {Queued: 5, Failing: 7, OnHold: 2},
		"memory": {Queued: 10, Failing: 14, OnHold: 2}}
	for total := range s.All() {
		total.Sum.Shared = nil
		if total.Sum != want[total.Name] {
			t.Errorf("%s: %+v, want %+v", total.Name, total.Sum, want[total.Name])
		}
	}
}

// Priorities beyond the limit of a sum count as others.
func TestManyPriorities(t *testing.T) {
	s := NewQueueSet()
	for i := range 3 {
		st := workqueue.Stats{ByPriority: &workqueue.PriorityDepths{Others: 1}}
		for p := range 16 {
			st.ByPriority.Depths = append(st.ByPriority.Depths, workqueue.PriorityDepth{Priority: 15*i + p, Queued: 1})
		}
		s.Watch("q", statsSource(st))
	}
	sum := slices.Collect(s.All())[0].Sum.ByPriority
	queued := sum.Others
	for _, d := range sum.Depths {
		queued += d.Queued
	}
	if len(sum.Depths) != MaxPriorities || queued != 3+48 {
		t.Errorf("%+v, want %d priorities and 51 keys", sum, MaxPriorities)
	}
}

func TestPools(t *testing.T) {
	s := NewPoolSet()
	for _, st := range []worker.Stats{{Handled: 1, Busy: 1}, {Handled: 2, Busy: 2}, {Handled: 4, Ended: true}} {
		s.Watch("p", func() worker.Stats { return st })
	}
	for range 2 {
		got := slices.Collect(s.All())[0]
		if got.Sum.Handled != 7 || got.Sum.Busy != 3 || !got.Live {
			t.Errorf("%+v, want the sum of three pools, two of them alive", got)
		}
	}
}

func TestKeysOnHold(t *testing.T) {
	st := worker.Stats{OnHold: 3, HoldsToLimit: 4}
	st = st.Plus(worker.Stats{OnHold: 10, HoldsToLimit: 20, TimedOut: 1})
	got := map[string]float64{}
	for _, m := range PoolMetrics() {
		if m.Value != nil {
			got[m.Name] = m.Value(&st)
		}
	}
	onHold, toLimit := got["workqueue_pool_keys_on_hold"], got["workqueue_pool_holds_to_limit_total"]
	if onHold != 13 || toLimit != 24 || st.TimedOut != 1 {
		t.Errorf("on hold %v, to the limit %v, %+v", onHold, toLimit, st)
	}
}

// Each call of a handler has one result.
func TestPoolResults(t *testing.T) {
	st := worker.Stats{Handled: 20, Failed: 3, GivenUp: 1, Requeued: 2, RequeuedAfter: 1,
		Interrupted: 4}
	want := []Labelled{{"success", 11}, {"requeue", 2}, {"interrupt", 4}, {"retry", 2},
		{"give_up", 1}}
	if got := poolResults(&st); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A pool that has ended leaves its counters in the sum of its name, and no gauge: the next pool handles its keys.
func TestGaugesOfAnEndedPool(t *testing.T) {
	var ended worker.Stats
	v := reflect.ValueOf(&ended).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Int, reflect.Int64:
			f.SetInt(3)
		case reflect.Uint64:
			f.SetUint(3)
		case reflect.Float64:
			f.SetFloat(3)
		}
	}
	ended.ListedAt, ended.Ended = time.Unix(1, 0), true
	// They are zero in every pool that has ended, see [worker.Stats].
	ended.Wanted, ended.Living, ended.Busy, ended.Stuck, ended.LongestRunning, ended.UnfinishedWork = 0, 0, 0, 0, 0, 0

	pools := NewPoolSet()
	pools.Watch("p", func() worker.Stats { return ended })
	pools.Watch("p", func() worker.Stats { return worker.Stats{} })
	for total := range pools.All() {
		for _, m := range PoolMetrics() {
			if m.Value == nil {
				continue
			}
			if value := m.Value(&total.Sum); m.Gauge && m.IsExported(&total.Sum, true) && value != 0 {
				t.Errorf("%s is %v", m.Name, value)
			} else if !m.Gauge && value != 3 {
				t.Errorf("%s is %v, want 3", m.Name, value)
			}
		}
	}
}

// A shared queue's replica that has ended leaves no gauge of the keys that the other replicas have by now.
func TestGaugesOfAnEndedReplica(t *testing.T) {
	queues := NewQueueSet()
	queues.Watch("q", func() workqueue.Stats {
		return workqueue.Stats{ShuttingDown: true, Blocked: 2, OldestQueued: time.Hour}
	})
	queues.Watch("q", func() workqueue.Stats { return workqueue.Stats{} })
	for total := range queues.All() {
		if !total.Live || total.Sum.Blocked != 0 || total.Sum.OldestQueued != 0 {
			t.Errorf("%+v", total)
		}
	}
}
