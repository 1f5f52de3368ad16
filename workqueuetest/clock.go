package workqueuetest

import (
	"fmt"
	"testing/synctest"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

// clockCases are about a clock that is set, which only a fake one can be.
func clockCases() []testCase {
	return []testCase{
		bubbled("ClockJumpsBack", "When the clock is set back, keys come when it reads their times again.", tryClockJumpsBack),
		bubbled("ClockJumpsForward", "When the clock is set forward, the keys whose times have passed come at once, in order.", tryClockJumpsForward),
		bubbled("FakeClock", "Nothing happens until the fake clock is stepped, and nothing needs real time.", tryFakeClock),
	}
}

// needFakeClock skips the case on the real clock.
func (r *run) needFakeClock() *testingclock.FakeClock {
	if r.suite.IgnoresClock {
		r.lacks("use for a clock")
	}
	if r.fake == nil {
		r.skip("on the real clock")
	}
	return r.fake
}

const century = 100 * 365 * 24 * time.Hour

func tryClockJumpsBack(r *run) {
	c := r.needFakeClock()
	for _, d := range []time.Duration{1, time.Second, time.Hour, century} {
		c.SetTime(epoch)
		q := capable[delaying](r, Config[string]{})
		for i, key := range []string{"c", "b", "a"} {
			q.AddAfter(key, time.Duration(3-i)*time.Hour)
		}
		r.pass(0)
		r.pass(-d)
		r.wantLen(q, fmt.Sprintf("the clock is set back by %v", d), 0)
		q.AddAfter("now", time.Minute) // is due by what the clock reads now
		synctest.Wait()
		r.pass(time.Minute - 1)
		r.wantLen(q, "before the time of a key that was added after the jump", 0)
		r.pass(1)
		r.process(q, "at the time of a key that was added after the jump", "now")
		for i, key := range []string{"a", "b", "c"} {
			due := epoch.Add(time.Duration(i+1) * time.Hour)
			c.SetTime(due.Add(-1))
			synctest.Wait()
			r.wantLen(q, "before the time of key "+key, 0)
			c.SetTime(due)
			synctest.Wait()
			r.process(q, "at the time of key "+key, key)
		}
		q.ShutDown()
	}
}

func tryClockJumpsForward(r *run) {
	r.needFakeClock()
	// Not by a century: a fake clock fires each tick on the way, for a queue that has a ticker.
	for _, d := range []time.Duration{time.Hour, 1000 * time.Hour} {
		q := capable[delaying](r, Config[string]{})
		for i, key := range []string{"c", "a", "b"} {
			q.AddAfter(key, []time.Duration{time.Hour, time.Minute, 2 * time.Minute}[i])
		}
		r.pass(d)
		r.process(q, fmt.Sprintf("the clock is set forward by %v", d), "a", "b", "c")
		q.AddAfter("d", time.Hour)
		r.pass(time.Hour - 1)
		r.wantLen(q, "before the time of a key that was added after the jump", 0)
		r.pass(1)
		r.process(q, "at the time of a key that was added after the jump", "d")
		q.ShutDown()
	}
}

func tryFakeClock(r *run) {
	r.needFakeClock()
	q := capable[delaying](r, Config[string]{})
	q.AddAfter("a", time.Second)
	synctest.Wait()
	time.Sleep(100 * time.Hour)
	synctest.Wait()
	r.wantLen(q, "100 hours later, with the clock not stepped", 0)
	r.pass(time.Second)
	r.process(q, "the clock is stepped", "a")
}
