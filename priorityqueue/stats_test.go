package priorityqueue_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/observe"
	pq "github.com/keyedqueue/workqueue/priorityqueue"
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
		q.Done("b") // is queued again: its latency runs from the add a second ago
		q.Remove("a")
		if st := q.Stats(); st.OldestQueued != seconds(1.5) || st.WorkDuration.Sum != 1 ||
			st.LongestRunning != time.Second {
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
			st, want := q.Stats(), workqueue.Stats{Name: config.Name, Queued: 1, Adds: 1}
			if d := st.ByPriority.Depths; len(d) != 1 || d[0] != (workqueue.PriorityDepth{Queued: 1}) {
				t.Errorf("ByPriority is %+v", d)
			}
			if st.ByPriority = nil; st != want {
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
