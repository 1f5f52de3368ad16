package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// countingLimiter counts what it is asked for a key.
type countingLimiter struct {
	workqueue.TypedRateLimiter[string]
	whens, forgets int
}

func (l *countingLimiter) When(key string) time.Duration {
	l.whens++
	return l.TypedRateLimiter.When(key)
}
func (l *countingLimiter) Forget(key string) { l.forgets++; l.TypedRateLimiter.Forget(key) }

// TestInterrupted has the answers of a handler whose key was added again, and which has failed once before.
func TestInterrupted(t *testing.T) {
	wrapped := func(_, until context.Context) error { return fmt.Errorf("waiting: %w", until.Err()) }
	cause := func(_, until context.Context) error { return context.Cause(until) }
	for _, c := range []struct {
		name   string
		o      options
		cancel bool // before the handler returns
		answer func(ctx, until context.Context) error
		want   worker.Next
	}{
		{name: "its cause", answer: cause, want: worker.NextInterrupted},
		{name: "the last attempt", o: options{MaxRetries: 1}, answer: cause, want: worker.NextInterrupted},
		{name: "ErrAdded", answer: func(_, _ context.Context) error { return worker.ErrAdded },
			want: worker.NextInterrupted},
		{name: "its error", answer: wrapped, want: worker.NextInterrupted},
		{name: "its error, joined", answer: func(_, until context.Context) error {
			return errors.Join(errBroken, until.Err())
		}, want: worker.NextInterrupted},
		{name: "its error, but the handler's context has ended too", cancel: true, answer: wrapped,
			want: worker.NextRetry},
		{name: "its cause, and the handler's context has ended too", cancel: true, answer: cause,
			want: worker.NextInterrupted},
		{name: "its error, but the time is over", o: options{HandlerTimeout: 10 * time.Second},
			answer: func(ctx, until context.Context) error { <-ctx.Done(); return until.Err() },
			want:   worker.NextInterrupted},
		{name: "the end of the time", o: options{HandlerTimeout: 10 * time.Second},
			answer: func(ctx, _ context.Context) error { <-ctx.Done(); return ctx.Err() }, want: worker.NextRetry},
		{name: "another error", answer: func(_, _ context.Context) error { return errBroken },
			want: worker.NextRetry},
		{name: "a panic with it", answer: func(_, until context.Context) error { panic(context.Cause(until)) },
			want: worker.NextRetry},
		{name: "nil", answer: func(_, _ context.Context) error { return nil }, want: worker.NextForget},
		{name: "Terminal", answer: func(_,
			until context.Context) error {
			return worker.Terminal(context.Cause(until))
		}, want: worker.NextGiveUp},
		{name: "Fatal", answer: func(_, until context.Context) error { return worker.Fatal(context.Cause(until)) },
			want: worker.NextGiveUp},
		{name: "Requeue", answer: func(_, until context.Context) error {
			return errors.Join(context.Cause(until), worker.RequeueAfter(time.Hour))
		}, want: worker.NextRequeue},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := &countingLimiter{TypedRateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[string](
					time.Second, time.Hour)}
				q := limitedQueue(limiter)
				logger, logs := newLogger()
				var p *worker.Pool[string]
				var results []outcome
				c.o.Logger = logger
				givenUp := 0
				c.o.OnFinish = func(_ context.Context, r outcome) {
					if results = append(results, r); r.Next == worker.NextGiveUp {
						givenUp++
					}
				}
				p = worker.New(q, func(ctx context.Context, key string) error {
					switch len(results) {
					case 0:
						return errBroken
					case 1:
						until := worker.CallOf(ctx).UntilAdded()
						<-until.Done()
						if c.cancel {
							p.Cancel(key)
						}
						return c.answer(ctx, until)
					}
					return nil
				}, c.o)
				q.Add("a")
				r := run(t, p)
				r.after(time.Second)
				limiter.whens, limiter.forgets = 0, 0
				r.after(2 * time.Second)
				q.Add("a")
				r.after(20 * time.Second)
				if len(results) < 2 {
					t.Fatalf("%d results", len(results))
				}
				if got := results[1]; got.Next != c.want || got.Attempt != 2 {
					t.Errorf("got %+v, want %v", got, c.want)
				}
				if (givenUp == 1) != (c.want == worker.NextGiveUp) {
					t.Errorf("given up %d times", givenUp)
				}
				st := p.Stats()
				if interrupted := st.Interrupted == 1; interrupted != (c.want == worker.NextInterrupted) {
					t.Errorf("%+v", st)
				}
				if st.Handled != uint64(len(results)) {
					t.Errorf("%d calls, %+v", len(results), st)
				}
				_ = r.end()
				if c.want != worker.NextInterrupted {
					return
				}
				// The next call, which succeeds, is the same attempt, at once, and only that has the limiter forget.
				if len(results) != 3 || results[2].Attempt != 2 || results[2].Next != worker.NextForget ||
					!results[2].Started.Equal(results[1].Started.Add(results[1].Duration)) {
					t.Errorf("results: %+v", results)
				}
				if limiter.whens != 0 || limiter.forgets != 1 || st.Failed != 1 {
					t.Errorf("the limiter was asked %d times and forgot %d times; %+v", limiter.whens, limiter.forgets, st)
				}
				if want := `level=DEBUG msg="The handler was interrupted, its key comes at once" key=a next=interrupted attempt=2`; !strings.Contains(logs.String(), want) {
					t.Errorf("logged:\n%s", logs)
				}
			})
		})
	}
}

