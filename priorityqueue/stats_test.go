package priorityqueue_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/observe"
	pq "github.com/keyedqueue/workqueue/priorityqueue"
	testingclock "k8s.io/utils/clock/testing"
)

// reader is a StatsProvider.
type reader struct {
	workqueue.MetricsProvider
	name  string
	stats func() workqueue.Stats
}

func (*reader) HistogramBounds() []float64 { return []float64{0.5, 1.5, 3} }

func (r *reader) WatchQueue(name string, stats func() workqueue.Stats) {
	r.name, r.stats = name, stats
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

func TestStats(t *testing.T) {
	r := &reader{}
	script(t, pq.Config[string]{Name: "q", MetricsProvider: r}, func(t *testing.T, q *pq.Queue[string]) {
		q.AddWithOpts(pq.AddOpts{Priority: 1}, "a", "b")
		time.Sleep(time.Second)
		q.AddWithOpts(pq.AddOpts{Priority: 2}, "c", "b") // b goes behind c, and has waited since before
		q.AddAfter("w", 10*time.Second)
		q.AddAfter("x", time.Second)
		time.Sleep(seconds(1.5)) // x is due since half a second
		hold(t, q, "c b")
		q.Add("b")
		q.Done("unknown")
		time.Sleep(time.Second)
		want := workqueue.Stats{
			Name: "q", Queued: 2, Processing: 2, Again: 1, Waiting: 1, Adds: 5, Retries: 2, UnmatchedDones: 1,
			OldestQueued: seconds(3.5), LongestRunning: time.Second, UnfinishedWork: 2 * time.Second,
			Latency:      &workqueue.Histogram{Bounds: []float64{0.5, 1.5, 3}, Counts: []uint64{0, 1, 1, 0}, Sum: 4},
			WorkDuration: &workqueue.Histogram{Bounds: []float64{0.5, 1.5, 3}, Counts: []uint64{0, 0, 0, 0}},
			ByPriority: &workqueue.PriorityDepths{
				Depths: []workqueue.PriorityDepth{{Priority: 2}, {Priority: 1, Queued: 1}, {Priority: 0, Queued: 2}},
			},
		}
		if st := q.Stats(); !reflect.DeepEqual(st, want) || r.name != "q" || !reflect.DeepEqual(r.stats(), st) {
			t.Errorf("Stats() = %+v, want %+v", st, want)
		}
		q.Done("b") // comes again: its latency runs from the add a second ago
		q.Remove("a")
		if st := q.Stats(); st.OldestQueued != seconds(1.5) || st.WorkDuration.Sum != 1 || st.LongestRunning != time.Second {
			t.Errorf("Stats() = %+v", st)
		}
		hold(t, q, "x b")
		if st := q.Stats(); st.OldestQueued != 0 || st.Latency.Sum != 4+1.5+1 || st.Processing != 3 {
			t.Errorf("Stats() = %+v", st)
		}
		q.ShutDown()
		if st := q.Stats(); !st.ShuttingDown || st.Dropped != 1 {
			t.Errorf("Stats() = %+v", st)
		}
	})
}

func TestStatsWithoutMetrics(t *testing.T) {
	for _, config := range []pq.Config[string]{{}, {Name: "q"}, {MetricsProvider: &reader{}}} {
		script(t, config, func(t *testing.T, q *pq.Queue[string]) {
			q.Add("a")
			time.Sleep(time.Second)
			if st, want := q.Stats(), (workqueue.Stats{Name: config.Name, Queued: 1, Adds: 1}); st != want {
				t.Errorf("Stats() = %+v, want %+v", st, want)
			}
		})
	}
}

// A queue with a name is watched by its own provider, or else by the global one.
func TestGlobalProvider(t *testing.T) {
	global, own := &reader{}, &reader{}
	boxed := any(global)
	defer observe.Global.Store(observe.Global.Swap(&boxed))
	for _, config := range []pq.Config[string]{{Name: "q"}, {Name: "own", MetricsProvider: own}, {}} {
		pq.New(config).ShutDown()
	}
	if global.name != "q" || own.name != "own" {
		t.Errorf("the global provider watches %q and the other one %q", global.name, own.name)
	}
}

// The first 25 priorities are counted by themselves, all others together, whatever becomes of their keys.
func TestByPriority(t *testing.T) {
	config := pq.Config[string]{
		Name: "q", MetricsProvider: &reader{}, Limit: limit(1),
		Group: func(key string) string { return key[len(key)-1:] },
	}
	script(t, config, func(t *testing.T, q *pq.Queue[string]) {
		for i := range 30 {
			q.AddWithOpts(pq.AddOpts{Priority: i}, fmt.Sprint(i, "a"), fmt.Sprint(i, "b"))
		}
		q.AddWithOpts(pq.AddOpts{Priority: 3}, "0a")
		q.Remove("5a")
		hold(t, q, "29a 29b") // of the others
		d := q.Stats().ByPriority
		var got []string
		for _, p := range d.Depths {
			got = append(got, fmt.Sprint(p.Priority, ":", p.Queued))
		}
		want := "24:2 23:2 22:2 21:2 20:2 19:2 18:2 17:2 16:2 15:2 14:2 13:2 12:2 11:2 10:2 9:2 8:2 7:2 6:2 5:1 4:2 3:3 2:2 1:2 0:1"
		if s := strings.Join(got, " "); s != want || d.Others != 8 {
			t.Errorf("%s and %d others", s, d.Others)
		}
	})
}

func TestSnapshot(t *testing.T) {
	for _, observed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			config := pq.Config[string]{Name: "q", RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[string](
				time.Second, time.Hour)}
			if observed {
				config.MetricsProvider = &reader{}
			}
			q := pq.New(config)
			describe := func(keys []workqueue.KeySnapshot[string]) string {
				var all []string
				for _, k := range keys {
					s := k.Key
					if !k.Since.IsZero() {
						s += fmt.Sprint(":", k.Since.Sub(start).Seconds())
					}
					if !k.Due.IsZero() {
						s += fmt.Sprint("-", k.Due.Sub(start).Seconds())
					}
					if k.Again {
						s += "+"
					}
					if k.Requeues > 0 {
						s += fmt.Sprint("*", k.Requeues)
					}
					all = append(all, s)
				}
				if !observed {
					slices.Sort(all)
				}
				return strings.Join(all, " ")
			}
			want := func(limit int, processing, queued, waiting string) {
				t.Helper()
				s := q.Snapshot(limit)
				got := []string{describe(s.Processing), describe(s.Queued), describe(s.Waiting)}
				if !slices.Equal(got, []string{processing, queued, waiting}) || !reflect.DeepEqual(s.Stats, q.Stats()) {
					t.Errorf("Snapshot(%d) = %q, %+v, want %q", limit, got, s.Stats, []string{processing, queued, waiting})
				}
			}
			want(9, "", "", "")
			q.Add("a")
			q.AddWithOpts(pq.AddOpts{Priority: 9}, "b", "c")
			time.Sleep(time.Second)
			q.Add("d")
			hold(t, q, "b c")
			q.AddAfter("c", 5*time.Second)
			q.AddAfter("y", 9*time.Second)
			q.AddRateLimited("x")
			if observed {
				want(9, "b:1 c:1+", "a:0 d:1", "x:1-2*1 c:1-6 y:1-10") // c is held, and waits
				want(1, "b:1", "a:0", "x:1-2*1")
			} else {
				want(9, "b c+", "a d", "c:1-6 x:1-2*1 y:1-10") // sorted by describe
				want(1, "b", "a", "x:1-2*1")
			}
			want(0, "", "", "")
			want(-1, "", "", "")
			q.Done("b")
			q.AddAfter("b", 0)
			hold(t, q, "a")
			q.AddRateLimited("a")
			q.AddWithOpts(pq.AddOpts{RateLimited: true, Delay: pq.Replace}, "x")
			if got := describe(q.Snapshot(9).Failing); got != "a*1 x:1-2*1" && got != "x:1-2*1 a*1" {
				t.Errorf("failing: %s", got)
			}
			q.ShutDown()
		})
	}
}

