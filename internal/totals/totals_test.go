package totals

import (
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// source returns a source whose numbers are st, at whatever time it is read.
func source(st *workqueue.Stats) func() workqueue.Stats { return func() workqueue.Stats { return *st } }

func wantTotals(t *testing.T, s *Set[workqueue.Stats], want ...Total[workqueue.Stats]) {
	t.Helper()
	if got := slices.Collect(s.All()); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// Everything that Stats has is added up, except for the two longest times, the name and the state.
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
		st.WorkDuration = &workqueue.Histogram{Bounds: []float64{1}, Counts: []uint64{2, uint64(n)}, Sum: float64(n)}
		st.ByPriority = &workqueue.PriorityDepths{Depths: []workqueue.PriorityDepth{{Priority: 1, Queued: n}}, Others: n}
		return st
	}
	one, two := full(3), full(4)
	s := Queues()
	s.Watch("q", source(&one))
	s.Watch("q", source(&two))
	want := full(7)
	want.OldestQueued, want.LongestRunning = 4, 4
	want.Latency.Counts, want.WorkDuration.Counts = []uint64{7, 2}, []uint64{4, 7}
	for range 2 {
		wantTotals(t, s, Total[workqueue.Stats]{Name: "q", Live: true, Sum: want})
	}
	if !reflect.DeepEqual(one, full(3)) || !reflect.DeepEqual(two, full(4)) {
		t.Error("adding has changed the numbers of a source")
	}
}

