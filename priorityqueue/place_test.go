package priorityqueue_test

import (
	"slices"
	"testing"
	"time"

	pq "github.com/keyedqueue/workqueue/priorityqueue"
)

// With PlaceOfAdd a key that is added while a worker holds it has its place from then on. Others pass it only while it
// is held.
func TestPlaceOfAdd(t *testing.T) {
	for _, c := range []struct {
		place bool
		want  string
	}{{false, "c d a e b f"}, {true, "c a d b e f"}} {
		script(t, pq.Config[string]{PlaceOfAdd: c.place}, func(t *testing.T, q *pq.Queue[string]) {
			q.Add("a")
			q.Add("b")
			hold(t, q, "a b")
			q.Add("c")
			q.Add("a")
			q.Add("d")
			q.AddAfter("b", time.Second)
			time.Sleep(time.Second)
			q.Add("e")
			if st := q.Stats(); st.Queued != 3 || st.Again != 2 {
				t.Errorf("Stats() = %+v", st)
			}
			q.Done("a")
			if !c.place {
				q.Remove("e") // it would stand before b's place at Done
				q.Add("e")
			}
			q.Done("b")
			q.Add("f")
			drain(t, q, c.want)
		})
	}
	config := pq.Config[string]{PlaceOfAdd: true, Name: "q", MetricsProvider: &reader{}}
	script(t, config, func(t *testing.T, q *pq.Queue[string]) {
		q.AddAll(pq.AddOpts{}, slices.Values([]string{"a", "b", "x"}))
		hold(t, q, "a b x")
		q.AddAll(pq.AddOpts{}, slices.Values([]string{"a", "b", "x", "c"}))
		q.AddWithOpts(pq.AddOpts{Priority: 1}, "b") // to the end of another line
		q.Remove("x")
		drain(t, q, "c")
		get := startGet(q)
		get.MustBlock(t, "Get of held keys")
		q.Done("x")
		q.Done("a")
		if got := get.MustReturn(t, "Get"); got != "a <nil>" {
			t.Error(got)
		}
		q.Add("a")
		q.Done("b")
		hold(t, q, "b")
		if d := q.Stats().ByPriority; len(d.Depths) != 2 || d.Depths[0].Queued != 0 || d.Depths[1].Queued != 1 {
			t.Errorf("depths are %+v, want one key of priority 0", d)
		}
		q.DoneBatch("a", "b")
		drain(t, q, "a")
	})
}

// A held key that has its place in line, and then waits for the limiter instead, leaves that place.
func TestPlaceOfAddYieldsToRetry(t *testing.T) {
	config := pq.Config[string]{PlaceOfAdd: true, RateLimiter: fixed(time.Minute), Group: byPrefix, Limit: limit(1)}
	script(t, config, func(t *testing.T, q *pq.Queue[string]) {
		q.AddWithOpts(pq.AddOpts{Priority: 1}, "a/1", "b/1")
		hold(t, q, "a/1 b/1")
		q.AddWithOpts(pq.AddOpts{Delay: pq.RespectBackoff}, "b/1")
		q.AddRateLimited("b/1")
		wantAt(t, q, "b/1", "processing 1m0s")
		if err := q.CheckInvariants(); err != nil {
			t.Error(err)
		}
		q.Done("b/1")
		q.AddWithOpts(pq.AddOpts{}, "a/2", "b/2")
		hold(t, q, "b/2")
		q.Done("b/2")
		q.Done("a/1")
		drain(t, q, "a/2")
	})
}

// A key that has its place in line ages there.
func TestPlaceOfAddWithAging(t *testing.T) {
	script(t, pq.Config[string]{PlaceOfAdd: true, Aging: time.Second}, func(t *testing.T, q *pq.Queue[string]) {
		q.Add("a")
		hold(t, q, "a")
		q.Add("a")
		time.Sleep(5 * time.Second)
		q.Add("b")
		time.Sleep(time.Second)
		q.AddWithOpts(pq.AddOpts{Priority: 3}, "c")
		q.Done("a")
		drain(t, q, "a c b")
	})
}

// A key that leaves its place in line, where no other key is ready, leaves nothing behind.
func TestPlaceOfAddIsRemoved(t *testing.T) {
	for _, config := range []pq.Config[string]{{PlaceOfAdd: true}, {PlaceOfAdd: true, Aging: time.Second}} {
		script(t, config, func(t *testing.T, q *pq.Queue[string]) {
			q.AddAll(pq.AddOpts{}, slices.Values([]string{"a", "b"}))
			hold(t, q, "a b")
			q.AddAll(pq.AddOpts{}, slices.Values([]string{"a", "b"}))
			q.Remove("a")
			if err := q.CheckInvariants(); err != nil {
				t.Error(err)
			}
			q.DoneBatch("a", "b")
			drain(t, q, "b")
		})
	}
}
