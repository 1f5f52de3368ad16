package worker_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// Keys that always fail are given up, even if their limiter forgets by itself meanwhile: here each waits far
// longer for the worker than for its delay.
func TestManyKeysAreGivenUp(t *testing.T) {
	limiter := func() workqueue.TypedRateLimiter[string] {
		return workqueue.NewTypedControllerRateLimiter[string](nil)
	}
	for name, newQueue := range map[string]func() stringQueue{
		"priority": func() stringQueue { return priorityqueue.New(priorityqueue.Config[string]{}) },
		"root":     func() stringQueue { return limitedQueue(limiter()) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 3000
				q := newQueue()
				addNumbers(q, n)
				p := worker.New(q, func(context.Context, string) error {
					time.Sleep(time.Second)
					return errBroken
				}, options{MaxRetries: 3})
				r := run(t, p)
				r.after(24 * time.Hour)
				if st := p.Stats(); st.Handled != 4*n || st.GivenUp != n {
					t.Errorf("%d calls, %d given up", st.Handled, st.GivenUp)
				}
				r.endCleanly()
			})
		})
	}
}

// Events during and between the calls use up no retries of a priority queue either: only each delay that was
// served does.
func TestEventsUseUpNoRetriesOfAPriorityQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := priorityqueue.New(priorityqueue.Config[string]{
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Minute, time.Minute),
		})
		var givenUp atomic.Int64
		r := run(t, worker.New(q, func(context.Context, string) error {
			time.Sleep(time.Second)
			return errBroken
		}, options{MaxRetries: 5, OnFinish: givesUp(func(outcome) { givenUp.Add(1) })}))
		go addEvery(t.Context(), q, "a", time.Second/2)
		r.after(5 * time.Minute)
		if n := givenUp.Load(); n != 0 {
			t.Errorf("given up %d times before five delays", n)
		}
		r.after(5*time.Minute + 20*time.Second)
		if n := givenUp.Load(); n != 1 {
			t.Errorf("given up %d times, want once after five delays", n)
		}
		_ = r.end()
	})
}

// Failures in a row are those of the queue: what another pool has handled meanwhile ends them here too.
func TestAttemptsOfTwoPools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		var log []string
		err := errBroken
		pool := func(name string) *worker.Pool[string] {
			p := worker.New(q, func(context.Context, string) error { return err }, options{
				MaxRetries: 3, KeepQueue: true,
				OnFinish: func(_ context.Context, r outcome) {
					log = append(log, fmt.Sprint(name, " ", r.Attempt, " ", r.Next))
				},
			})
			_ = p.SetWorkers(0)
			return p
		}
		a, b := pool("A"), pool("B")
		runs := []*running{run(t, a), run(t, b)}
		let := func(p *worker.Pool[string], answer error) { // Lets p handle the key, once.
			err = answer
			q.Add("x")
			_ = p.SetWorkers(1)
			synctest.Wait()
			_ = p.SetWorkers(0)
			synctest.Wait()
			time.Sleep(time.Hour) // After its delay.
		}
		for _, answer := range []error{errBroken, errBroken, errBroken} {
			let(a, answer)
		}
		let(b, nil)
		if s := a.Snapshot(9); len(s.Failing) != 0 {
			t.Errorf("A lists %+v", s.Failing)
		}
		let(b, errBroken)
		let(a, errBroken)
		want := []string{"A 1 retry", "A 2 retry", "A 3 retry", "B 4 forget", "B 1 retry", "A 2 retry"}
		if !slices.Equal(log, want) {
			t.Errorf("got %q, want %q", log, want)
		}
		for _, r := range runs {
			_ = r.end()
		}
		q.ShutDown()
	})
}
