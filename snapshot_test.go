package workqueue_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
)

// describe is a short text of what a Snapshot has: a:2 is a key that was there two seconds after the epoch.
func describe(keys []workqueue.KeySnapshot[string]) string {
	s := ""
	for _, k := range keys {
		s += k.Key
		if !k.Since.IsZero() {
			s += fmt.Sprint(":", k.Since.Sub(testkit.Epoch).Seconds())
		}
		if !k.Due.IsZero() {
			s += fmt.Sprint("-", k.Due.Sub(testkit.Epoch).Seconds())
		}
		if k.Again {
			s += "+"
		}
		if k.Requeues > 0 {
			s += fmt.Sprint("*", k.Requeues)
		}
		s += " "
	}
	return s
}

func wantSnapshot(t *testing.T, q workqueue.Extended[string], limit int, processing, queued, waiting string) {
	t.Helper()
	s := q.Snapshot(limit)
	if got := describe(s.Processing); got != processing {
		t.Errorf("limit %d: processing: %s, want %s", limit, got, processing)
	}
	if got := describe(s.Queued); got != queued {
		t.Errorf("limit %d: queued: %s, want %s", limit, got, queued)
	}
	if got := describe(s.Waiting); got != waiting {
		t.Errorf("limit %d: waiting: %s, want %s", limit, got, waiting)
	}
	stats := q.Stats()
	s.Stats.Latency, s.Stats.WorkDuration, stats.Latency, stats.WorkDuration = nil, nil, nil, nil
	if s.Stats != stats {
		t.Errorf("limit %d: Stats = %+v, want %+v", limit, s.Stats, stats)
	}
}

func TestSnapshot(t *testing.T) {
	everyDelayingLayer(t, func(t *testing.T, build delayerBuilder[string]) {
		c := testkit.NewFakeClock()
		q := build(options[string]{name: "q", provider: testkit.Times{}, clock: c})
		wantSnapshot(t, q, 10, "", "", "")
		for _, key := range []string{"a", "b", "c", "d", "e"} {
			q.Add(key)
			c.Step(time.Second)
		}
		hold(t, q, "a", "b")
		c.Step(time.Second)
		hold(t, q, "c")
		q.Add("b")
		q.AddAfter("x", 20*time.Second)
		c.Step(time.Second)
		q.AddAfter("x", 10*time.Second) // waits since the first
		q.AddAfter("y", 5*time.Second)
		q.AddAfter("z", 30*time.Second)
		q.AddAfter("a", 40*time.Second)
		wantSnapshot(t, q, 10, "a:5 b:5+ c:6 ", "d:3 e:4 ", "y:7-12 x:6-17 z:7-37 a:7-47 ")
		wantSnapshot(t, q, 1, "a:5 ", "d:3 ", "y:7-12 ")
		wantSnapshot(t, q, 0, "", "", "")
		wantSnapshot(t, q, -1, "", "", "")
		q.Done("a")
		q.Done("b")
		wantSnapshot(t, q, 10, "c:6 ", "d:3 e:4 b:6 ", "y:7-12 x:6-17 z:7-37 a:7-47 ")
		q.ShutDown()
		wantSnapshot(t, q, 10, "c:6 ", "d:3 e:4 b:6 ", "")
	})
}

func wantState(t *testing.T, what string, keys []workqueue.KeySnapshot[int],
	state workqueue.KeyState, n int) {
	t.Helper()
	if len(keys) != n {
		t.Errorf("%s has %d keys, want %d", what, len(keys), n)
	}
	for _, k := range keys {
		if k.State != state {
			t.Errorf("%s: %+v, want %s", what, k, state)
		}
	}
}

// SnapshotKeys yields each key once, even if others come and go meanwhile. Snapshot lists 512 of each state.
// Without metrics there are no times.
func TestSnapshotKeys(t *testing.T) {
	const n = 3000
	everyLayer(t, func(t *testing.T, build builder[int]) {
		for _, name := range []string{"", "named"} {
			q := build(options[int]{name: name, provider: testkit.Times{}})
			delaying, delays := q.(delayer[int])
			want := make(map[int]workqueue.KeyState)
			for key := range n {
				q.Add(key)
				want[key] = workqueue.KeyQueued
			}
			for range n / 3 {
				key, _ := q.Get()
				want[key] = workqueue.KeyProcessing
			}
			for key := range n / 6 { // gaps
				q.Done(key)
				delete(want, key)
			}
			waiting := 0
			if delays {
				waiting = n
				for key := n; key < 2*n; key++ {
					delaying.AddAfter(key, time.Hour)
					want[key] = workqueue.KeyWaiting
				}
			}
			step := 0
			for k := range q.SnapshotKeys() {
				if step++; step%100 == 0 { // Keys come and go meanwhile, and slabs with them.
					q.Add(-step)
					if delays {
						delaying.AddAfter(-step, time.Minute)
					}
				}
				if k.Key < 0 {
					continue
				}
				if k.State != want[k.Key] || k.Since.IsZero() != (name == "" && k.State != workqueue.KeyWaiting) {
					t.Fatalf("%+v, want state %q", k, want[k.Key])
				}
				delete(want, k.Key)
			}
			if len(want) > 0 {
				t.Errorf("%d keys were not yielded", len(want))
			}
			for range q.SnapshotKeys() {
				break
			}
			s := q.Snapshot(n)
			wantState(t, "Processing", s.Processing, workqueue.KeyProcessing, n/6)
			wantState(t, "Queued", s.Queued, workqueue.KeyQueued, 512)
			wantState(t, "Waiting", s.Waiting, workqueue.KeyWaiting, min(waiting, 512))
			q.ShutDown()
		}
	})
}

