package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/foreign"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// handleOne is what a program that has workers of its own does with a key that it has got from q.
func handleOne(ctx context.Context, q extended, tracker *worker.Tracker[string], handle handler, key string) outcome {
	defer q.Done(key)
	e := tracker.Begin(ctx, key)
	r := e.End(func() (err error) {
		defer func() {
			if v := recover(); v != nil {
				err = &worker.PanicError{Value: v, Stack: debug.Stack()}
			}
		}()
		return handle(e.Context(), key)
	}())
	switch r.Next {
	case worker.NextRequeue:
		q.Forget(key)
		q.AddAfter(key, time.Hour)
	case worker.NextForget:
		q.Forget(key)
	}
	return r
}

func TestTracker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		type fromCaller struct{}
		var log []string
		began := time.Now()
		var contexts []context.Context
		var logged bytes.Buffer
		tracker := worker.NewTracker(q, options{MaxRetries: 2, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
		handle := func(ctx context.Context, key string) error {
			contexts = append(contexts, ctx)
			if ctx.Value(fromCaller{}) != "value" {
				t.Errorf("%s: the context is not made from the caller's", key)
			}
			switch first := !slices.Contains(log, "0s interrupted 1 interrupted"); {
			case key == "interrupted" && first:
				until := worker.CallOf(ctx).UntilAdded()
				q.Add(key)
				<-until.Done()
				return until.Err()
			case key == "interrupted":
				return acts(ctx, "drops")
			case key == "fails", time.Since(began) == 0:
				return acts(ctx, key)
			}
			return nil
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for {
				key, shutdown := q.Get()
				if shutdown {
					return
				}
				r := handleOne(context.WithValue(t.Context(), fromCaller{}, "value"), q, tracker, handle, key)
				log = append(log, fmt.Sprintf("%v %s %d %v", time.Since(began), key, r.Attempt, r.Next))
			}
		}()
		for _, key := range []string{"fails", "panics", "later", "interrupted"} {
			q.Add(key)
			synctest.Wait()
		}
		if st := tracker.Stats(); st.Living != 0 || st.Handled != 5 || st.Failed != 3 || st.Panicked != 1 || st.Interrupted != 1 || st.Requeued != 1 || st.GivenUp != 1 || st.Failing != 2 {
			t.Errorf("%+v", st)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		q.ShutDown()
		<-ended
		equal(t, "log", log,
			"0s fails 1 retry", "0s panics 1 retry", "0s later 1 requeue",
			"0s interrupted 1 interrupted", "0s interrupted 1 give_up",
			"1s fails 2 retry", "1s panics 2 forget", "3s fails 3 give_up", "1h0m0s later 1 forget")
		for _, ctx := range contexts {
			if ctx.Err() == nil {
				t.Error("a context has outlived its call")
			}
		}
		if n := strings.Count(logged.String(), "its key is given up"); n != 2 {
			t.Errorf("%d keys that were given up are logged, want 2:\n%s", n, logged.String())
		}
	})
}

func TestNextOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want worker.Next
	}{
		{nil, worker.NextForget}, {errors.New("no"), worker.NextRetry}, {worker.RequeueAfter(1), worker.NextRequeue},
		{worker.Fatal(errors.New("no")), worker.NextGiveUp}, {worker.ErrAdded, worker.NextInterrupted},
	} {
		if got := worker.NextOf(t.Context(), c.err); got != c.want {
			t.Errorf("of %v: %v, want %v", c.err, got, c.want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		defer q.ShutDown()
		q.Add("a")
		q.Get()
		handleOne(t.Context(), q, worker.NewTracker(q, options{}), func(ctx context.Context, key string) error {
			until := worker.CallOf(ctx).UntilAdded()
			if got := worker.NextOf(ctx, context.Canceled); got != worker.NextRetry {
				t.Errorf("before it is added again: %v", got)
			}
			q.Add(key)
			<-until.Done()
			if got := worker.NextOf(ctx, until.Err()); got != worker.NextInterrupted {
				t.Errorf("when it is added again: %v", got)
			}
			return nil
		}, "a")
	})
}

func TestNewTrackerWithoutSense(t *testing.T) {
	for name, f := range map[string]func(){
		"no queue":  func() { worker.NewTracker[string](nil, options{}) },
		"an option": func() { worker.NewTracker(newQueue(), options{StuckAfter: -1}) },
	} {
		if !panics(f) {
			t.Errorf("%s: NewTracker did not panic", name)
		}
	}
}

