package priorityqueue_test

import (
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	pq "github.com/keyedqueue/workqueue/priorityqueue"
)

func TestPriorities(t *testing.T) {
	script(t, pq.Config[string]{}, func(t *testing.T, q *pq.Queue[string]) {
		q.AddWithOpts(pq.AddOpts{Priority: -5}, "e")
		q.AddWithOpts(pq.AddOpts{Priority: 5}, "a", "b")
		q.Add("d")
		q.AddWithOpts(pq.AddOpts{Priority: math.MinInt}, "last")
		q.AddWithOpts(pq.AddOpts{Priority: math.MaxInt}, "first")
		q.AddWithOpts(pq.AddOpts{Priority: 5}, "c")
		if key, priority, _ := q.GetWithPriority(); key != "first" || priority != math.MaxInt {
			t.Errorf("GetWithPriority() = %s, %d", key, priority)
		}
		drain(t, q, "a b c d e last")
	})
}

func TestDelayPolicies(t *testing.T) {
	const s = time.Second
	limited := pq.AddOpts{RateLimited: true}
	tests := []struct {
		name string
		adds []pq.AddOpts // one a second
		want string       // when it comes after the last one
	}{
		{"earliest", []pq.AddOpts{{After: 9 * s}, {After: 3 * s}, {After: 9 * s}}, "2s"},
		{"earliest, now", []pq.AddOpts{{After: 9 * s}, {}, {After: 9 * s}}, "now"},
		{"latest", []pq.AddOpts{{After: 9 * s}, {After: 9 * s, Delay: pq.Latest}, {After: s, Delay: pq.Latest}},
			"8s"},
		{"latest, now", []pq.AddOpts{{After: 9 * s}, {Delay: pq.Latest}}, "8s"},
		{"latest of a queued key", []pq.AddOpts{{}, {After: s, Delay: pq.Latest}}, "now"},
		{"latest, bounded", []pq.AddOpts{
			{After: 5 * s, Delay: pq.Latest, MaxDelay: 6 * s}, {After: 5 * s, Delay: pq.Latest, MaxDelay: 6 * s},
			{After: 5 * s, Delay: pq.Latest, MaxDelay: 6 * s}}, "4s"},
		{"bound in the past", []pq.AddOpts{{After: 5 * s}, {After: 5 * s, Delay: pq.Latest, MaxDelay: s}}, "now"},
		{"earliest is not bounded", []pq.AddOpts{{After: 5 * s, MaxDelay: s}}, "5s"},
		{"replace", []pq.AddOpts{{After: 9 * s}, {After: s, Delay: pq.Replace}, {After: 5 * s, Delay: pq.Replace}},
			"now"},
		{"replace, bounded", []pq.AddOpts{{After: 2 * s}, {After: 9 * s, Delay: pq.Replace, MaxDelay: 3 * s}},
			"2s"},
		{"replace, now", []pq.AddOpts{{After: 9 * s}, {Delay: pq.Replace}}, "now"},
		{"limiter", []pq.AddOpts{limited, limited, {After: 20 * s, RateLimited: true}}, "8s"},
		{"limiter and a shorter time", []pq.AddOpts{{After: s, RateLimited: true}}, "1s"},
		{"limiter and a longer time", []pq.AddOpts{{After: 20 * s, RateLimited: true}}, "10s"},
		{"limiter and a bound", []pq.AddOpts{{RateLimited: true, AtLeast: 5 * s, MaxDelay: 3 * s,
			Delay: pq.Latest}}, "3s"},
		{"replace, limiter and a bound", []pq.AddOpts{{RateLimited: true, AtLeast: 5 * s, MaxDelay: 3 * s,
			Delay: pq.Replace}}, "3s"},
		{"limiter and a bound for others", []pq.AddOpts{{RateLimited: true, MaxDelay: 3 * s}}, "10s"},
		{"limiter, and a bound afterwards", []pq.AddOpts{limited, {RateLimited: true, MaxDelay: 3 * s,
			Delay: pq.Latest}}, "9s"},
		{"event before its backoff is over", []pq.AddOpts{limited, {}}, "now"},
		{"earliest of a time and the limiter's", []pq.AddOpts{{After: 5 * s}, limited}, "4s"},
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
	for want, bad := range map[string]any{"unhashable": []int{}, "NaN": math.NaN(), "group": "bad"} {
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

// A key that cannot be one panics before any foreign code is asked about it, and leaves the queue as it was.
func TestBadKeys(t *testing.T) {
	for want, bad := range map[string]any{"unhashable": []int{}, "float64 is not equal to itself": math.NaN()} {
		synctest.Test(t, func(t *testing.T) {
			asked := 0
			q := pq.New(pq.Config[any]{
				RateLimiter: workqueue.DefaultTypedItemBasedRateLimiter[any](),
				Group:       func(any) string { asked++; return "" },
			})
			for what, call := range map[string]func(){
				"Add": func() { q.Add(bad) }, "AddAfter": func() { q.AddAfter(bad, time.Second) },
				"AddRateLimited": func() { q.AddRateLimited(bad) }, "Done": func() { q.Done(bad) },
				"AddWithOpts": func() { q.AddWithOpts(pq.AddOpts{}, bad, bad) },
				"Remove":      func() { q.Remove(bad) }, "Fail": func() { q.Fail(t.Context(), bad, workqueue.Failure{}) },
				"SnapshotKey": func() { q.SnapshotKey(bad) }, "PriorityOf": func() { q.PriorityOf(bad) },
			} {
				testkit.WantPanic(t, what, call, want)
			}
			if asked != 0 {
				t.Errorf("Group was called %d times", asked)
			}
			q.Add(1)
			if key, _ := q.Get(); key != 1 {
				t.Errorf("Get() = %v", key)
			}
			q.Done(1)
			if err := q.CheckInvariants(); err != nil {
				t.Error(err)
			}
			q.ShutDown()
		})
	}
}
