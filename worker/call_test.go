package worker_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

var errBroken = errors.New("broken")

// TestOutcomes has a handler answer in every way there is, at the first attempt, and checks what becomes
// of the key, what the hooks get, and that Done is called once for each Get.
func TestOutcomes(t *testing.T) {
	const again = 7 * time.Second
	for _, c := range []struct {
		name   string
		answer func() error
		next   worker.Next
		is     error // what the error is, apart from nil
	}{
		{"nil", func() error { return nil }, worker.NextForget, nil},
		{"error", func() error { return errBroken }, worker.NextRetry, errBroken},
		{"RequeueAfter", func() error { return worker.RequeueAfter(again) }, worker.NextRequeue,
			worker.RequeueAfter(again)},
		{"RequeueAfter, wrapped", func() error { return fmt.Errorf("not yet: %w", worker.RequeueAfter(again)) },
			worker.NextRequeue, worker.RequeueAfter(again)},
		{"Requeue", func() error { return worker.Requeue{After: again, Priority: priorityOf(3)} },
			worker.NextRequeue, nil},
		{"Terminal", func() error { return worker.Terminal(errBroken) }, worker.NextGiveUp, errBroken},
		{"Terminal, wrapped", func() error { return fmt.Errorf("no: %w", worker.Terminal(errBroken)) },
			worker.NextGiveUp, errBroken},
		{"Terminal counts more than RequeueAfter", func() error {
			return errors.Join(worker.RequeueAfter(again), worker.Terminal(errBroken))
		}, worker.NextGiveUp, errBroken},
		{"Terminal(nil)", func() error { return worker.Terminal(nil) }, worker.NextForget, nil},
		{"Fatal", func() error { return worker.Fatal(errBroken) }, worker.NextGiveUp, errBroken},
		{"Fatal(nil)", func() error { return worker.Fatal(nil) }, worker.NextForget, nil},
		{"panic", func() error { panic(errBroken) }, worker.NextRetry, errBroken},
		{"panic with an answer", func() error { panic(worker.Fatal(worker.RequeueAfter(time.Minute))) },
			worker.NextRetry, worker.RequeueAfter(time.Minute)},
		{"Goexit", func() error { runtime.Goexit(); return nil }, worker.NextRetry, worker.ErrGoexit},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, q stringQueue) {
				var calls []time.Duration
				var finished, givenUp []error
				q.Add("a")
				begun := time.Now()
				r := run(t, worker.New(q, func(ctx context.Context, key string) error {
					calls = append(calls, time.Since(begun))
					time.Sleep(time.Millisecond)
					if len(calls) == 1 {
						return c.answer()
					}
					return nil
				}, options{
					OnFinish: func(ctx context.Context, r outcome) {
						if finished = append(finished, r.Err); r.Next == worker.NextGiveUp {
							givenUp = append(givenUp, r.Err)
						}
						if r.Key != "a" || r.Duration != time.Millisecond || time.Since(r.Started) != time.Millisecond ||
							r.Attempt != worker.CallOf(ctx).Attempt() || len(finished) == 1 && r.Next != c.next || held(q) != 1 {
							t.Errorf("OnFinish of %+v, %d keys are held", r, held(q))
						}
					},
				}))
				r.after(10 * time.Millisecond)
				if n := q.NumRequeues("a"); n > 1 || (n == 1) != (c.next == worker.NextRetry) {
					t.Errorf("the limiter counts %d failures", n)
				}
				if c.name == "Fatal" {
					if err := r.returned(); !errors.Is(err, errBroken) {
						t.Errorf("Run returned %v", err)
					}
				} else {
					r.after(time.Minute)
					r.endCleanly()
				}
				if err := finished[0]; c.is != nil && !errors.Is(err, c.is) ||
					(err == nil) != (c.next == worker.NextForget) {
					t.Errorf("the error is %v, want %v", err, c.is)
				}
				switch c.next {
				case worker.NextForget:
					equal(t, "calls at", calls, 0)
				case worker.NextRetry:
					equal(t, "calls at", calls, 0, time.Millisecond+time.Second)
				case worker.NextRequeue:
					equal(t, "calls at", calls, 0, time.Millisecond+again)
				case worker.NextGiveUp:
					equal(t, "calls at", calls, 0)
					equal(t, "given up", givenUp, finished[0])
				}
				if c.next != worker.NextGiveUp && givenUp != nil {
					t.Errorf("given up: %v", givenUp)
				}
				wantMatchedDones(t, q)
				if n := q.NumRequeues("a"); n != 0 {
					t.Errorf("at the end the limiter counts %d", n)
				}
			})
		})
	}
}

