package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// failedKeys formats keys as "key attempt error time nextTry", with times relative to start.
func failedKeys(start time.Time, keys []worker.FailedKey[string]) []string {
	var lines []string
	for _, f := range keys {
		next := "-"
		if !f.NextTry.IsZero() {
			next = f.NextTry.Sub(start).String()
		}
		lines = append(lines, fmt.Sprintf("%s %d %s %v %s", f.Key, f.Attempt, f.Err, f.Time.Sub(start), next))
	}
	return lines
}

// The last error of a failing key is known until it succeeds.
func TestFailingKeys(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		start := time.Now()
		p := worker.New(q, func(ctx context.Context, key string) error {
			time.Sleep(100 * time.Millisecond)
			if worker.Attempt(ctx) == 4 {
				return nil
			}
			return fmt.Errorf("%s is broken, %d", key, worker.Attempt(ctx))
		}, options{Workers: 2})
		q.Add("a")
		r := run(t, p)
		r.after(500 * time.Millisecond)
		q.Add("b")
		r.after(time.Second)
		_, extended := q.(workqueue.Extended[string])
		check := func(want ...string) {
			t.Helper()
			if !extended {
				for i, line := range want {
					want[i] = line[:strings.LastIndex(line, " ")] + " -"
				}
			}
			s := p.Snapshot(10)
			if got := failedKeys(start, s.Failing); !slices.Equal(got, want) || s.Stats.Failing != len(want) {
				t.Errorf("at %v, %d failing:\n%s\nwant:\n%s", time.Since(start), s.Stats.Failing, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
		check("b 1 b is broken, 1 600ms 1.6s", "a 1 a is broken, 1 100ms 1.1s")
		r.after(1150 * time.Millisecond) // a runs.
		check("b 1 b is broken, 1 600ms 1.6s", "a 1 a is broken, 1 100ms -")
		r.after(2 * time.Second)
		check("b 2 b is broken, 2 1.7s 3.7s", "a 2 a is broken, 2 1.2s 3.2s")
		if got := p.Snapshot(1).Failing; len(got) != 1 || got[0].Key != "b" {
			t.Errorf("limited: %+v", got)
		}
		r.after(time.Minute)
		check()
		r.endCleanly()
	})
}

// Of the keys that were dropped the last ones are known, until they succeed or are forgotten.
func TestDroppedKeys(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		start := time.Now()
		broken := true
		p := worker.New(q, func(ctx context.Context, key string) error {
			if !broken {
				return nil
			}
			return fmt.Errorf("%s is broken, %d", key, worker.Attempt(ctx))
		}, options{MaxRetries: 1, KeepDropped: 3})
		for _, key := range []string{"a", "b", "c", "d"} {
			q.Add(key)
		}
		r := run(t, p)
		r.after(time.Minute)
		check := func(want ...string) {
			t.Helper()
			s := p.Snapshot(10)
			if got := failedKeys(start, s.Dropped); !slices.Equal(got, want) || len(s.Failing) != 0 || s.Stats.Failing != 0 {
				t.Errorf("dropped %q, failing %+v", got, s.Failing)
			}
		}
		check("d 2 d is broken, 2 1s -", "c 2 c is broken, 2 1s -", "b 2 b is broken, 2 1s -")
		broken = false
		q.Add("c")
		r.after(2 * time.Minute)
		check("d 2 d is broken, 2 1s -", "b 2 b is broken, 2 1s -")
		p.Forget("d")
		check("b 2 b is broken, 2 1s -")
		if s := p.Snapshot(0); s.DroppedKeys != 1 {
			t.Errorf("%d dropped keys", s.DroppedKeys)
		}
		// A key that was added again and fails is failing, and not dropped any more.
		broken = true
		q.Add("b")
		r.after(2*time.Minute + 500*time.Millisecond)
		if s := p.Snapshot(10); len(s.Failing) != 1 || len(s.Dropped) != 0 || s.DroppedKeys != 0 {
			t.Errorf("failing %+v, dropped %+v of %d", s.Failing, s.Dropped, s.DroppedKeys)
		}
		r.after(3 * time.Minute)
		check("b 2 b is broken, 2 2m1s -")
		r.endCleanly()
		check("b 2 b is broken, 2 2m1s -")
	})
}

