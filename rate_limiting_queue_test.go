package workqueue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
)

// script is a limiter that returns given delays, and remembers its calls.
type script struct {
	delays []time.Duration
	asked  []string
	on     func()
}

func (s *script) When(item string) time.Duration {
	if s.on != nil {
		s.on()
	}
	s.asked = append(s.asked, "When "+item)
	d := s.delays[0]
	s.delays = s.delays[1:]
	return d
}

func (s *script) Forget(item string) { s.asked = append(s.asked, "Forget "+item) }

func (s *script) NumRequeues(item string) int {
	s.asked = append(s.asked, "NumRequeues "+item)
	return 42
}

func everyRateLimiting(t *testing.T, limiter func() workqueue.TypedRateLimiter[string],
	f func(t *testing.T, q workqueue.TypedRateLimitingInterface[string])) {
	t.Helper()
	everyDelayingLayer(t, func(t *testing.T, build delayerBuilder[string]) {
		l := limiter()
		if q, ok := build(options[string]{limiter: l}).(workqueue.TypedRateLimitingInterface[string]); ok {
			f(t, q)
			q.ShutDown()
		}
	})
	t.Run("foreign", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			q := workqueue.NewTypedRateLimitingQueueWithConfig(limiter(),
				workqueue.TypedRateLimitingQueueConfig[string]{DelayingQueue: &plainDelayingQueue[string]{}})
			f(t, endAfterFailure(t, q))
			q.ShutDown()
			time.Sleep(time.Hour)
		})
	})
}

// A limiter that hangs blocks only its caller: no lock is held while it is asked.
func TestLimiterHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		limiter := &script{delays: []time.Duration{time.Second}, on: func() { <-stuck }}
		q := endAfterFailure(t, options[string]{limiter: limiter}.rateLimiting())
		add := testkit.Start(func() bool { q.AddRateLimited("a"); return true })
		add.MustBlock(t, "AddRateLimited")
		q.Add("b")
		q.AddAfter("c", time.Second)
		time.Sleep(time.Second)
		synctest.Wait()
		process[string](t, q, "b", "c")
		close(stuck)
		add.MustReturn(t, "AddRateLimited")
		time.Sleep(time.Second)
		synctest.Wait()
		process[string](t, q, "a")
		q.ShutDown()
	})
}

// The whole life of a key that fails, with the limiter that a nil one stands for.
func TestNilLimiterIsTheDefault(t *testing.T) {
	everyRateLimiting(t, func() workqueue.TypedRateLimiter[string] { return nil },
		func(t *testing.T, q workqueue.TypedRateLimitingInterface[string]) {
			delay := 5 * time.Millisecond
			for failures := range 10 {
				if n := q.NumRequeues("a"); n != failures {
					t.Fatalf("NumRequeues() = %d, want %d", n, failures)
				}
				q.AddRateLimited("a")
				time.Sleep(delay - 1)
				synctest.Wait()
				wantLen[string](t, q, 0)
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				process[string](t, q, "a")
				delay *= 2
			}
			q.Forget("a")
			if n := q.NumRequeues("a"); n != 0 {
				t.Errorf("NumRequeues() = %d after Forget", n)
			}
			q.AddRateLimited("a")
			time.Sleep(5 * time.Millisecond)
			synctest.Wait()
			process[string](t, q, "a")
		})
}

func TestRateLimitingQueueConstructors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testkit.NewFakeClock()
		limiter := workqueue.NewItemFastSlowRateLimiter(time.Second, time.Second, 0)
		config := workqueue.RateLimitingQueueConfig{Name: "name", Clock: c}
		delaying := workqueue.NewDelayingQueueWithConfig(workqueue.DelayingQueueConfig{Name: "name", Clock: c})
		tests := map[string]struct {
			queue workqueue.TypedRateLimitingInterface[any]
			named bool
			fake  bool
		}{
			"NewRateLimitingQueue":                      {workqueue.NewRateLimitingQueue(limiter), false, false},
			"NewTypedRateLimitingQueue":                 {workqueue.NewTypedRateLimitingQueue[any](limiter), false, false},
			"NewRateLimitingQueueWithConfig":            {workqueue.NewRateLimitingQueueWithConfig(limiter, config), true, true},
			"NewTypedRateLimitingQueueWithConfig":       {workqueue.NewTypedRateLimitingQueueWithConfig[any](limiter, config), true, true},
			"NewNamedRateLimitingQueue":                 {workqueue.NewNamedRateLimitingQueue(limiter, "name"), true, false},
			"NewRateLimitingQueueWithDelayingInterface": {workqueue.NewRateLimitingQueueWithDelayingInterface(delaying, limiter), true, true},
			"nil delaying queue":                        {workqueue.NewRateLimitingQueueWithDelayingInterface(nil, limiter), false, false},
		}
		for name, tt := range tests {
			if got := tt.queue.(workqueue.Extended[any]).Stats().Name == "name"; got != tt.named {
				t.Errorf("%s: is named: %v, want %v", name, got, tt.named)
			}
			tt.queue.AddRateLimited(1)
			synctest.Wait()
			if tt.fake {
				c.Step(time.Second)
			} else {
				time.Sleep(time.Second)
			}
			synctest.Wait()
			process[any](t, tt.queue, 1)
			tt.queue.ShutDown()
		}
	})
}
