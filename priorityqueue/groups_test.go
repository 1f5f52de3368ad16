package priorityqueue_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/keyedqueue/workqueue/internal/testkit"
	pq "github.com/keyedqueue/workqueue/priorityqueue"
)

// byPrefix groups keys by what is before the slash.
func byPrefix(key string) string {
	group, _, _ := strings.Cut(key, "/")
	return group
}

// After shutdown the keys of a group at its limit are handed out, as its others are Done.
func TestShutDownWithBlockedGroup(t *testing.T) {
	script(t, pq.Config[string]{Group: byPrefix, Limit: limit(1)}, func(t *testing.T, q *pq.Queue[string]) {
		q.AddWithOpts(pq.AddOpts{}, "a/1", "a/2")
		hold(t, q, "a/1")
		gets := []*testkit.Call[string]{startGet(q), startGet(q)}
		d := startDrain(q)
		for _, get := range gets {
			get.MustBlock(t, "Get while keys are left")
		}
		q.Done("a/1")
		synctest.Wait()
		q.Done("a/2")
		got := gets[0].MustReturn(t, "Get") + ", " + gets[1].MustReturn(t, "Get")
		if !strings.Contains(got, "a/2 <nil>") || !strings.Contains(got, "shut down") {
			t.Errorf("getters got %s", got)
		}
		if err := d.MustReturn(t, "drain"); err != nil {
			t.Error(err)
		}
		if _, err := q.GetContext(context.Background()); err == nil {
			t.Error("Get after the end")
		}
	})
}

// Each group has its own limit, and a group whose limit changes follows.
func TestLimits(t *testing.T) {
	limits := map[string]int{"a": 1, "b": 2, "c": 0, "d": -5}
	config := pq.Config[string]{Group: byPrefix, Limit: func(group string) int { return limits[group] }}
	script(t, config, func(t *testing.T, q *pq.Queue[string]) {
		for _, g := range []string{"a", "b", "c", "d"} {
			for i := range 4 {
				q.Add(fmt.Sprint(g, "/", i))
			}
		}
		get := func() (got string) {
			batch, err := q.GetBatch(t.Context(), 100)
			if err != nil {
				t.Error(err)
			}
			return strings.Join(keysOf(batch), " ")
		}
		if got := get(); got != "a/0 b/0 c/0 d/0 b/1 c/1 d/1 c/2 d/2 c/3 d/3" {
			t.Errorf("got %s", got)
		}
		if st := q.Stats(); st.Blocked != 5 || st.Queued != 5 {
			t.Errorf("Stats() = %+v, want 5 blocked", st)
		}
		limits["a"] = 3
		q.Add("a/1") // is in the queue, so nothing is asked of it
		if st := q.Stats(); st.Blocked != 5 {
			t.Errorf("Stats() = %+v, want 5 blocked", st)
		}
		q.Add("a/4")
		if got := get(); got != "a/1 a/2" {
			t.Errorf("got %s, with the higher limit", got)
		}
		limits["b"] = 1
		q.Add("b/4") // two are held, more than the lower limit
		if st := q.Stats(); st.Blocked != 5 || st.Queued != 5 {
			t.Errorf("Stats() = %+v, want 5 blocked", st)
		}
		q.Done("b/0") // one is still held
		if st := q.Stats(); st.Blocked != 5 || st.Queued != 5 {
			t.Errorf("Stats() = %+v, want 5 blocked", st)
		}
		q.Done("b/1")
		if got := get(); got != "b/2" {
			t.Errorf("got %s, with the lower limit", got)
		}
		limits["a"] = 0
		q.Add("a/5")
		if got := get(); got != "a/3 a/4 a/5" {
			t.Errorf("got %s, without a limit", got)
		}
	})
}

// The weight of a group that is there already counts from its next turn on.
func TestWeightChanges(t *testing.T) {
	weight := 1
	config := pq.Config[string]{Group: byPrefix, Weight: func(string) int { return weight }}
	script(t, config, func(t *testing.T, q *pq.Queue[string]) {
		q.AddWithOpts(pq.AddOpts{}, "a/1", "a/2", "a/3", "a/4", "b/1", "b/2", "b/3")
		hold(t, q, "a/1 b/1")
		weight = 2
		q.AddWithOpts(pq.AddOpts{}, "a/4") // is in the queue
		hold(t, q, "a/2 b/2")
		q.AddWithOpts(pq.AddOpts{}, "a/5")
		hold(t, q, "a/3 a/4 b/3 a/5")
	})
}