func TestKeepDropped(t *testing.T) {
	for _, c := range []struct{ keep, want int }{{0, 1000}, {-1, 0}, {7, 7}} {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue()
			for i := range 1100 {
				q.Add(fmt.Sprint(i))
			}
			p := worker.New(q, func(context.Context, string) error { return errBroken },
				options{MaxRetries: worker.NoRetries, KeepDropped: c.keep})
			run(t, p).endCleanly()
			if got := len(p.Snapshot(2000).Dropped); got != c.want {
				t.Errorf("%d dropped keys are kept of %d, want %d", got, c.keep, c.want)
			}
		})
	}
}

// Keys that were removed from the queue, or forgotten by somebody else, are no longer failing: the pool does not
// report them at the end, keeps no memory for them, and counts their failures from the beginning.
func TestFailingKeysThatAreGone(t *testing.T) {
	limiter := func() workqueue.TypedRateLimiter[string] {
		return workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Hour, 24*time.Hour)
	}
	newPriorityQueue := func() stringQueue {
		return priorityqueue.New(priorityqueue.Config[string]{RateLimiter: limiter()})
	}
	newFIFO := func() stringQueue { return workqueue.NewTypedRateLimitingQueue(limiter()) }
	for _, c := range []struct {
		name  string
		queue func() stringQueue
		gone  func(q stringQueue, key string)
	}{
		{"removed", newPriorityQueue, func(q stringQueue, key string) { q.(*priorityqueue.Queue[string]).Remove(key) }},
		{"removed and forgotten", newPriorityQueue, func(q stringQueue, key string) {
			q.(*priorityqueue.Queue[string]).Remove(key)
			q.Forget(key)
		}},
		{"forgotten", newFIFO, func(q stringQueue, key string) { q.Forget(key) }},
		{"forgotten, plain", func() stringQueue { return plain{newFIFO()} }, func(q stringQueue, key string) { q.Forget(key) }},
	} {
		for _, when := range []string{"at once", "later", "at the end"} {
			t.Run(c.name+"/"+when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					const n = 500
					q := c.queue()
					attempts := make(map[string]int)
					p := worker.New(q, func(ctx context.Context, key string) error {
						attempts[key] = worker.Attempt(ctx)
						return errBroken
					}, options{})
					for i := range n {
						q.Add(fmt.Sprint(i))
					}
					r := run(t, p)
					if got := p.Stats().Failing; got != n {
						t.Fatalf("%d keys fail", got)
					}
					for i := range n - 1 {
						if i == n/2 && when == "later" {
							r.after(time.Minute)
							if got := p.Stats().Failing; got != n-i {
								t.Errorf("after a minute %d keys fail", got)
							}
						}
						c.gone(q, fmt.Sprint(i))
					}
					switch when {
					case "at once":
						want := 1 + q.NumRequeues("0") // A key that comes again was never missed.
						q.Add("0")
						synctest.Wait()
						if attempts["0"] != want {
							t.Errorf("attempt %d, want %d", attempts["0"], want)
						}
						c.gone(q, "0")
						if got := p.Snapshot(n).Failing; len(got) != 1 || got[0].Key != fmt.Sprint(n-1) || p.Stats().Failing != 1 {
							t.Errorf("%d keys fail", len(got))
						}
					case "later":
						r.after(2 * time.Minute)
						if got := p.Stats().Failing; got != 1 {
							t.Errorf("after another minute %d keys fail", got)
						}
					}
					r.cancel()
					if e := left(t, r.returned()); !slices.Equal(e.Failing, []string{fmt.Sprint(n - 1)}) {
						t.Errorf("%d keys are left failing", len(e.Failing))
					}
				})
			})
		}
	}
}

// Keys that were waiting for their retry when somebody else shut the queue down are failing, and not gone.
func TestFailingKeysOfAQueueThatIsShutDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newPriorityQueue(priorityqueue.Config[string]{})
		q.Add("a")
		r := run(t, worker.New(q, func(context.Context, string) error { return errBroken }, options{}))
		q.ShutDown()
		if e := left(t, r.returned()); !slices.Equal(e.Failing, []string{"a"}) {
			t.Errorf("left: %+v", e)
		}
	})
}