func TestEveryFieldOfPools(t *testing.T) {
	full := func(n int) (st worker.Stats) {
		v := reflect.ValueOf(&st).Elem()
		for i := range v.NumField() {
			switch f := v.Field(i); f.Kind() {
			case reflect.Int:
				f.SetInt(int64(n))
			case reflect.Uint64:
				f.SetUint(uint64(n))
			}
		}
		st.Durations = &workqueue.Histogram{Bounds: []float64{1}, Counts: []uint64{uint64(n), 0}, Sum: float64(n)}
		return st
	}
	s := Pools()
	s.Watch("p", func() worker.Stats { return full(3) })
	s.Watch("p", func() worker.Stats { return full(4) })
	s.Watch("p", func() worker.Stats { return worker.Stats{Ended: true, Handled: 1} })
	want := full(7)
	want.Handled = 8
	for range 2 {
		if got := slices.Collect(s.All()); len(got) != 1 || !got[0].Live || !reflect.DeepEqual(got[0].Sum, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

// A source that has ended is forgotten, and what it counted is not.
func TestEndedSources(t *testing.T) {
	s := Queues()
	for range 3 {
		for range 10 {
			st := workqueue.Stats{ShuttingDown: true, Adds: 2, Latency: &workqueue.Histogram{Counts: []uint64{1, 1}, Sum: 1}}
			s.Watch("q", source(&st))
		}
		for range s.All() {
		}
	}
	if n := len(s.byName["q"].sources); n != 0 {
		t.Errorf("%d sources are kept", n)
	}
	want := workqueue.Stats{Adds: 60, Latency: &workqueue.Histogram{Counts: []uint64{30, 30}, Sum: 30}}
	wantTotals(t, s, Total[workqueue.Stats]{Name: "q", Sum: want})

	for i, busy := range []workqueue.Stats{{Queued: 1}, {Processing: 1}, {Waiting: 1}} {
		busy.ShuttingDown = true
		s.Watch(fmt.Sprint(i), source(&busy))
	}
	for total := range s.All() {
		if total.Live != (total.Name != "q") {
			t.Errorf("%s: live = %v", total.Name, total.Live)
		}
	}
}

// What one call of All yielded stays as it is when the next call adds a queue that has ended meanwhile.
func TestYieldedSumsStay(t *testing.T) {
	s := Queues()
	read := func() workqueue.Stats { return slices.Collect(s.All())[0].Sum }
	var before []workqueue.Stats
	for range 5 {
		st := workqueue.Stats{ShuttingDown: true, Latency: &workqueue.Histogram{Counts: []uint64{1}, Sum: 1}}
		s.Watch("q", source(&st))
		before = append(before, read())
	}
	for i, st := range before {
		if n := st.Latency.Count(); n != uint64(i+1) {
			t.Errorf("sum %d has become %d", i+1, n)
		}
	}
}

// The priorities of a queue that has ended do not take the places of others, and its pause does not count.
func TestPrioritiesOfEndedQueues(t *testing.T) {
	s := Queues()
	for _, down := range []bool{true, false} {
		st := workqueue.Stats{ShuttingDown: down, Paused: down, ByPriority: &workqueue.PriorityDepths{
			Depths: []workqueue.PriorityDepth{{Priority: 1, Queued: 0}},
		}}
		if !down {
			st.ByPriority.Depths[0].Priority = 2
		}
		s.Watch("q", source(&st))
	}
	sum := slices.Collect(s.All())[0].Sum
	if d := sum.ByPriority.Depths; len(d) != 1 || d[0].Priority != 2 || sum.Paused {
		t.Errorf("%+v, want only priority 2, and no pause", sum)
	}
}

// Sources that end while the set is not read do not pile up.
func TestSweep(t *testing.T) {
	s := Queues()
	var first sync.WaitGroup
	first.Add(minSweep)
	var reads atomic.Int64
	for range minSweep {
		done := sync.OnceFunc(first.Done)
		s.Watch("q", func() workqueue.Stats {
			defer done()
			reads.Add(1)
			return workqueue.Stats{ShuttingDown: true, Adds: 1}
		})
	}
	first.Wait()
	wantTotals(t, s, Total[workqueue.Stats]{Name: "q", Sum: workqueue.Stats{Adds: minSweep}})
	if n := reads.Load(); n != minSweep+maxLately {
		t.Errorf("%d readings, want one of each source, and one more of the last %d", n, maxLately)
	}
}

// Unmatched Dones are counted after the end of a queue, too.
func TestLateDones(t *testing.T) {
	s := Queues()
	st := workqueue.Stats{ShuttingDown: true, Adds: 5, UnmatchedDones: 1}
	s.Watch("q", source(&st))
	want := func(dones uint64) {
		t.Helper()
		wantTotals(t, s, Total[workqueue.Stats]{Name: "q", Sum: workqueue.Stats{Adds: 5, UnmatchedDones: dones}})
	}
	want(1)
	st.UnmatchedDones = 4
	want(4)
	want(4)
	for range maxLately - 1 {
		s.Watch("q", source(&workqueue.Stats{ShuttingDown: true}))
	}
	st.UnmatchedDones++
	want(5)
	s.Watch("q", source(&workqueue.Stats{ShuttingDown: true}))
	want(5)
	st.UnmatchedDones++
	want(5) // It is not among the last ones any more.
}

// Priorities beyond the limit of a sum count as others.
func TestManyPriorities(t *testing.T) {
	s := Queues()
	for i := range 3 {
		st := workqueue.Stats{ByPriority: &workqueue.PriorityDepths{Others: 1}}
		for p := range 16 {
			st.ByPriority.Depths = append(st.ByPriority.Depths, workqueue.PriorityDepth{Priority: 15*i + p, Queued: 1})
		}
		s.Watch("q", source(&st))
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

// The numbers of one name are not those of the name that was read before.
func TestSumsOfSeveralNames(t *testing.T) {
	s := Queues()
	for adds, name := range []string{"a", "b", "c"} {
		s.Watch(name, source(&workqueue.Stats{Adds: uint64(adds), ShuttingDown: name == "b"}))
	}
	for range 2 {
		var adds []uint64
		for total := range s.All() {
			adds = append(adds, total.Sum.Adds)
		}
		if !slices.Equal(adds, []uint64{0, 1, 2}) {
			t.Errorf("adds: %v", adds)
		}
	}
}

func TestNamesThatAreNotUTF8(t *testing.T) {
	s := Queues()
	for _, name := range []string{"b", "\xff", "a"} {
		s.Watch(name, source(&workqueue.Stats{}))
	}
	var names []string
	for total := range s.All() {
		names = append(names, total.Name)
	}
	if want := []string{"a", "b", "\uFFFD"}; !slices.Equal(names, want) {
		t.Errorf("names %q, want %q", names, want)
	}
}
