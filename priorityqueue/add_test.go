package priorityqueue_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	pq "github.com/keyedqueue/workqueue/priorityqueue"
)

// Bounds of delays, and sequences of adds. TestEachCellOfTheTable has what one add does to a key.
func TestBoundsOfDelays(t *testing.T) {
	const s = time.Second
	limited := pq.AddOpts{RateLimited: true}
	tests := []struct {
		name string
		adds []pq.AddOpts // one a second
		want string       // when it comes after the last one
	}{
		{"latest, bounded", []pq.AddOpts{
			{After: 5 * s, Delay: pq.Latest, MaxDelay: 6 * s}, {After: 5 * s, Delay: pq.Latest, MaxDelay: 6 * s},
			{After: 5 * s, Delay: pq.Latest, MaxDelay: 6 * s}}, "4s"},
		{"bound in the past", []pq.AddOpts{{After: 5 * s}, {After: 5 * s, Delay: pq.Latest, MaxDelay: s}}, "now"},
		{"earliest is not bounded", []pq.AddOpts{{After: 5 * s, MaxDelay: s}}, "5s"},
		{"replace, bounded", []pq.AddOpts{{After: 2 * s}, {After: 9 * s, Delay: pq.Replace, MaxDelay: 3 * s}},
			"2s"},
		{"limiter, again", []pq.AddOpts{limited, limited, {After: 20 * s, RateLimited: true}}, "8s"},
		{"limiter and a shorter time, at least", []pq.AddOpts{{RateLimited: true, After: s, AtLeast: 5 * s}}, "5s"},
		{"limiter and a longer time, at least", []pq.AddOpts{{RateLimited: true, After: 60 * s, AtLeast: 30 * s}},
			"30s"},
		{"at least, without a limiter", []pq.AddOpts{{After: s, AtLeast: 30 * s}}, "1s"},
		{"limiter and a bound", []pq.AddOpts{{RateLimited: true, AtLeast: 5 * s, MaxDelay: 3 * s,
			Delay: pq.Latest}}, "3s"},
		{"replace, limiter and a bound", []pq.AddOpts{{RateLimited: true, AtLeast: 5 * s, MaxDelay: 3 * s,
			Delay: pq.Replace}}, "3s"},
		{"limiter and a bound for others", []pq.AddOpts{{RateLimited: true, MaxDelay: 3 * s}}, "10s"},
		{"limiter, and a bound afterwards", []pq.AddOpts{limited, {RateLimited: true, MaxDelay: 3 * s,
			Delay: pq.Latest}}, "9s"},
	}
	for _, tt := range tests {
		for _, held := range []bool{false, true} {
			name, want := tt.name, tt.want
			if held {
				name += ", held"
			}
			afterDone, before := "waiting "+want, "processing "+want
			if want == "now" {
				afterDone, before = "queued", "processing again"
			}
			t.Run(name, func(t *testing.T) {
				script(t, pq.Config[string]{RateLimiter: fixed(10 * s)}, func(t *testing.T, q *pq.Queue[string]) {
					if held {
						q.Add("a")
						hold(t, q, "a")
					}
					for i, o := range tt.adds {
						if i > 0 {
							time.Sleep(s)
						}
						q.AddWithOpts(o, "a")
					}
					if held {
						wantAt(t, q, "a", before)
						q.Done("a")
					}
					wantAt(t, q, "a", afterDone)
				})
			})
		}
	}
}

