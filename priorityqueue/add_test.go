package priorityqueue_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	pq "github.com/keyedqueue/workqueue/priorityqueue"
)

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

// If one of several keys that are added together cannot be added, no key is.
func TestAddOfABadKeyAmongOthers(t *testing.T) {
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

// Times beyond what can be expressed saturate.
func TestFarTimes(t *testing.T) {
	c := testkit.NewFakeClock()
	script(t, pq.Config[string]{Clock: c, Aging: 1 << 62}, func(t *testing.T, q *pq.Queue[string]) {
		q.AddAfter("never", 1<<63-1)
		q.AddWithOpts(pq.AddOpts{Priority: 1}, "b", "c")
		q.Add("a")
		c.Step(1 << 62)
		q.AddAfter("a", -1<<63)
		drain(t, q, "b c a")
		wantAt(t, q, "b", "absent")
	})
}

// A clock that is set back does not prolong an interval by as much.
func TestClockSetBackWithinInterval(t *testing.T) {
	c := testkit.NewFakeClock()
	script(t, pq.Config[string]{Clock: c, MinInterval: 10 * time.Second},
		func(t *testing.T, q *pq.Queue[string]) {
			c.Step(24 * time.Hour)
			q.Add("a")
			drain(t, q, "a")
			c.Step(-24 * time.Hour)
			q.Add("a")
			drain(t, q, "")
			synctest.Wait()
			c.Step(10 * time.Second)
			drain(t, q, "a")
		})
}
