package workqueue_test

import (
	"testing"
	"testing/synctest"
	"time"

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
	synctest.Test(t, func(t *testing.T) {
		q := endAfterFailure(t, options[string]{}.rateLimiting())
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
		if q.Forget("a"); q.NumRequeues("a") != 0 {
			t.Errorf("NumRequeues() = %d after Forget", q.NumRequeues("a"))
		}
		q.ShutDown()
	})
}