// A key that fails is handled once more than MaxRetries, no matter what its limiter counts, and then given
// up: it starts afresh.
func TestMaxRetries(t *testing.T) {
	for _, c := range []struct {
		name    string
		max     int
		counts  bool // the limiter: by key
		at      []time.Duration
		forever bool
	}{
		{name: "2", max: 2, counts: true, at: []time.Duration{0, time.Second, 3 * time.Second}},
		{name: "NoRetries", max: worker.NoRetries, counts: true, at: []time.Duration{0}},
		{name: "a limiter that does not count", max: 3, at: []time.Duration{0, 0, 0, 0}},
		{name: "UnlimitedRetries", max: worker.UnlimitedRetries, counts: true, forever: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, q stringQueue) {
				if !c.counts {
					q = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedMaxOfRateLimiter[string]())
				}
				var noted []int
				var times []time.Duration
				added, drops := time.Now(), 0
				handle := attempts(&noted, append(slices.Repeat([]error{errBroken}, 100), nil)...)
				r := run(t, worker.New(q, func(ctx context.Context, key string) error {
					times = append(times, time.Since(added))
					return handle(ctx, key)
				}, options{MaxRetries: c.max, OnFinish: givesUp(func(r outcome) {
					if drops++; r.Key != "a" || r.Err != errBroken || r.Attempt != len(c.at) {
						t.Errorf("given up: %+v", r)
					}
				})}))
				if c.forever {
					q.Add("a")
					r.after(101 * time.Hour)
					if len(noted) != 101 || drops != 0 {
						t.Errorf("%d calls, %d drops", len(noted), drops)
					}
				}
				for round := 1; round <= 2 && !c.forever; round++ {
					noted, times, added = nil, nil, time.Now()
					q.Add("a")
					r.after(time.Duration(round) * time.Hour)
					equal(t, "times", times, c.at...)
					equal(t, "attempts", noted, []int{1, 2, 3, 4}[:len(c.at)]...)
					if drops != round || q.NumRequeues("a") != 0 {
						t.Errorf("%d drops, the limiter counts %d", drops, q.NumRequeues("a"))
					}
				}
				r.endCleanly()
			})
		})
	}
}

// Success and RequeueAfter both end a row of failures, also those that the limiter has counted for others,
// and whether or not it counts.
func TestWhatForgets(t *testing.T) {
	answers := []error{
		errBroken, errBroken, worker.RequeueAfter(time.Second), errBroken, worker.Requeue{After: time.Second},
		worker.RequeueAfter(time.Second), nil, nil,
	}
	for _, limiter := range []workqueue.TypedRateLimiter[string]{
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Hour),
		workqueue.NewTypedMaxOfRateLimiter[string](), // Counts nothing.
	} {
		synctest.Test(t, func(t *testing.T) {
			q := limitedQueue(limiter)
			var noted, counts []int
			handle := attempts(&noted, answers...)
			q.Add("a")
			p := worker.New(q, func(ctx context.Context, key string) error {
				counts = append(counts, q.NumRequeues(key))
				return handle(ctx, key)
			}, options{MaxRetries: 2})
			r := run(t, p)
			r.after(time.Hour)
			q.AddRateLimited("a") // The last call's is not the pool's.
			r.after(2 * time.Hour)
			r.endCleanly()
			equal(t, "attempts", noted, 1, 2, 3, 1, 2, 1, 1, 1)
			if q.NumRequeues("a") != 0 || p.Stats().Failing != 0 {
				t.Errorf("at the end the limiter counts %d, the pool %d", q.NumRequeues("a"), p.Stats().Failing)
			}
			equal(t, "counts before each call but the last", counts[:7], 0, 1, 2, 0, 1, 0, 0)
		})
	}
}

