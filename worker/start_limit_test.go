package worker_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// StartLimit bounds the starts of all workers together. Keys that wait for it are in the queue.
func TestStartLimit(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		var mu sync.Mutex // Two workers may have a token at the same time.
		var starts []time.Duration
		begun := time.Now()
		p := worker.New(q, func(context.Context, string) error {
			mu.Lock()
			defer mu.Unlock()
			starts = append(starts, time.Since(begun).Round(time.Millisecond))
			return nil
		}, options{Workers: 8, StartLimit: rate.NewLimiter(2, 3)})
		r := run(t, p)
		r.after(time.Hour) // The idle workers must not have collected tokens.
		addAll(q, "a b c d e f")
		r.after(time.Hour + 700*time.Millisecond)
		if st := p.Stats(); !st.StartLimited || st.Busy != 0 || q.Len() != 2 {
			t.Errorf("%+v, %d keys are queued", st, q.Len())
		}
		q.Add("e") // It is merged.
		r.after(2 * time.Hour)
		at := func(d time.Duration) time.Duration { return time.Hour + d*time.Millisecond }
		equal(t, "starts", starts, at(0), at(0), at(0), at(500), at(1000), at(1500))
		if st := p.Stats(); st.StartLimited {
			t.Errorf("%+v", st)
		}
		r.endCleanly()
	})
}

// The end, SetWorkers and a new limit do not wait for the limit.
func TestStartLimitIsNotAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newPriorityQueue(priorityqueue.Config[string]{})
		limit := rate.NewLimiter(rate.Every(1000*time.Hour), 1)
		calls := 0
		p := worker.New(q, func(context.Context, string) error { calls++; return nil },
			options{Workers: 4, StartLimit: limit})
		addAll(q, "a b c")
		r := run(t, p)
		if calls != 1 {
			t.Errorf("%d calls", calls)
		}
		err := p.SetWorkers(1)
		synctest.Wait()
		if st := p.Stats(); err != nil || st.Living != 1 {
			t.Errorf("%v, %+v", err, st)
		}
		limit.SetLimit(rate.Every(time.Second))
		r.after(3 * time.Second)
		if calls < 2 {
			t.Errorf("%d calls", calls)
		}
		limit.SetLimit(0)
		q.Add("d")
		r.cancel()
		r.after(3 * time.Second)
		if err := r.returned(); err != nil {
			t.Error(err)
		}
	})
	if err := worker.Run(t.Context(), stringQueue(newQueue()), fine,
		options{StartLimit: rate.NewLimiter(1, 0)}); err == nil {
		t.Error("a limit without burst is not refused")
	}
	synctest.Test(t, func(t *testing.T) { // Without a limit, there needs to be no burst.
		run(t, worker.New(newQueue(), fine, options{StartLimit: rate.NewLimiter(rate.Inf, 0)})).endCleanly()
	})
}
