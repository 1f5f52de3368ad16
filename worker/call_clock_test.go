package worker_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// wallClock is a clock that somebody sets.
type wallClock struct {
	clock.RealClock
	set atomic.Int64
}

func (c *wallClock) Now() time.Time                  { return time.Now().Add(time.Duration(c.set.Load())) }
func (c *wallClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// A key fails, with an event every 20 ms, and the clock is set forward by an hour. It is given up when five
// delays, the first of a second, were served, and not when five events have come. The delay during which the
// clock is set ends then.
func TestGiveUpWhenTheClockIsSetForward(t *testing.T) {
	const delays = (1 + 2 + 4 + 8 + 16) * time.Second
	for _, c := range []struct{ set, left time.Duration }{
		{0, 0}, // before the first failure
		{500 * time.Millisecond, 500 * time.Millisecond},
		{10 * time.Second, 5 * time.Second},
	} {
		t.Run(fmt.Sprint(c.set), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				wall := &wallClock{}
				limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Hour)
				q := priorityqueue.New(priorityqueue.Config[string]{Clock: wall, RateLimiter: limiter})
				givenUp := make(chan int, 100)
				g := run(t, worker.New(q, answers(errors.New("broken")), worker.Options[string]{
					MaxRetries: 5,
					OnFinish:   givesUp(func(r outcome) { givenUp <- r.Attempt }),
				}))
				time.AfterFunc(c.set, func() { wall.set.Store(int64(time.Hour)) })
				synctest.Wait()
				for len(givenUp) == 0 && time.Since(g.begun) < time.Minute {
					q.Add("a")
					time.Sleep(20 * time.Millisecond)
				}
				served := time.Since(g.begun) + c.left
				if attempt := <-givenUp; attempt != 6 || served < delays || served > delays+time.Second/2 {
					t.Errorf("given up as attempt %d, after %v with what was left of a delay; want 6, %v", attempt,
						served, delays)
				}
				g.end()
			})
		})
	}
}
