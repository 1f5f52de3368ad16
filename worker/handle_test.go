package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// handleAll is the loop of a program that has its own worker: it handles keys until q is shut down, and logs what has come
// of them.
func handleAll(ctx context.Context, q extended, p *worker.Pool[string], log *[]string) {
	began := time.Now()
	for {
		key, shutdown := q.Get()
		if shutdown {
			return
		}
		func() {
			defer q.Done(key)
			defer func() {
				if v := recover(); v != nil {
					*log = append(*log, fmt.Sprintf("%v %s panicked with %v", time.Since(began), key, v))
				}
			}()
			r := p.Handle(ctx, key)
			*log = append(*log, fmt.Sprintf("%v %s %d %v", time.Since(began), key, r.Attempt, r.Next))
		}()
	}
}

func TestHandle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		type fromCaller struct{}
		var log []string
		began := time.Now()
		var contexts []context.Context
		var logged bytes.Buffer
		p := worker.New(q, func(ctx context.Context, key string) error {
			contexts = append(contexts, ctx)
			if ctx.Value(fromCaller{}) != "value" {
				t.Errorf("%s: the context is not made from the caller's", key)
			}
			switch first := !slices.Contains(log, "0s "+key+" 1 interrupted"); {
			case key == "interrupted" && first:
				until := worker.UntilAdded(ctx)
				q.Add(key)
				<-until.Done()
				return until.Err()
			case key == "interrupted":
				return acts(ctx, "drops")
			case key == "fails", time.Since(began) == 0:
				return acts(ctx, key)
			}
			return nil
		}, options{MaxRetries: 2, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			handleAll(context.WithValue(t.Context(), fromCaller{}, "value"), q, p, &log)
		}()
		for _, key := range []string{"fails", "panics", "later", "interrupted"} {
			q.Add(key)
			synctest.Wait()
		}
		if st := p.Stats(); st.Living != 0 || st.Handled != 5 || st.Failed != 3 || st.Panicked != 1 || st.Interrupted != 1 || st.Requeued != 1 || st.Dropped != 1 || st.Failing != 2 {
			t.Errorf("%+v", st)
		}
		k := p.SnapshotKey("panics")
		if len(k.FailedCalls) != 1 || !strings.Contains(k.FailedCalls[0].Stack, "thePanickingFunction") {
			t.Errorf("the last calls of the key that panics: %+v", k.FailedCalls)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		q.ShutDown()
		<-ended
		equal(t, "log", log,
			"0s fails 1 retry", "0s panics panicked with what a value", "0s later 1 requeue",
			"0s interrupted 1 interrupted", "0s interrupted 1 drop",
			"1s fails 2 retry", "1s panics 2 forget", "3s fails 3 drop", "1h0m0s later 1 forget")
		for _, ctx := range contexts {
			if ctx.Err() == nil {
				t.Error("a context has outlived its call")
			}
		}
		if n := strings.Count(logged.String(), "its key is dropped"); n != 2 {
			t.Errorf("%d drops are logged, want 2:\n%s", n, logged.String())
		}
		if p.Run(t.Context()) == nil {
			t.Error("Run after Handle")
		}
	})
}

// The stack of a panic that goes on is that of the handler, and runtime.Goexit goes on, too.
func TestHandlePassesOn(t *testing.T) {
	q := newQueue()
	defer q.ShutDown()
	p := worker.New(q, acts, options{})
	for _, key := range []string{"exits", "panics"} {
		q.Add(key)
		_, _ = q.Get()
		var wait sync.WaitGroup
		wait.Go(func() {
			defer q.Done(key)
			defer func() {
				stack := make([]byte, 64<<10)
				stack = stack[:runtime.Stack(stack, false)]
				if v := recover(); (v != nil) != (key == "panics") || v != nil && !bytes.Contains(stack, []byte("thePanickingFunction")) {
					t.Errorf("%s: recovered %v from\n%s", key, v, stack)
				}
			}()
			p.Handle(t.Context(), key)
			t.Error("Handle has returned")
		})
		wait.Wait()
	}
	if st := p.Stats(); st.Failed != 2 || st.Living != 0 {
		t.Errorf("%+v", st)
	}
}