// A handler that ends its goroutine must not cost the pool a worker, nor give it one more.
func TestGoexitReplacesWorker(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		var g gauge
		exits := 0
		addNumbers(q, 10)
		r := run(t, worker.New(q, func(ctx context.Context, key string) error {
			if worker.CallOf(ctx).Attempt() == 1 {
				exits++
				runtime.Goexit()
			}
			return g.handle(ctx, key)
		}, options{}))
		r.after(time.Hour)
		if most := g.reset(); exits != 10 || most != 1 || len(g.handled) != 10 {
			t.Errorf("%d goroutines ended, then %d handlers at once, handled %q", exits, most, g.handled)
		}
		r.endCleanly()
	})
}

// A key's hooks and its handler are one after the other, with any number of workers.
func TestHooksOfAKeyDoNotOverlap(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		var j journal
		q.Add("a")
		r := run(t, worker.New(q, func(ctx context.Context, key string) error {
			q.Add(key)
			j.add(fmt.Sprint("handler attempt ", worker.CallOf(ctx).Attempt()))
			return worker.Terminal(errBroken)
		}, options{
			Workers: 4,
			OnFinish: func(ctx context.Context, r outcome) {
				j.add(fmt.Sprint("finish ", r.Key, " ", r.Err, " ", r.Next))
				time.Sleep(time.Second)
			},
		}))
		r.after(5 * time.Second)
		one := []string{"handler attempt 1", "finish a broken give_up"}
		if got, want := j.take()[:4], append(slices.Clone(one), one...); !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
		r.end() // The key is always queued.
	})
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		text string
	}{
		{worker.RequeueAfter(time.Second), "again after 1s"},
		{worker.Terminal(errBroken), "broken"},
		{worker.Fatal(errBroken), "broken"},
		{&worker.PanicError{Value: errBroken}, "panic: broken"},
	} {
		if c.err.Error() != c.text {
			t.Errorf("%q, want %q", c.err, c.text)
		}
	}
	var again worker.Requeue
	wrapped := fmt.Errorf("%w, %w, %w", worker.Terminal(errBroken), worker.Fatal(errBroken),
		worker.RequeueAfter(time.Second))
	if !errors.As(wrapped, &again) || again.After != time.Second || !errors.Is(wrapped, errBroken) {
		t.Error(wrapped)
	}
	if got := fmt.Sprint(worker.NextForget, worker.NextRequeue, worker.NextRetry, worker.NextGiveUp,
		worker.NextInterrupted, worker.NextLost, worker.Next(9)); got != "forget requeue retry give_up interrupted lost Next(9)" {
		t.Error(got)
	}
}

func priorityOf(p int) *int { return &p }

// slowLimiter takes a minute to say when a key is to be retried.
type slowLimiter struct {
	workqueue.TypedRateLimiter[string]
}

func (slowLimiter) When(string) time.Duration { time.Sleep(time.Minute); return time.Second }

// A Result has the time that the handler took, without what came after it.
func TestDurationIsTheHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.NewTypedRateLimitingQueue[string](slowLimiter{workqueue.NewTypedMaxOfRateLimiter[string]()})
		q.Add("a")
		r := run(t, worker.New(q, func(context.Context, string) error {
			time.Sleep(time.Second)
			return errBroken
		}, options{OnFinish: func(_ context.Context, r outcome) {
			if r.Duration != time.Second {
				t.Errorf("the handler took %v", r.Duration)
			}
		}}))
		r.after(10 * time.Second)
		r.cancel()
		<-r.result
		r.after(2 * time.Minute)
	})
}
