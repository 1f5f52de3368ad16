package workqueue_test

import (
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/keyedqueue/workqueue/internal/testkit"
)

const century = 100 * 365 * 24 * time.Hour

// A delay may be longer than the queue's times reach. The key waits, and the loop does not spin.
func TestLongDelays(t *testing.T) {
	everyDelayingLayer(t, func(t *testing.T, build delayerBuilder[string]) {
		fake := testkit.NewFakeClock()
		var readings atomic.Int64
		q := build(options[string]{clock: &testkit.HookedClock{WithTicker: fake, OnNow: func() {
			if readings.Add(1) > 1000 {
				panic("the waiting loop spins")
			}
		}}})
		q.AddAfter("very long", math.MaxInt64)
		q.AddAfter("first", time.Minute)
		fake.Step(30 * time.Second)
		q.AddAfter("longest", math.MaxInt64)
		fake.Step(century)
		synctest.Wait()
		process(t, q, "first")
		fake.Step(century)
		synctest.Wait()
		q.ShutDown()
		if st := q.Stats(); st.Queued != 0 || st.Dropped != 2 {
			t.Errorf("Stats() = %+v, want two keys dropped", st)
		}
	})
}

// A fake clock may be stepped at any moment: also after the loop has computed for how long to sleep, and
// before its timer runs. The timer then has its end too late by the step, and a key that comes due
// before that must come in time all the same.
func TestClockIsSteppedWhileTheTimerStarts(t *testing.T) {
	const due = 8 * time.Second
	// Which reading of the clock, or which start of the timer, the step comes before. The first reading is
	// that of AddAfter.
	moments := map[string]struct{ now, reset int32 }{
		"reading 2": {now: 2}, "reading 3": {now: 3}, "reading 4": {now: 4}, "reset": {reset: 1},
	}
	for name, moment := range moments {
		for _, d := range []time.Duration{
			time.Second, 5 * time.Second, due - 1, due, due + 1, time.Hour, -1, -time.Second, -time.Hour,
			1, time.Microsecond, time.Millisecond,
		} {
			t.Run(name+","+d.String(), func(t *testing.T) {
				everyDelayingLayer(t, func(t *testing.T, build delayerBuilder[string]) {
					fake := testkit.NewFakeClock()
					var toNow, toReset atomic.Int32
					stepAt := func(n *atomic.Int32) func() {
						return func() {
							if n.Add(-1) == 0 {
								fake.Step(d)
							}
						}
					}
					q := build(options[string]{clock: &testkit.HookedClock{
						WithTicker: fake, OnNow: stepAt(&toNow), OnReset: stepAt(&toReset),
					}})
					q.AddAfter("far", 2*time.Hour)
					synctest.Wait() // The loop sleeps; the next key makes it start its timer anew.
					toNow.Store(moment.now)
					toReset.Store(moment.reset)
					q.AddAfter("a", due)
					synctest.Wait()
					if stepped := fake.Since(testkit.Epoch); stepped < due {
						wantLen(t, q, 0)
						fake.Step(due - stepped - 1)
						synctest.Wait()
						wantLen(t, q, 0)
						fake.Step(1)
						synctest.Wait()
					}
					process(t, q, "a")
					q.ShutDown()
				})
			})
		}
	}
}

// skewedClock is a clock that can be set without its timers noticing, like a real one.
type skewedClock struct {
	clock.WithTicker
	skew atomic.Int64
}

func (c *skewedClock) Now() time.Time {
	// Round drops the monotonic reading, which cannot be set.
	return c.WithTicker.Now().Round(0).Add(time.Duration(c.skew.Load()))
}

func (c *skewedClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func TestClockIsSetWithoutItsTimers(t *testing.T) {
	everyDelayingLayer(t, func(t *testing.T, build delayerBuilder[string]) {
		c := &skewedClock{WithTicker: clock.RealClock{}}
		q := build(options[string]{clock: c})
		q.AddAfter("a", time.Hour)
		synctest.Wait()
		c.skew.Store(int64(time.Hour))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		process(t, q, "a") // late, but by no more than that

		q.AddAfter("b", time.Minute)
		synctest.Wait()
		c.skew.Store(0) // an hour back
		time.Sleep(time.Hour + time.Minute - 1)
		synctest.Wait()
		wantLen(t, q, 0)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		process(t, q, "b")
		q.ShutDown()
	})
}
