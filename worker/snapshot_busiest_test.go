package worker

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
)

// The page and the metrics have the keys with the most calls and why they came, the delays of failures, and
// how long keys were on hold.
func TestBusiestDelaysAndHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Hour)
		q := workqueue.NewQueue(limiter, workqueue.TypedRateLimitingQueueConfig[string]{})
		failed := 0
		p := New(q, func(ctx context.Context, key string) error {
			switch {
			case key == "fails" && failed < 4:
				failed++
				return errors.New("broken")
			case key == "held" && CallOf(ctx).Attempt() == 1:
				CallOf(ctx).Hold("it is ready", time.Minute)
			}
			return nil
		}, Options[string]{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.Run(ctx) }()
		if s := p.Snapshot(10); s.Stats.BusiestShare != 0 || len(s.Busiest) != 0 || s.Stats.RetryDelays != nil {
			t.Errorf("at the beginning: %+v", s)
		}
		q.Add("held")
		q.Add("fails")
		time.Sleep(time.Second / 2)
		q.Add("fails") // It fails before its delay has passed: that is the same failure.
		time.Sleep(2 * time.Minute)
		for i := range 90 {
			q.AddCause("own writes", workqueue.Cause{Reason: "status changed"})
			q.Add(fmt.Sprint("other ", i/3))
			time.Sleep(time.Second)
		}
		s := p.Snapshot(2)
		if len(s.Busiest) != 2 || s.Busiest[0].Key != "own writes" || s.Busiest[0].Calls != 90 ||
			s.Busiest[0].Causes.String() != "status changed" || s.Busiest[1].Calls >= 10 {
			t.Errorf("busiest are %+v", s.Busiest)
		}
		if share := s.Stats.BusiestShare; share != s.Busiest[0].Share || share < 0.4 || share > 0.6 {
			t.Errorf("one key has %v of the calls", share)
		}
		if d := s.Stats.RetryDelays; d.Count() != 3 || d.Sum != 1+2+4 {
			t.Errorf("delays of failures: %+v", d)
		}
		if h := s.Stats.HoldDurations; h.Count() != 1 || h.Sum != 60 {
			t.Errorf("holds: %+v", h)
		}
		if sum := s.Stats.Durations.Sum; sum != 0 {
			t.Errorf("the hold counts as %v s of work", sum)
		}
		time.Sleep(20 * time.Minute)
		if s := p.Snapshot(10); len(s.Busiest) != 0 || s.Stats.BusiestShare != 0 {
			t.Errorf("after twenty minutes: %+v", s.Busiest)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A call counts in the minute of its end, and so a long one does not replace the counts of another minute.
func TestBusiestWithLongCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
		tracker := NewTracker(q, Options[string]{})
		long := tracker.Begin(t.Context(), "long")
		time.Sleep(10*time.Minute + 30*time.Second)
		for range 100 {
			tracker.Begin(t.Context(), "busy").End(nil)
		}
		long.End(nil)
		if busiest := tracker.Snapshot(2).Busiest; len(busiest) != 1 || busiest[0].Calls != 100 {
			t.Errorf("%+v", busiest)
		}
		if share := tracker.Stats().BusiestShare; share != 100.0/101 {
			t.Errorf("one key has %v of the calls", share)
		}
		q.ShutDown()
	})
}

// Keys with equally many calls stay in their places.
func TestBusiestOrder(t *testing.T) {
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[int]())
	tracker := NewTracker(q, Options[int]{})
	for range 2 {
		for key := range 9 {
			q.Add(key)
			got, _ := q.Get()
			c := tracker.Begin(t.Context(), got)
			c.End(nil)
			c.Done(func() { q.Done(got) })
		}
	}
	for range 20 {
		for i, k := range tracker.Snapshot(9).Busiest {
			if k.Key != i {
				t.Fatalf("%d is in place %d", k.Key, i)
			}
		}
	}
	q.ShutDown()
}
