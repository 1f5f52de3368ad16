package workqueue_test

import (
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"k8s.io/utils/clock"
)

// AddAfter must not wait for the loop, which may be stuck in a foreign Add.
func TestAddAfterNeverBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		below := &hookedQueue[int]{workqueue.NewTyped[int](), func() { <-stuck }}
		q := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[int]{Queue: below})
		for key := range 200 {
			q.AddAfter(key, time.Second)
		}
		time.Sleep(time.Second)
		adds := testkit.Start(func() bool {
			for key := range 5000 {
				q.AddAfter(key, time.Duration(5000-key)*time.Millisecond) // each the earliest
			}
			return true
		})
		adds.MustReturn(t, "AddAfter beside a loop that is stuck")
		close(stuck)
		time.Sleep(time.Minute)
		wantLen(t, q, 5000)
		q.ShutDown()
	})
}

// A key on its way from waiting to queued is in Stats, so that the queue does not look empty.
func TestStatsOfKeyThatComesDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := newHooked[int]()
		q := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[int]{
			Queue: below,
		}).(delayer[int])
		adds := 0
		below.beforeAdd = func() {
			adds++
			if st := q.Stats(); st.Waiting+st.Queued < 3 {
				t.Errorf("Stats() = %+v while key %d of 3 comes due", st, adds)
			}
		}
		for key := range 3 {
			q.AddAfter(key, time.Second)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if st := q.Stats(); adds != 3 || st.Waiting != 0 || st.Queued != 3 {
			t.Errorf("Stats() = %+v after %d adds, want 3 queued", st, adds)
		}
		q.ShutDown()
	})
}

// Keys that the loop has taken, and that the queue below ignores because it was shut down meanwhile, count
// as dropped, beside those that still waited.
func TestShutDownWhileKeysComeDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := testkit.NewFakeClock()
		c := &testkit.HookedClock{WithTicker: fake}
		fifo, plain, another := workqueue.NewTyped[int](), newHooked[int](), newHooked[int]()
		var q workqueue.TypedDelayingInterface[int]
		for _, tt := range []struct {
			below workqueue.TypedInterface[int]
			hook  *func()
			do    func()
			added uint64 // the first is on its way already
		}{
			{fifo, &c.OnNow, fifo.ShutDown, 0},
			{plain, &plain.beforeAdd, plain.ShutDown, 1},
			{another, &another.beforeAdd, func() {
				go q.ShutDown() // waits for the loop, which is here
				for !another.ShuttingDown() {
					runtime.Gosched()
				}
			}, 1},
		} {
			q = workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[int]{Clock: c,
				Queue: tt.below})
			for key := range 3 {
				q.AddAfter(key, time.Second)
			}
			q.AddAfter(3, time.Hour)
			synctest.Wait()
			*tt.hook = func() { *tt.hook = nil; tt.do() }
			fake.Step(time.Second)
			synctest.Wait()
			if st := q.(delayer[int]).Stats(); st.Dropped != 4-tt.added || st.Waiting != 0 || st.Queued != 0 {
				t.Errorf("%T: Stats() = %+v, want %d dropped", tt.below, st, 4-tt.added)
			}
			q.ShutDown()
		}
	})
}

// A delaying queue may be put on top of another one: both have keys that wait.
func TestStatsOfTwoDelayingQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := workqueue.NewTypedDelayingQueue[int]()
		q := workqueue.NewTypedDelayingQueueWithConfig(
			workqueue.TypedDelayingQueueConfig[int]{Queue: below}).(delayer[int])
		below.AddAfter(1, time.Second)
		q.AddAfter(2, time.Second)
		q.AddAfter(3, time.Second)
		if st := q.Stats(); st.Waiting != 3 || st.Retries != 3 {
			t.Errorf("Stats() = %+v, want 3 that wait, of 3 retries", st)
		}
		if s := q.Snapshot(10); s.Stats.Waiting != 3 || len(s.Waiting) != 3 {
			t.Errorf("Snapshot() = %+v, want 3 that wait", s)
		}
		q.ShutDown()
		if st := q.Stats(); st.Waiting != 0 || st.Dropped != 3 {
			t.Errorf("Stats() = %+v after shutdown, want 3 dropped", st)
		}
	})
}

func TestShutDownLogsDroppedKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		logger := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
		for _, waiting := range []int{0, 3} {
			lines = nil
			q := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[int]{Logger: &logger})
			for key := range waiting {
				q.AddAfter(key, time.Second)
			}
			q.ShutDown()
			q.ShutDown()
			q.ShutDownWithDrain()
			if want := min(waiting, 1); len(lines) != want {
				t.Errorf("%d keys were dropped, and the log is %q, want %d lines", waiting, lines, want)
			}
		}
	})
}

// Keys go to the queue in the config.
func TestDelayingQueueOnGivenQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := workqueue.NewTyped[string]()
		q := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{Queue: below})
		q.Add("a")
		q.AddAfter("b", time.Second)
		below.Add("c")
		time.Sleep(time.Second)
		synctest.Wait()
		process(t, below, "a", "c", "b")

		// The queue below may be shut down alone. The loop of the one above notices that when it next looks for due
		// keys.
		q.AddAfter("d", time.Hour)
		synctest.Wait() // The runtime does not always list a goroutine that has not run yet.
		base := testkit.Goroutines()
		below.ShutDown()
		time.Sleep(time.Minute)
		base.WantMore(t, "a minute after the queue below was shut down", -1)
		if st := q.(workqueue.Extended[string]).Stats(); st.Waiting != 0 || st.Dropped != 1 {
			t.Errorf("Stats() = %+v, want 1 dropped", st)
		}
		q.AddAfter("e", time.Second)
		base.WantMore(t, "after AddAfter", -1)
	})
}

// ownAdd is a queue of a user that embeds ours.
type ownAdd struct {
	*workqueue.Typed[string]
	added []string
}

func (q *ownAdd) Add(item string) {
	q.added = append(q.added, item)
	q.Typed.Add(item)
}

// The queue below is used through its public methods alone, also if it embeds ours and has inherited others.
func TestDueKeysGoThroughAdd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := &ownAdd{Typed: workqueue.NewTyped[string]()}
		q := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{Queue: below})
		q.AddAfter("a", time.Second)
		time.Sleep(time.Second)
		synctest.Wait()
		if q.ShutDown(); len(below.added) != 1 {
			t.Errorf("Add was called for %q, want a", below.added)
		}
	})
}

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
// before that must come in time nevertheless.
func TestClockIsSteppedWhileTheTimerStarts(t *testing.T) {
	const due = 8 * time.Second
	// Which reading of the clock the step comes before. The first reading is that of AddAfter.
	for _, reading := range []int32{2, 3, 4} {
		for _, d := range []time.Duration{
			time.Second, 5 * time.Second, due - 1, due, due + 1, time.Hour, -1, -time.Second, -time.Hour,
			1, time.Microsecond, time.Millisecond,
		} {
			t.Run(fmt.Sprint(reading, ",", d), func(t *testing.T) {
				everyDelayingLayer(t, func(t *testing.T, build delayerBuilder[string]) {
					fake := testkit.NewFakeClock()
					var left atomic.Int32
					q := build(options[string]{clock: &testkit.HookedClock{WithTicker: fake, OnNow: func() {
						if left.Add(-1) == 0 {
							fake.Step(d)
						}
					}}})
					q.AddAfter("far", 2*time.Hour)
					synctest.Wait() // The loop sleeps; the next key makes it start its timer anew.
					left.Store(reading)
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
