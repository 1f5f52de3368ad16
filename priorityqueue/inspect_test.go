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
	pq "github.com/keyedqueue/workqueue/priorityqueue"
)

func TestSnapshot(t *testing.T) {
	for _, observed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			config := pq.Config[string]{Name: "q",
				RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[string](
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
			// A key that fails is shown as SnapshotKey shows it.
			failing := q.Snapshot(9).Failing
			if len(failing) != 2 {
				t.Errorf("failing: %+v", failing)
			}
			for _, k := range failing {
				if want, _ := q.SnapshotKey(k.Key); k != want || k.Requeues != 1 || k.Due.IsZero() ||
					k.Since.IsZero() == (observed || k.Key == "x") {
					t.Errorf("Snapshot has the failing key %+v, SnapshotKey has %+v", k, want)
				}
			}
			q.ShutDown()
		})
	}
}

// Keys of one priority come from each group in turn, and blocked keys last.
func TestSnapshotOfGroups(t *testing.T) {
	config := pq.Config[string]{Group: byPrefix,
		Limit: func(group string) int { return map[string]int{"full": 1}[group] }}
	script(t, config, func(t *testing.T, q *pq.Queue[string]) {
		q.AddWithOpts(pq.AddOpts{Priority: 9}, "full/held", "full/1", "full/2")
		hold(t, q, "full/held")
		q.AddWithOpts(pq.AddOpts{}, "a/1", "a/2", "a/3", "b/1", "b/2")
		q.AddWithOpts(pq.AddOpts{Priority: 1}, "a/first")
		var got []string
		for _, k := range q.Snapshot(9).Queued {
			if k.Blocked != (k.Group == "full") {
				t.Errorf("%+v", k)
			}
			got = append(got, k.Key)
		}
		if s := strings.Join(got, " "); s != "a/first a/1 b/1 a/2 b/2 a/3 full/1 full/2" &&
			s != "a/first b/1 a/1 b/2 a/2 a/3 full/1 full/2" {
			t.Errorf("Snapshot has %s", s)
		}
	})
}

// Snapshot never copies more than 512 keys of each state. SnapshotKeys has all.
func TestSnapshotIsBounded(t *testing.T) {
	const n = 1500
	for _, config := range []pq.Config[string]{{}, {Name: "q", MetricsProvider: &reader{}}} {
		script(t, config, func(t *testing.T, q *pq.Queue[string]) {
			for i := range n {
				q.Add(fmt.Sprint("held ", i))
				q.Get()
				q.AddAfter(fmt.Sprint("waiting ", i), time.Duration(i+1)*time.Minute)
			}
			for i := range n {
				q.AddWithOpts(pq.AddOpts{Priority: i % 2}, fmt.Sprint("queued ", i))
			}
			s := q.Snapshot(n)
			if len(s.Processing) != 512 || len(s.Queued) != 512 || len(s.Waiting) != 512 {
				t.Fatalf("Snapshot(%d) has %d, %d and %d keys", n, len(s.Processing), len(s.Queued), len(s.Waiting))
			}
			for i := range 512 {
				for _, c := range []struct{ got, want string }{
					{s.Processing[i].Key, fmt.Sprint("held ", i)}, {s.Queued[i].Key, fmt.Sprint("queued ", 2*i+1)},
					{s.Waiting[i].Key, fmt.Sprint("waiting ", i)},
				} {
					if c.got != c.want {
						t.Fatalf("number %d is %s, want %s", i, c.got, c.want)
					}
				}
			}
			counts := map[workqueue.KeyState]int{}
			for k := range q.SnapshotKeys() {
				counts[k.State]++
			}
			if counts[workqueue.KeyProcessing] != n || counts[workqueue.KeyQueued] != n ||
				counts[workqueue.KeyWaiting] != n {
				t.Errorf("SnapshotKeys has %v", counts)
			}
		})
	}
}

// SnapshotKey shows a key in each state, and a key in two.
func TestSnapshotKey(t *testing.T) {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Minute, time.Hour)
	config := pq.Config[string]{Group: byPrefix, Limit: limit(1), RateLimiter: limiter, Name: "q",
		MetricsProvider: &reader{}}
	script(t, config, func(t *testing.T, q *pq.Queue[string]) {
		began := time.Now()
		q.AddWithOpts(pq.AddOpts{Priority: 3}, "a/held", "a/blocked")
		hold(t, q, "a/held")
		time.Sleep(time.Second)
		q.AddRateLimited("a/held")
		q.AddRateLimited("b/waits")
		now := time.Now()
		for _, want := range []workqueue.KeySnapshot[string]{
			{Key: "a/held", State: workqueue.KeyProcessing, Since: began, Due: now.Add(time.Minute), Again: true,
				Requeues: 1, Priority: 3, Group: "a"},
			{Key: "a/blocked", State: workqueue.KeyQueued, Since: began, Priority: 3, Group: "a", Blocked: true},
			{Key: "b/waits", State: workqueue.KeyWaiting, Since: now, Due: now.Add(time.Minute), Requeues: 1,
				Group: "b"},
			{Key: "absent"},
		} {
			got, found := q.SnapshotKey(want.Key)
			if !got.Since.Equal(want.Since) || !got.Due.Equal(want.Due) || found != (want.State != "") {
				t.Errorf("SnapshotKey(%s) = %+v, %v, want %+v", want.Key, got, found, want)
			}
			if got.Failures != q.Failures(want.Key) {
				t.Errorf("SnapshotKey(%s) has failures %+v, Failures() = %+v", want.Key, got.Failures, q.Failures(want.Key))
			}
			got.Since, got.Due, got.Failures = want.Since, want.Due, workqueue.Failures{}
			if got != want {
				t.Errorf("SnapshotKey(%s) = %+v, want %+v", want.Key, got, want)
			}
		}
		states := map[workqueue.KeyState]string{}
		for k := range q.SnapshotKeys() {
			states[k.State] += k.Key
		}
		if states[workqueue.KeyProcessing] != "a/held" || states[workqueue.KeyQueued] != "a/blocked" ||
			len(states[workqueue.KeyWaiting]) != len("a/heldb/waits") {
			t.Errorf("SnapshotKeys has %v", states)
		}
		if i := workqueue.Inspect(q); i.SnapshotKey == nil || i.SnapshotKeys == nil || i.Remove == nil ||
			i.Pause == nil {
			t.Error("tools do not find all methods")
		}
	})
}