// What a limiter that does not count by key answers does not mean that a key was forgotten.
func TestFailingWithLimiterThatDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.NewTypedRateLimitingQueue[string](slowestLimiter{workqueue.NewTypedMaxOfRateLimiter[string]()})
		q.Add("a")
		p := worker.New(q, func(context.Context, string) error { return errBroken }, options{})
		r := run(t, p)
		r.after(10 * time.Minute)
		if s := p.Snapshot(10); len(s.Failing) != 1 || s.Stats.Failing != 1 {
			t.Errorf("failing: %+v", s.Failing)
		}
		if e := left(t, r.end()); !slices.Equal(e.Failing, []string{"a"}) {
			t.Errorf("left: %+v", e)
		}
	})
}

// slowestLimiter makes every key wait for an hour, and counts nothing.
type slowestLimiter struct {
	workqueue.TypedRateLimiter[string]
}

func (slowestLimiter) When(string) time.Duration { return time.Hour }

func TestStats(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		p := worker.New(q, func(ctx context.Context, key string) error {
			if worker.Attempt(ctx) > 1 {
				return nil
			}
			time.Sleep(20 * time.Millisecond)
			switch key {
			case "fails":
				return errBroken
			case "panics":
				panic("oh")
			case "exits":
				runtime.Goexit()
			case "later":
				return worker.RequeueAfter(time.Hour)
			case "terminal":
				return worker.Terminal(errBroken)
			case "slow":
				<-ctx.Done()
				return nil
			case "stuck":
				time.Sleep(40 * time.Second)
			}
			return nil
		}, options{Name: "pool", Workers: 3, HandlerTimeout: 10 * time.Second, StuckAfter: 10 * time.Second})
		check := func(when string, want worker.Stats) {
			t.Helper()
			got := p.Stats()
			n := uint64(0)
			for _, count := range got.Durations.Counts {
				n += count
			}
			if n != got.Handled || len(got.Durations.Counts) != len(got.Durations.Bounds)+1 {
				t.Errorf("%s: %d durations of %d calls", when, n, got.Handled)
			}
			got.Durations, want.Name = nil, "pool"
			if got != want {
				t.Errorf("%s:\n got %+v\nwant %+v", when, got, want)
			}
		}
		check("before Run", worker.Stats{Wanted: 3})
		for _, key := range []string{"fine", "fails", "panics", "exits", "later", "terminal", "slow", "stuck"} {
			q.Add(key)
		}
		r := run(t, p)
		check("at once", worker.Stats{Wanted: 3, Living: 3, Busy: 3})
		r.after(30 * time.Millisecond)
		check("soon", worker.Stats{Wanted: 3, Living: 3, Busy: 3, Handled: 3, Failed: 2, Panicked: 1, Failing: 2})
		r.after(900 * time.Millisecond)
		check("then", worker.Stats{Wanted: 3, Living: 3, Busy: 2, Handled: 6, Failed: 4, Panicked: 1, Requeued: 1, Dropped: 1, Failing: 3})
		r.after(25 * time.Second)
		check("later", worker.Stats{Wanted: 3, Living: 3, Busy: 1, Stuck: 1, Handled: 10, Failed: 4, Panicked: 1, TimedOut: 1, Requeued: 1, Dropped: 1})
		h := p.Stats().Durations
		if want := 6*0.02 + 10; h.Sum < want-1e-6 || h.Sum > want+1e-6 || h.Counts[slices.Index(h.Bounds, 0.025)] != 6 ||
			h.Counts[slices.Index(h.Bounds, 10)] != 1 {
			t.Errorf("durations: %+v", h)
		}
		setWorkers(t, p, 0)
		synctest.Wait()
		check("paused", worker.Stats{Living: 1, Busy: 1, Stuck: 1, Handled: 10, Failed: 4, Panicked: 1, TimedOut: 1, Requeued: 1, Dropped: 1})
		setWorkers(t, p, 2)
		p.Stop(worker.Nothing)
		r.after(27 * time.Second)
		left(t, r.returned())
		check("given up", worker.Stats{Living: 1, Busy: 1, Stuck: 1, Handled: 10, Failed: 4, Panicked: 1, TimedOut: 1, Requeued: 1, Dropped: 1})
		r.after(time.Minute)
		check("ended", worker.Stats{Handled: 11, Failed: 4, Panicked: 1, TimedOut: 2, Requeued: 1, Dropped: 1, Ended: true})
	})
}