// A clock that leaps for centuries takes the times of the keys that are there with it.
func TestStatsOfAClockThatLeaps(t *testing.T) {
	c := testingclock.NewFakeClock(time.Unix(0, 0))
	q := pq.New(pq.Config[string]{Name: "q", MetricsProvider: &reader{}, Clock: c})
	q.Add("a")
	q.Add("b")
	q.Get()
	century := 100 * 365 * 24 * time.Hour
	for range 2 {
		c.Step(century)
		q.Len()
	}
	if st := q.Stats(); st.OldestQueued != 2*century || st.LongestRunning != 2*century || st.UnfinishedWork != 2*century {
		t.Errorf("Stats() = %+v", st)
	}
	q.ShutDown()
}

// Snapshot lists queued keys in the order in which they are handed out, and in a long list those after the first 512
// by their priorities.
func TestSnapshotOrder(t *testing.T) {
	const n = 3000
	for _, groups := range []bool{false, true} {
		config := pq.Config[string]{}
		if groups {
			config.Group = byPrefix
			config.Weight = func(group string) int { return len(group) }
		}
		script(t, config, func(t *testing.T, q *pq.Queue[string]) {
			for i := range n {
				q.AddWithOpts(pq.AddOpts{Priority: i % 4}, fmt.Sprint(strings.Repeat("g", 1+i%3), "/", i))
			}
			q.AddAfter("a", time.Hour)
			all := q.Snapshot(n + 1).Queued
			for _, limit := range []int{100, 600} {
				if some := q.Snapshot(limit).Queued; len(all) != n || !slices.Equal(all[:limit], some) {
					t.Fatalf("Snapshot has %d and %d keys, want %d and as many of them as %d", len(all), len(some), n, limit)
				}
			}
			for i := range n {
				info, _ := q.Take(t.Context())
				if k := all[i]; k.Priority != info.Priority || i < 512 && (k.Key != info.Key || k.Group != info.Group) {
					t.Fatalf("key %d is %+v, and Snapshot has %+v", i, info, k)
				}
			}
			held := q.Snapshot(n).Processing
			if len(held) != n {
				t.Errorf("Snapshot has %d keys that are processed", len(held))
			}
		})
	}
}

