package priorityqueue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/internal/testkit"
	pq "github.com/keyedqueue/workqueue/priorityqueue"
)

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