// Plus adds up every field, also one that is added to Stats later.
func TestStatsPlus(t *testing.T) {
	filled := func(n int) (s worker.Stats) {
		v := reflect.ValueOf(&s).Elem()
		for i := range v.NumField() {
			switch f := v.Field(i); f.Kind() {
			case reflect.Int:
				f.SetInt(int64(n * (i + 1)))
			case reflect.Uint64:
				f.SetUint(uint64(n * (i + 1)))
			}
		}
		s.Name, s.Ended = fmt.Sprint("pool ", n), true
		s.Durations = &workqueue.Histogram{Bounds: []float64{1}, Counts: []uint64{uint64(n), 0}, Sum: float64(n)}
		return s
	}
	a, b := filled(1), filled(2)
	want := filled(3)
	want.Name = "pool 1"
	if got := a.Plus(b); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if !reflect.DeepEqual(a, filled(1)) || !reflect.DeepEqual(b, filled(2)) {
		t.Error("Plus has changed what it added up")
	}
	b.Ended = false
	for _, got := range []worker.Stats{b.Plus(worker.Stats{}), worker.Stats{}.Plus(b)} {
		if !reflect.DeepEqual(got, b) {
			t.Errorf("with the zero Stats: got %+v, want %+v", got, b)
		}
	}
	if a.Plus(b).Ended {
		t.Error("ended, although one of the pools has not")
	}
}

func TestRunningKeys(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		start := time.Now()
		p := worker.New(q, func(ctx context.Context, key string) error {
			if worker.Attempt(ctx) == 1 && key == "a" {
				return errBroken
			}
			time.Sleep(10 * time.Second)
			return nil
		}, options{Workers: 2, StuckAfter: 5 * time.Second})
		q.Add("a")
		q.Add("b")
		r := run(t, p)
		r.after(6 * time.Second)
		want := []worker.RunningKey[string]{
			{Key: "b", Attempt: 1, Started: start, Duration: 6 * time.Second, Stuck: true},
			{Key: "a", Attempt: 2, Started: start.Add(time.Second), Duration: 5 * time.Second},
		}
		got := p.Snapshot(10).Running
		got[1].Stuck = false // At this very moment.
		if !slices.Equal(got, want) || len(p.Snapshot(1).Running) != 1 || len(p.Snapshot(-1).Running) != 0 {
			t.Errorf("running: %+v", got)
		}
		r.after(time.Minute)
		r.endCleanly()
	})
}

func TestSnapshotAsJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		p := worker.New(q, func(_ context.Context, key string) error {
			time.Sleep(time.Second)
			if key == "drops" {
				return worker.Terminal(errBroken)
			}
			if key == "fails" {
				return errBroken
			}
			time.Sleep(time.Minute)
			return nil
		}, options{Workers: 3})
		empty, err := json.Marshal(p.Snapshot(10))
		if err != nil || !strings.Contains(string(empty), `"running":[],"failing":[],"dropped":[]`) {
			t.Errorf("%s %v", empty, err)
		}
		q.Add("drops")
		q.Add("fails")
		q.Add("runs")
		r := run(t, p)
		r.after(1500 * time.Millisecond)
		text, err := json.Marshal(p.Snapshot(10))
		if err != nil {
			t.Fatal(err)
		}
		var back worker.Snapshot[string]
		if err := json.Unmarshal(text, &back); err != nil || back.Stats.Busy != 1 || back.Running[0].Key != "runs" ||
			back.Failing[0].NextTry.IsZero() || back.Dropped[0].Err != "broken" {
			t.Errorf("%s", text)
		}
		if strings.Count(string(text), "next_try") != 1 {
			t.Errorf("%s", text)
		}
		r.after(2 * time.Minute)
		r.end()
	})
}

// Errors of any length are kept in a bounded number of bytes.
func TestLongErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.Add("a")
		p := worker.New(q, func(context.Context, string) error {
			return errors.New(strings.Repeat("x", 1<<20))
		}, options{})
		r := run(t, p)
		if f := p.Snapshot(1).Failing; len(f) != 1 || f[0].Err != strings.Repeat("x", 1024) {
			t.Errorf("%d failing", len(f))
		}
		r.end()
	})
}
