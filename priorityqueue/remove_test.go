package priorityqueue_test

import (
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/internal/testkit"
	pq "github.com/keyedqueue/workqueue/priorityqueue"
)

// A key that is removed does not keep a drain or the loop waiting. (The model removes keys of every state.)
func TestRemove(t *testing.T) {
	script(t, pq.Config[string]{}, func(t *testing.T, q *pq.Queue[string]) {
		base := testkit.Goroutines()
		q.AddAfter("waits", time.Second)
		q.Remove("waits")
		base.WantMore(t, "after Remove of the last key that waits", 0)
		q.Add("held")
		hold(t, q, "held")
		q.AddCause("held", *because("1"))
		q.Remove("held")
		q.Add("held")
		q.Done("held")
		wantCauses(t, q, "held", "") // of the add that was taken back
		drain(t, q, "held")
		q.Add("queued")
		d := startDrain(q)
		d.MustBlock(t, "drain")
		if !q.Remove("queued") || q.Remove("queued") {
			t.Error("Remove does not say whether the key was there")
		}
		if err := d.MustReturn(t, "drain after Remove"); err != nil {
			t.Error(err)
		}
	})
}