// Tracker have as many workers as there are calls, and are over when the queue is shut down and has given out
// all it had.
func TestStatsOfTracker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := priorityqueue.New(priorityqueue.Config[string]{})
		tracker := worker.NewTracker(q, options{Workers: 7})
		handle := func(key string) {
			q.Add(key)
			q.Get()
			handleOne(t.Context(), q, tracker, func(context.Context, string) error { time.Sleep(time.Second); return errBroken }, key)
		}
		go handle("a")
		synctest.Wait()
		if s := tracker.Stats(); s.Wanted != 1 || s.Living != 1 || s.Busy != 1 || s.Ended {
			t.Errorf("while a call runs: %+v", s)
		}
		time.Sleep(2 * time.Second)
		q.Remove("a")
		if s := tracker.Stats(); s.Failing != 0 || s.Wanted != 0 {
			t.Errorf("after its removal: %+v", s)
		}
		q.Add("b")
		q.Add("c")
		q.ShutDown()
		for _, held := range []bool{false, true} {
			if s := tracker.Stats(); s.Ended {
				t.Errorf("a key is held: %v: %+v", held, s)
			}
			key, _ := q.Get()
			if s := tracker.Stats(); s.Ended {
				t.Errorf("before the call: %+v", s)
			}
			q.Done(key)
		}
		if s := tracker.Stats(); !s.Ended {
			t.Errorf("at the end: %+v", s)
		}
	})
}

// endingQueue makes its last key handled and Done while somebody asks whether it is shut down.
type endingQueue struct {
	extended
	handleLast func()
}

func (q *endingQueue) ShuttingDown() bool {
	if f := q.handleLast; f != nil {
		q.handleLast = nil
		f()
	}
	return q.extended.ShuttingDown()
}

// The Stats with Ended are also the last ones of a tracker: a call that ends while they are read is in them.
func TestStatsOfTrackerWithEndedAreTheLast(t *testing.T) {
	q := &endingQueue{extended: newQueue()}
	tracker := worker.NewTracker(q, options{})
	q.Add("a")
	key, _ := q.Get()
	q.ShutDown()
	q.handleLast = func() {
		e := tracker.Begin(t.Context(), key)
		e.End(nil)
		e.Done(func() { q.Done(key) })
	}
	if s := tracker.Stats(); !s.Ended || s.Handled != 1 {
		t.Errorf("%+v", s)
	}
}

// A tracker finds out that a key that fails there has succeeded elsewhere. A queue that is not Extended must
// be made so.
func TestTrackerOfTwoPrograms(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		defer q.ShutDown()
		q = foreign.RateLimiting(q)
		first, second := worker.NewTracker(q, options{}), worker.NewTracker(q, options{})
		handle := func(tracker *worker.Tracker[string], err error) outcome {
			q.Add("a")
			key, _ := q.Get()
			e := tracker.Begin(t.Context(), key)
			r := e.End(err)
			if err == nil {
				q.Forget(key)
			}
			e.Done(func() { q.Done(key) })
			return r
		}
		handle(first, errBroken)
		time.Sleep(time.Second)
		if r := handle(first, errBroken); r.Attempt != 2 {
			t.Errorf("%+v", r)
		}
		handle(second, nil)
		if s := first.Stats(); s.Failing != 0 {
			t.Errorf("%+v", s)
		}
		if r := handle(first, errBroken); r.Attempt != 1 {
			t.Errorf("%+v", r)
		}
	})
}

// If the key's lease has ended, the key is left to the other process.
func TestTrackerWithoutLease(t *testing.T) {
	q := leasedQueue{leasing.UnimplementedLeaser[string]{}, newQueue(), new(journal), func(cancel context.CancelCauseFunc) { cancel(errLeaseLost) }}
	defer q.ShutDown()
	tracker := worker.NewTracker(q, options{})
	e := tracker.Begin(t.Context(), "a")
	if e.Context().Err() == nil {
		t.Error("the context has not ended")
	}
	if r := e.End(errBroken); !errors.Is(r.Err, errLeaseLost) || r.Next != worker.NextLost || tracker.Stats().Handled != 0 {
		t.Errorf("%+v, %+v", r, tracker.Stats())
	}
}