// In a long list blocked keys come last, too.
func TestSnapshotOfBlockedKeys(t *testing.T) {
	const free, blocked = 700, 300
	config := pq.Config[string]{Group: byPrefix, Limit: func(group string) int { return map[string]int{"full": 1}[group] }}
	script(t, config, func(t *testing.T, q *pq.Queue[string]) {
		q.Add("full/held")
		hold(t, q, "full/held")
		for i := range blocked {
			q.AddWithOpts(pq.AddOpts{Priority: 1}, fmt.Sprint("full/", i))
		}
		for i := range free {
			q.Add(fmt.Sprint("free/", i))
		}
		all := q.Snapshot(free + blocked).Queued
		if len(all) != free+blocked {
			t.Fatalf("Snapshot has %d keys", len(all))
		}
		for i, k := range all {
			if k.Blocked != (i >= free) || (k.Group == "full") != k.Blocked {
				t.Fatalf("key %d is %+v", i, k)
			}
		}
	})
}

// Snapshot lists queued keys in the order in which they are handed out, also where a group has no more keys in the
// middle of its turn.
func TestSnapshotOfShortLines(t *testing.T) {
	config := pq.Config[string]{Group: byPrefix, Weight: func(group string) int { return len(group) }}
	script(t, config, func(t *testing.T, q *pq.Queue[string]) {
		q.AddWithOpts(pq.AddOpts{}, "gg/1", "ggg/1", "ggg/2", "g/1", "gg/2", "gg/3", "g/2", "g/3", "gggg/1", "gg/4")
		for n := 10; n > 0; n-- {
			s := q.Snapshot(n).Queued
			if info, _ := q.Take(t.Context()); len(s) != n || s[0].Key != info.Key {
				t.Errorf("Take() = %s, and Snapshot has %+v", info.Key, s)
			}
		}
	})
	script(t, config, func(t *testing.T, q *pq.Queue[string]) {
		q.AddWithOpts(pq.AddOpts{}, "gg/1", "ggg/1", "ggg/2", "g/1", "gg/2", "gg/3", "g/2", "g/3", "gggg/1", "gg/4")
		for i, k := range q.Snapshot(10).Queued {
			if info, _ := q.Take(t.Context()); k.Key != info.Key {
				t.Errorf("key %d is %s, and Snapshot has %s", i, info.Key, k.Key)
			}
		}
	})
}

// Snapshot lists the keys of as many priorities as its limit allows, and no key that stands in line while it is held.
func TestSnapshotOfManyLines(t *testing.T) {
	script(t, pq.Config[string]{PlaceOfAdd: true}, func(t *testing.T, q *pq.Queue[string]) {
		q.AddWithOpts(pq.AddOpts{Priority: 9}, "held")
		hold(t, q, "held")
		for i, keys := range [][]string{{"a"}, {"b"}, {"c", "held", "d"}, {"e"}} {
			q.AddWithOpts(pq.AddOpts{Priority: -i}, keys...)
		}
		want := []string{"a", "b", "c", "d", "e"}
		for limit := range len(want) + 2 {
			var got []string
			for _, k := range q.Snapshot(limit).Queued {
				got = append(got, k.Key)
			}
			if !slices.Equal(got, want[:min(limit, len(want))]) {
				t.Errorf("Snapshot(%d) has %v", limit, got)
			}
		}
	})
}

// A long Snapshot has all keys of each state, in order.
func TestLongSnapshot(t *testing.T) {
	const n = 1500
	config := pq.Config[string]{Name: "q", MetricsProvider: &reader{}}
	script(t, config, func(t *testing.T, q *pq.Queue[string]) {
		for i := range n { // Neither waiting nor held keys come into the queue in the order of the snapshot.
			q.AddAfter(fmt.Sprint(i*7%n), time.Duration(1+i*7%n)*time.Minute)
			q.AddWithOpts(pq.AddOpts{Priority: i * 7 % n}, fmt.Sprint("held ", n-1-i*7%n))
		}
		for range n {
			q.Get()
			time.Sleep(time.Millisecond)
		}
		s := q.Snapshot(n - 1)
		if len(s.Waiting) != n-1 || len(s.Processing) != n-1 {
			t.Fatalf("Snapshot has %d waiting keys and %d that are processed", len(s.Waiting), len(s.Processing))
		}
		if !slices.IsSortedFunc(s.Waiting, func(a, b workqueue.KeySnapshot[string]) int { return a.Due.Compare(b.Due) }) {
			t.Error("the waiting keys are not in the order of their times")
		}
		for i, k := range s.Waiting {
			if k.Key != fmt.Sprint(i) || k.Due.IsZero() {
				t.Fatalf("key %d that waits is %+v", i, k)
			}
		}
		for i, k := range s.Processing {
			if k.Key != fmt.Sprint("held ", i) {
				t.Fatalf("key %d that is processed is %+v", i, k)
			}
		}
	})
}