// A canceled context of something else is a failure, and ErrAdded loses no key that was not added.
func TestNotInterrupted(t *testing.T) {
	overNotifying(t, func(t *testing.T, q notifying) {
		var results []string
		p := worker.New(q, func(ctx context.Context, key string) error {
			switch len(results) {
			case 0:
				until, cancel := context.WithCancel(worker.CallOf(ctx).UntilAdded())
				cancel()
				return until.Err()
			case 1:
				return fmt.Errorf("misuse: %w", worker.ErrAdded)
			}
			return nil
		}, options{OnFinish: func(_ context.Context, r outcome) {
			results = append(results, fmt.Sprint(r.Attempt, " ", r.Next))
		}})
		q.Add("a")
		r := run(t, p)
		r.after(time.Minute)
		equal(t, "results", results, "1 retry", "2 interrupted", "2 forget")
		r.endCleanly()
	})
}

// At the end of Run a key whose handler was interrupted is queued, or was refused by the queue, and is
// reported.
func TestInterruptedAtTheEnd(t *testing.T) {
	for _, added := range []bool{true, false} {
		for _, drain := range []worker.Drain{worker.Running, worker.All} {
			overNotifying(t, func(t *testing.T, q notifying) {
				calls := 0
				p := worker.New(q, func(ctx context.Context, key string) error {
					calls++
					if added && calls == 1 {
						q.Add(key)
						<-worker.CallOf(ctx).UntilAdded().Done()
					}
					time.Sleep(time.Second)
					return worker.ErrAdded
				}, options{Drain: drain})
				q.Add("a")
				r := run(t, p)
				r.cancel()
				r.after(10 * time.Second)
				r.returnedLeaving("1 queued and not started: a")
			})
		}
	}
}

// A key that was added again and then removed is not handed out, although its handler was interrupted.
func TestInterruptedAndDiscarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newPriorityQueue(priorityqueue.Config[string]{})
		q.Add("a")
		p := worker.New(q, func(ctx context.Context, key string) error {
			q.Add(key)
			until := worker.CallOf(ctx).UntilAdded()
			q.Remove(key)
			return context.Cause(until)
		}, options{})
		r := run(t, p)
		if st := p.Stats(); st.Interrupted != 1 || st.Handled != 1 {
			t.Errorf("%+v", st)
		}
		r.endCleanly()
	})
}

// Tracker slow a key down that is interrupted again and again, as a pool does, and forget that with the key.
func TestTrackerInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newPriorityQueue(priorityqueue.Config[string]{})
		tracker := worker.NewTracker(q, options{})
		q.Add("a")
		var pauses []time.Duration
		for range 8 {
			key, _ := q.Get()
			e := tracker.Begin(t.Context(), key)
			until := worker.CallOf(e.Context()).UntilAdded()
			q.Add(key)
			<-until.Done()
			if r := e.End(context.Cause(until)); r.Next != worker.NextInterrupted {
				t.Fatalf("%+v", r)
			}
			began := time.Now()
			done := make(chan struct{})
			e.Done(func() { q.Done(key); close(done) })
			<-done
			pauses = append(pauses, time.Since(began))
		}
		if got, want := fmt.Sprint(pauses), "[0s 0s 0s 0s 0s 5ms 10ms 20ms]"; got != want {
			t.Errorf("pauses %v, want %v", got, want)
		}
		if n := tracker.Stats().Looping; n != 1 {
			t.Errorf("Looping %d", n)
		}
		q.Remove("a")
		tracker.Forget("a")
		if n := tracker.Stats().Looping; n != 0 {
			t.Errorf("after Forget Looping is %d", n)
		}
		q.ShutDown()
	})
}

// A key that loops and is then removed from the queue, without a word to the pool, does not loop any more ten
// minutes after it was to come.
func TestLoopingKeyIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newPriorityQueue(priorityqueue.Config[string]{})
		addAll(q, "stays goes")
		p := worker.New(q, func(ctx context.Context, key string) error {
			q.Add(key)
			return worker.ErrAdded
		}, options{})
		r := run(t, p)
		r.after(2 * time.Second) // They are called less than once a second by now.
		if n := p.Stats().Looping; n != 2 {
			t.Errorf("Looping %d, want both", n)
		}
		q.Remove("goes") // It is held, and its add taken back.
		if n := p.Stats().Looping; n != 2 {
			t.Errorf("Looping %d while both are on hold", n)
		}
		p.Release("goes")
		r.after(10*time.Minute + 13*time.Second)
		if n := p.Stats().Looping; n != 1 {
			t.Errorf("Looping %d, want 1", n)
		}
		if n := p.SnapshotKey("goes").AtOnce; n != 0 {
			t.Errorf("the key that was removed has %d interruptions", n)
		}
		r.end()
	})
}

// A handler that answers each interruption by an error of its own is interrupted by events alone: not by the
// retries of its failures, which come due while an event's call is running.
func TestRetriesDoNotInterrupt(t *testing.T) {
	overNotifying(t, func(t *testing.T, q notifying) {
		var interruptions atomic.Int64
		q.Add("a")
		r := run(t, worker.New(q, func(ctx context.Context, _ string) error {
			until, cancel := context.WithTimeout(worker.CallOf(ctx).UntilAdded(), time.Hour)
			defer cancel()
			<-until.Done()
			if context.Cause(until) == worker.ErrAdded {
				interruptions.Add(1)
			}
			return errBroken
		}, options{}))
		const events = 100
		for range events {
			q.Add("a")
			time.Sleep(time.Minute)
		}
		if n := interruptions.Load(); n > events {
			t.Errorf("%d interruptions by %d events", n, events)
		}
		r.cancel()
		<-r.result
	})
}
