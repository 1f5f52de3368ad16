package priorityqueue_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	pq "github.com/keyedqueue/workqueue/priorityqueue"
)

// A key that fails is shown as SnapshotKey shows it, and limits without sense show nothing.
func TestSnapshotOfFailures(t *testing.T) {
	for _, observed := range []bool{false, true} {
		config := pq.Config[string]{Name: "q", RateLimiter: fixed(time.Minute)}
		if observed {
			config.MetricsProvider = &reader{}
		}
		script(t, config, func(t *testing.T, q *pq.Queue[string]) {
			q.AddWithOpts(pq.AddOpts{}, "waits", "held")
			hold(t, q, "waits held")
			q.AddRateLimited("waits")
			q.AddRateLimited("held")
			q.Done("waits")
			failing := q.Snapshot(9).Failing
			if len(failing) != 2 {
				t.Errorf("failing: %+v", failing)
			}
			for _, k := range failing {
				if want, _ := q.SnapshotKey(k.Key); k != want || k.Requeues != 1 || k.Due.IsZero() ||
					k.Since.IsZero() == (observed || k.Key == "waits") {
					t.Errorf("Snapshot has the failing key %+v, SnapshotKey has %+v", k, want)
				}
			}
			for _, limit := range []int{0, -1} {
				s := q.Snapshot(limit)
				if len(s.Failing)+len(s.Waiting)+len(s.Processing) != 0 || !reflect.DeepEqual(s.Stats, q.Stats()) {
					t.Errorf("Snapshot(%d) = %+v", limit, s)
				}
			}
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

// SnapshotKey shows a key in each state, and a key in two. (The model has the lists.)
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
	})
}