// A call is found stuck, with its stack, and can be canceled. The goroutine that watches ends when there are no calls.
func TestHandleStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		defer q.ShutDown()
		found := make(chan stuck, 9)
		p := worker.New(q, func(ctx context.Context, _ string) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}, options{StuckAfter: time.Minute, OnStuck: func(_ context.Context, k stuck) { found <- k }})
		for range 2 {
			q.Add("a")
			key, _ := q.Get()
			returned := make(chan outcome)
			go func() { returned <- p.Handle(t.Context(), key) }()
			if k := <-found; k.Key != "a" || k.Duration != time.Minute || !strings.Contains(k.Stack, "TestHandleStuck") {
				t.Errorf("%+v", k)
			}
			if k := p.SnapshotKey("a"); k.Running == nil || k.Running.Stack == "" {
				t.Errorf("%+v", k.Running)
			}
			if !p.Cancel("a") {
				t.Error("there is nothing to cancel")
			}
			if r := <-returned; !errors.Is(r.Err, worker.ErrCanceled) || r.Next != worker.NextRetry {
				t.Errorf("%+v", r)
			}
			q.Done(key)
		}
		if p.Cancel("a") {
			t.Error("Cancel of a call that has ended")
		}
	})
}

func TestNextOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want worker.Next
	}{
		{nil, worker.NextForget},
		{errors.New("no"), worker.NextRetry},
		{context.Canceled, worker.NextRetry},
		{fmt.Errorf("wrapped: %w", worker.RequeueAfter(1)), worker.NextRequeue},
		{&worker.Requeue{}, worker.NextRequeue},
		{errors.Join(worker.RequeueAfter(1), worker.Terminal(errors.New("no"))), worker.NextDrop},
		{worker.Fatal(errors.New("no")), worker.NextDrop},
		{worker.ErrAdded, worker.NextInterrupted},
	} {
		if got := worker.NextOf(t.Context(), c.err); got != c.want {
			t.Errorf("of %v: %v, want %v", c.err, got, c.want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		defer q.ShutDown()
		p := worker.New(q, func(ctx context.Context, key string) error {
			until := worker.UntilAdded(ctx)
			if got := worker.NextOf(ctx, context.Canceled); got != worker.NextRetry {
				t.Errorf("before it is added again: %v", got)
			}
			q.Add(key)
			<-until.Done()
			if got := worker.NextOf(ctx, until.Err()); got != worker.NextInterrupted {
				t.Errorf("when it is added again: %v", got)
			}
			return nil
		}, options{})
		q.Add("a")
		key, _ := q.Get()
		p.Handle(t.Context(), key)
		q.Done(key)
	})
}

// What makes Handle panic does so each time: a program may recover the first panic.
func TestHandleWithoutSense(t *testing.T) {
	q := newQueue()
	q.ShutDown()
	afterRun := worker.New(q, fine, options{})
	if err := afterRun.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]*worker.Pool[string]{
		"no handler": worker.New[string](q, nil, options{}), "an option": worker.New(q, fine, options{Workers: -1}), "after Run": afterRun,
	} {
		for range 2 {
			if !panics(func() { p.Handle(t.Context(), "a") }) || p.Stats().Handled != 0 {
				t.Errorf("%s: Handle did not panic, %d keys were handled", name, p.Stats().Handled)
			}
		}
	}
}

// A pool of Handle has as many workers as there are calls, and is over when its queue is. Keys that fail and are removed from
// the queue are forgotten within about a minute, as in a pool that runs.
func TestStatsOfHandle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := priorityqueue.New(priorityqueue.Config[string]{})
		p := worker.New(q, func(context.Context, string) error { time.Sleep(time.Second); return errBroken }, options{Workers: 7})
		handle := func(key string) {
			q.Add(key)
			q.Get()
			p.Handle(t.Context(), key)
			q.Done(key)
		}
		go handle("a")
		synctest.Wait()
		if s := p.Stats(); s.Wanted != 1 || s.Living != 1 || s.Busy != 1 || s.Ended {
			t.Errorf("while a call goes on: %+v", s)
		}
		time.Sleep(2 * time.Second)
		for i := range 100 {
			handle(fmt.Sprint(i))
			q.Discard(fmt.Sprint(i))
		}
		time.Sleep(time.Minute)
		handle("b")
		synctest.Wait()
		if s := p.Stats(); s.Failing != 2 || s.Wanted != 0 {
			t.Errorf("after a minute: %+v", s)
		}
		q.ShutDown()
		if s := p.Stats(); !s.Ended {
			t.Errorf("after the shutdown: %+v", s)
		}
	})
}

// If the key's lease has ended, Handle leaves the key to the other process.
func TestHandleWithoutLease(t *testing.T) {
	q := leasing{newQueue(), new(journal), func(cancel context.CancelCauseFunc) { cancel(errLeaseLost) }}
	defer q.ShutDown()
	p := worker.New(q, fine, options{})
	q.Add("a")
	q.Get()
	r := p.Handle(t.Context(), "a")
	if !errors.Is(r.Err, errLeaseLost) || r.Next != worker.NextInterrupted || p.Stats().Handled != 0 || q.NumRequeues("a") != 0 {
		t.Errorf("%+v, %+v", r, p.Stats())
	}
}
