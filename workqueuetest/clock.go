package workqueuetest

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

// clockCases are about a clock that is set forward or back. Only a fake clock can be.
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
		q.AddAfter("now", time.Minute) // its time is relative to what the clock reads now
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
	// Not by a century: if the queue has a ticker, a fake clock fires every tick on the way.
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

// clockStress steps and sets a fake clock, forward and back, while keys are put in and come due.
type clockStress struct {
	r *run
	q delaying
	c *testingclock.FakeClock

	// steps is write-locked while the clock is set, so that the times in due are right. The queue does not use it:
	// for the queue the clock may change at any moment. It guards what follows.
	steps           sync.RWMutex
	highest, latest time.Duration // since epoch: the highest reading so far, and the last due time
	due             []time.Duration

	seen []atomic.Int32
}

func (r *run) stressClock(random *rand.Rand) {
	const keys = 40
	if r.suite.IgnoresClock {
		r.lacks("use for a clock")
	}
	s := &clockStress{
		r: r, c: testingclock.NewFakeClock(epoch),
		due: make([]time.Duration, keys), seen: make([]atomic.Int32, keys),
	}
	s.q = capable[delaying](r, Config[string]{Clock: s.c})
	var working, stepping sync.WaitGroup
	working.Add(1)
	r.start(s.work, working.Done)
	for range 2 {
		random := rand.New(rand.NewPCG(random.Uint64(), 0))
		stepping.Add(1)
		r.start(func() { s.step(random) }, stepping.Done)
	}
	for key := range keys {
		d := time.Duration(1+random.IntN(20_000)) * time.Millisecond
		s.steps.Lock()
		s.due[key] = s.c.Since(epoch) + d
		s.latest = max(s.latest, s.due[key])
		s.q.AddAfter(fmt.Sprint(key), d)
		s.steps.Unlock()
	}
	stepping.Wait()
	// Step to the last due time and no further: a queue that started its timer while the clock was being set, and
	// therefore sleeps too long, would never wake.
	s.steps.Lock()
	s.set(s.latest)
	s.steps.Unlock()
	s.wantAll()
	s.q.ShutDown()
	working.Wait()
	s.wantAll()
}

// set sets the clock. The caller holds steps.
func (s *clockStress) set(to time.Duration) {
	s.highest = max(s.highest, to)
	s.c.SetTime(epoch.Add(to))
}

func (s *clockStress) step(random *rand.Rand) {
	for range 40 {
		s.steps.Lock()
		switch d := time.Duration(random.IntN(3000)) * time.Millisecond; random.IntN(4) {
		case 0:
			s.set(s.c.Since(epoch) - d)
		case 1:
			s.set(time.Duration(random.IntN(20)) * time.Second)
		default:
			s.set(s.c.Since(epoch) + d)
		}
		s.steps.Unlock()
		for range random.IntN(20) {
			runtime.Gosched()
		}
	}
}

func (s *clockStress) work() {
	for {
		name, shutdown := s.q.Get()
		if shutdown {
			return
		}
		var key int
		_, _ = fmt.Sscan(name, &key)
		s.steps.RLock()
		if s.highest < s.due[key] {
			s.r.Errorf("key %d is due at %v, and came when the clock had been %v at most", key, s.due[key], s.highest)
		}
		s.steps.RUnlock()
		s.seen[key].Add(1)
		s.q.Done(name)
	}
}

// wantAll waits until every key has come, and asserts that none has come twice.
func (s *clockStress) wantAll() {
	for deadline := time.Now().Add(patience / 3); ; time.Sleep(100 * time.Microsecond) {
		missing := 0
		for key := range s.seen {
			switch n := s.seen[key].Load(); {
			case n == 0:
				missing++
			case n > 1:
				s.r.Fatalf("key %d came %d times", key, n)
			}
		}
		if missing == 0 {
			return
		}
		if time.Now().After(deadline) {
			s.r.Fatalf("%d keys have not come, and the clock reads the last one's time", missing)
		}
	}
}
