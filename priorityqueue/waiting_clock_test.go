package priorityqueue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/internal/testkit"
	pq "github.com/keyedqueue/workqueue/priorityqueue"
)

// What waits is due when the clock was set forward, in its order, and what is added afterwards waits as long
// as it should.
func TestClockLeapsForward(t *testing.T) {
	c := testkit.NewFakeClock()
	config := pq.Config[string]{Clock: c, Aging: time.Second, MinInterval: time.Minute, Group: byPrefix}
	script(t, config, func(t *testing.T, q *pq.Queue[string]) {
		q.AddWithOpts(pq.AddOpts{Priority: -1}, "low", "held", "raised")
		q.AddWithOpts(pq.AddOpts{Priority: 10}, "raised")
		q.AddAfter("c", time.Hour)
		q.AddAfter("a", time.Minute)
		q.AddAfter("b", time.Minute)
		hold(t, q, "raised low")
		q.AddAfter("low", time.Hour)
		synctest.Wait()
		c.Step(24 * time.Hour)
		q.Done("raised")
		q.Done("low")
		q.AddWithOpts(pq.AddOpts{Priority: 1}, "new")
		// By age those that were queued and then those that came due. At now, by priority.
		drain(t, q, "held a b c new low")
		q.Add("new")
		q.AddAfter("d", 2*time.Minute)
		c.Step(time.Minute - 1)
		drain(t, q, "")
		c.Step(1)
		drain(t, q, "new")
		synctest.Wait()
		c.Step(time.Minute)
		drain(t, q, "d")
	})
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