func TestSnapshotKey(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[string]) {
		c := testkit.NewFakeClock()
		q := build(options[string]{name: "q", provider: testkit.Times{}, clock: c})
		want := func(key, description string, state workqueue.KeyState) {
			t.Helper()
			k, found := q.SnapshotKey(key)
			got := describe([]workqueue.KeySnapshot[string]{k})
			if got != description || k.State != state || found != (state != "") {
				t.Errorf("SnapshotKey(%s) = %s, %s, %v, want %s, %s", key, got, k.State, found, description, state)
			}
		}
		want("a", "a ", "")
		q.Add("a")
		want("a", "a:0 ", workqueue.KeyQueued)
		c.Step(time.Second)
		hold(t, q, "a")
		want("a", "a:1 ", workqueue.KeyProcessing)
		q.Add("a")
		want("a", "a:1+ ", workqueue.KeyProcessing)
		if d, ok := q.(delayer[string]); ok {
			d.AddAfter("a", time.Minute)
			d.AddAfter("b", time.Minute)
			want("a", "a:1-61+ ", workqueue.KeyProcessing)
			want("b", "b:1-61 ", workqueue.KeyWaiting)
			q.Done("a")
			want("a", "a:1-61 ", workqueue.KeyQueued)
		} else {
			q.Done("a")
		}
		if limited, ok := q.(workqueue.TypedRateLimitingInterface[string]); ok {
			limited.AddRateLimited("c")
			q.ShutDown()
			want("c", "c*1 ", "")
		}
		q.ShutDown()
	})
}

// A key that has come due, and is not in the queue below yet, is found.
func TestSnapshotKeyOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		arrived := make(chan struct{})
		below := &hookedQueue[int]{workqueue.NewTyped[int](), func() { <-arrived }}
		q := workqueue.NewTypedDelayingQueueWithConfig(
			workqueue.TypedDelayingQueueConfig[int]{Queue: below}).(delayer[int])
		q.AddAfter(1, time.Second)
		q.AddAfter(2, time.Hour)
		time.Sleep(time.Second)
		synctest.Wait()
		if k, found := q.SnapshotKey(1); k.State != workqueue.KeyQueued || !found {
			t.Errorf("SnapshotKey() = %+v, %v of a key that is on its way", k, found)
		}
		close(arrived)
		synctest.Wait()
		q.ShutDown()
	})
}

// The keys that fail most wait longest, so they are not among the first that wait.
func TestSnapshotOfFailingKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[int](time.Second, time.Hour)
		q := workqueue.NewQueue(limiter, workqueue.TypedRateLimitingQueueConfig[int]{})
		defer q.ShutDown()
		fail := func(key int) {
			q.Add(key)
			q.Get()
			_, _ = q.Fail(t.Context(), key, workqueue.Failure{})
			q.Done(key)
		}
		for range 6 {
			fail(7)
			time.Sleep(q.Failures(7).Left)
			q.Get() // The retry.
			q.Done(7)
		}
		fail(7)
		for key := range 3 {
			fail(key)
		}
		q.Add(0)
		began := time.Now()
		time.Sleep(500 * time.Millisecond)
		s := q.Snapshot(2)
		if len(s.Waiting) != 2 || s.Waiting[0].Key != 0 || len(s.Failing) != 2 || s.Waiting[0].Requeues != 1 ||
			s.Queued[0].Requeues != 1 {
			t.Fatalf("waiting %v, failing %v", s.Waiting, s.Failing)
		}
		first := s.Failing[0]
		if first.Key != 7 || first.Requeues != 7 || first.Failures.Count != 7 || first.State != workqueue.KeyWaiting ||
			!first.Since.Equal(began) || !first.Due.Equal(began.Add(64*time.Second)) {
			t.Errorf("failing most: %+v", first)
		}
		if s := q.Snapshot(-1); s.Failing != nil {
			t.Errorf("of no keys, failing are %v", s.Failing)
		}
	})
}