// Once the interval is over, a key takes no memory. A drain does not wait for it.
func TestMinIntervalIsForgotten(t *testing.T) {
	script(t, pq.Config[string]{MinInterval: 10 * time.Second}, func(t *testing.T, q *pq.Queue[string]) {
		for range 3 {
			q.Add("a")
			q.Add("b")
			q.Add("c")
			drain(t, q, "a b c")
			if n, _, _ := q.Remembered(); n != 3 {
				t.Errorf("%d keys are remembered, want 3", n)
			}
			time.Sleep(10 * time.Second)
			q.Len()
			q.Len()
			if n, _, _ := q.Remembered(); n != 0 {
				t.Errorf("%d keys are remembered after the interval", n)
			}
		}
		q.Add("a")
		drain(t, q, "a")
		if err := q.ShutDownContext(t.Context()); err != nil {
			t.Error(err)
		}
		if n, _, _ := q.Remembered(); n != 0 {
			t.Errorf("%d keys are remembered after shutdown", n)
		}
	})
}

// A few keys are added at one moment, or none of them.
func TestAddSeveral(t *testing.T) {
	script(t, pq.Config[string]{}, func(t *testing.T, q *pq.Queue[string]) {
		batch := testkit.Start(func() []string { b, _ := q.GetBatch(t.Context(), 9); return keysOf(b) })
		batch.MustBlock(t, "GetBatch")
		q.AddWithOpts(pq.AddOpts{}, "a", "b", "a", "c")
		if got := batch.MustReturn(t, "GetBatch"); strings.Join(got, " ") != "a b c" {
			t.Errorf("GetBatch() = %v, want all", got)
		}
	})
	q := pq.New(pq.Config[any]{Group: func(key any) string {
		if key == "bad" {
			panic("group")
		}
		return ""
	}})
	for want, bad := range map[string]any{"unhashable": []int{}, "group": "bad"} {
		testkit.WantPanic(t, "AddWithOpts", func() { q.AddWithOpts(pq.AddOpts{}, 1, bad) }, want)
	}
	if q.Len() != 0 {
		t.Errorf("%d keys were added by an AddWithOpts that panicked", q.Len())
	}
}

func TestBadConfig(t *testing.T) {
	group := func(string) string { return "" }
	weight := func(string) int { return 1 }
	for want, config := range map[string]pq.Config[string]{
		"priorityqueue: Config.Aging":      {Aging: -1},
		"or Config.MinInterval":            {MinInterval: -1},
		"Config.MaxDelay":                  {MaxDelay: -1},
		"priorityqueue: Config.Delay":      {Delay: 4},
		"Config.Limit without Group":       {Limit: limit(1)},
		"priorityqueue: Config.Weight":     {Weight: weight},
		"is not a workqueue.StatsProvider": {MetricsProvider: &testkit.Recorder{}},
	} {
		testkit.WantPanic(t, "New", func() { pq.New(config) }, want)
	}
	q := pq.New(pq.Config[string]{})
	testkit.WantPanic(t, "AddWithOpts", func() { q.AddWithOpts(pq.AddOpts{Delay: 4}, "a") },
		"priorityqueue: AddOpts.Delay")
	_ = pq.New(pq.Config[string]{Group: group, Weight: weight, Limit: limit(1), Aging: 1, MinInterval: 1})
}

// A key that cannot be one panics before any foreign code is asked about it. (The suite has what becomes of
// the queue.)
func TestBadKeys(t *testing.T) {
	for want, bad := range map[string]any{"unhashable": []int{}, "float64 is not equal to itself": math.NaN()} {
		asked := 0
		q := pq.New(pq.Config[any]{Group: func(any) string { asked++; return "" }})
		for what, call := range map[string]func(){
			"AddWithOpts": func() { q.AddWithOpts(pq.AddOpts{}, bad, bad) },
			"Remove":      func() { q.Remove(bad) }, "Fail": func() { q.Fail(t.Context(), bad, workqueue.Failure{}) },
			"SnapshotKey": func() { q.SnapshotKey(bad) }, "PriorityOf": func() { q.PriorityOf(bad) },
		} {
			testkit.WantPanic(t, what, call, want)
		}
		if asked != 0 {
			t.Errorf("Group was called %d times", asked)
		}
		if err := q.CheckInvariants(); err != nil {
			t.Error(err)
		}
		q.ShutDown()
	}
}
