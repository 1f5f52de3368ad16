package priorityqueue_test

import (
	"testing"
	"testing/synctest"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	pq "github.com/keyedqueue/workqueue/priorityqueue"

	"github.com/keyedqueue/workqueue/internal/testkit"
)

// What waits is due when the clock was set forward, in its order, and what is added afterwards waits as long as it
// should. The queue reaches 292 years: beyond that its time stands still, and it still hands out what is ready.
func TestClockLeapsForward(t *testing.T) {
	c := testkit.NewFakeClock()
	config := pq.Config[string]{Clock: c, Aging: time.Second, MinInterval: time.Minute, Group: byPrefix}
	script(t, config, func(t *testing.T, q *pq.Queue[string]) {
		for _, years := range []int{150, 100} {
			q.AddWithOpts(pq.AddOpts{Priority: -1}, "low", "held", "raised")
			q.AddWithOpts(pq.AddOpts{Priority: 10}, "raised")
			q.AddAfter("c", time.Hour)
			q.AddAfter("a", time.Minute)
			q.AddAfter("b", time.Minute)
			hold(t, q, "raised low")
			q.AddAfter("low", time.Hour)
			synctest.Wait()
			c.SetTime(c.Now().AddDate(years, 0, 0))
			q.Done("raised")
			q.Done("low")
			if err := q.CheckInvariants(); err != nil {
				t.Fatal(err)
			}
			q.AddWithOpts(pq.AddOpts{Priority: 1}, "new")
			// By age those that were ready and then those that came due. At now, by priority.
			drain(t, q, "held a b c new low")
			q.Add("new")
			q.AddAfter("d", 2*time.Minute)
			c.Step(time.Minute - 1)
			drain(t, q, "")
			c.Step(1)
			drain(t, q, "new")
			info, _ := q.Inspect("d")
			if until := info.Due.Sub(c.Now()); until != time.Minute {
				t.Errorf("d is due in %v, want 1m", until)
			}
			synctest.Wait()
			c.Step(time.Minute)
			drain(t, q, "d")
			c.Step(time.Hour)
		}
		c.SetTime(c.Now().AddDate(2000, 0, 0))
		q.AddWithOpts(pq.AddOpts{Priority: 1}, "b", "c")
		q.Add("a")
		q.AddAfter("never", time.Hour)
		c.Step(2 * time.Hour)
		drain(t, q, "b c a")
		wantAt(t, q, "b", "absent")
	})
}

// leapingClock calls afterSince, unless nil, when it has been read.
type leapingClock struct {
	*testingclock.FakeClock
	afterSince func()
}

func (c *leapingClock) Since(t time.Time) time.Duration {
	d := c.FakeClock.Since(t)
	if c.afterSince != nil {
		c.afterSince()
	}
	return d
}

// The clock may leap after a call has read it and before it locks the queue. What was read still counts.
func TestClockLeapsWhileItIsRead(t *testing.T) {
	c := &leapingClock{FakeClock: testkit.NewFakeClock()}
	config := pq.Config[string]{Clock: c, MinInterval: time.Minute, Name: "q", MetricsProvider: &reader{}}
	script(t, config, func(t *testing.T, q *pq.Queue[string]) {
		get := startGet(q)
		get.MustBlock(t, "Get")
		leapAt := func(reading int) {
			c.afterSince = func() {
				if reading--; reading == 0 {
					c.afterSince = nil
					c.SetTime(c.Now().AddDate(150, 0, 0))
					q.Len()
				}
			}
		}
		leapAt(2) // the first one is Add's, then the getter wakes up
		q.Add("a")
		if got := get.MustReturn(t, "Get"); got != "a <nil>" {
			t.Fatalf("Get() = %s", got)
		}
		if st := q.Stats(); st.Latency.Sum != 0 || st.LongestRunning != c.Since(testkit.Epoch) {
			t.Errorf("Stats() = %+v", st)
		}
		q.Done("a")
		leapAt(1)
		q.AddAfter("b", time.Minute) // before the leap
		drain(t, q, "b")
	})
}

// A clock that goes back makes nothing early. Keys do not age until it is where it was.
func TestClockLeapsBack(t *testing.T) {
	c := testkit.NewFakeClock()
	script(t, pq.Config[string]{Clock: c, Aging: time.Second}, func(t *testing.T, q *pq.Queue[string]) {
		q.AddAfter("a", time.Hour)
		synctest.Wait()
		c.SetTime(time.Time{})
		drain(t, q, "")
		c.SetTime(testkit.Epoch.Add(time.Hour - 1))
		synctest.Wait()
		drain(t, q, "")
		c.Step(1)
		drain(t, q, "a")
		synctest.Wait()
		c.SetTime(testkit.Epoch.AddDate(-200, 0, 0))
		q.Add("b")
		c.Step(time.Second)
		q.AddWithOpts(pq.AddOpts{Priority: 2, After: 2 * time.Second}, "c")
		synctest.Wait()
		c.Step(2 * time.Second)
		drain(t, q, "c b")
	})
}
