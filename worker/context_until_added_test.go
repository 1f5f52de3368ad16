package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// notifying is a queue that says why its keys were added, and that they were added again.
type notifying = extended

// overNotifying runs a test in virtual time over each queue that is notifying.
func overNotifying(t *testing.T, test func(t *testing.T, q notifying)) {
	t.Helper()
	for name, newQueue := range map[string]func() notifying{
		"FIFO":     func() notifying { return newQueue() },
		"priority": func() notifying { return newPriorityQueue(priorityqueue.Config[string]{}) },
	} {
		t.Run("queue="+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, newQueue()) })
		})
	}
}

// leased is a notifying queue whose keys have leases.
type leased struct {
	leasing.UnimplementedLeaser[string]
	notifying
}

func (q leased) LeaseOnHold(ctx context.Context, key string) (context.Context, context.CancelFunc) {
	return q.Lease(ctx, key)
}

func (leased) Lease(ctx context.Context, _ string) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

// overContextKinds runs a test with each way in which a handler's context can be made, over each queue that
// is notifying.
func overContextKinds(t *testing.T, test func(t *testing.T, q stringQueue, o options)) {
	t.Helper()
	logger, _ := newLogger()
	for kind, o := range map[string]options{
		"plain":                    {},
		"timeout":                  {HandlerTimeout: time.Hour},
		"timeout on another clock": {HandlerTimeout: time.Hour, Clock: testingclock.NewFakeClock(time.Unix(0, 0))},
		"lease":                    {},
		"lease and timeout":        {HandlerTimeout: time.Hour},
		"logger":                   {Logger: logger},
	} {
		t.Run("context="+kind, func(t *testing.T) {
			overNotifying(t, func(t *testing.T, q notifying) {
				o := o
				if o.Clock != nil {
					o.Clock = testingclock.NewFakeClock(time.Unix(0, 0)) // Bubbles do not share its channels.
				}
				if strings.HasPrefix(kind, "lease") {
					q = leased{notifying: q}
				}
				test(t, q, o)
			})
		})
	}
}

// However the handler's context was made, one of UntilAdded ends when the key is added again, each time that
// it is called, and the handler's own does not. The key is queued at once, and has not failed.
func TestUntilAdded(t *testing.T) {
	overContextKinds(t, func(t *testing.T, q stringQueue, o options) {
		start := time.Now()
		var calls []string
		var results []outcome
		o.OnFinish = func(_ context.Context, r outcome) {
			if results = append(results, r); r.Next == worker.NextGiveUp {
				t.Error("given up")
			}
		}
		p := worker.New(q, func(ctx context.Context, key string) error {
			calls = append(calls, fmt.Sprint(worker.CallOf(ctx).Attempt(), " at ", time.Since(start)))
			if len(calls) == 2 {
				return nil
			}
			derived, cancel := context.WithCancel(ctx)
			defer cancel()
			first := worker.CallOf(ctx).UntilAdded()
			for _, until := range []context.Context{
				first, worker.CallOf(first).UntilAdded(), worker.CallOf(derived).UntilAdded(), worker.CallOf(context.WithoutCancel(ctx)).UntilAdded(),
			} {
				<-until.Done()
				if at := time.Since(start); at != time.Second || until.Err() != context.Canceled || context.Cause(until) != worker.ErrAdded {
					t.Errorf("it has ended at %v with %v, %v", at, until.Err(), context.Cause(until))
				}
			}
			if ctx.Err() != nil || derived.Err() != nil {
				t.Error("the handler's own context has ended")
			}
			// What was added before UntilAdded is called ends its context at once.
			if until := worker.CallOf(ctx).UntilAdded(); context.Cause(until) != worker.ErrAdded {
				t.Errorf("after the add its cause is %v", context.Cause(until))
			}
			return fmt.Errorf("rollout: %w", context.Cause(first))
		}, o)
		q.Add("a")
		r := run(t, p)
		r.after(time.Second)
		q.Add("a")
		r.after(time.Minute)
		equal(t, "attempts", calls, "1 at 0s", "1 at 1s")
		if results[0].Next != worker.NextInterrupted || !errors.Is(results[0].Err, worker.ErrAdded) || results[1].Next != worker.NextForget {
			t.Errorf("results: %+v", results)
		}
		if st := p.Stats(); st.Interrupted != 1 || st.Handled != 2 || st.Failed+st.Requeued != 0 || st.Failing != 0 {
			t.Errorf("%+v", st)
		}
		r.endCleanly()
	})
}

// Every kind of add interrupts but a quiet one. The key is queued again in any case.
func TestWhatInterrupts(t *testing.T) {
	quiet, loud := workqueue.Cause{Reason: "status", Quiet: true}, workqueue.Cause{Reason: "spec"}
	for _, c := range []struct {
		name string
		add  func(q notifying)
		at   time.Duration // when the handler is interrupted, or never
	}{
		{"Add", func(q notifying) { q.Add("a") }, time.Second},
		{"AddAfter", func(q notifying) { q.AddAfter("a", 5*time.Second) }, 6 * time.Second},
		{"AddRateLimited", func(q notifying) { q.AddRateLimited("a") }, 2 * time.Second},
		{"AddCause", func(q notifying) { q.AddCause("a", loud) }, time.Second},
		{"another key", func(q notifying) { q.Add("b") }, 0},
		{"quiet", func(q notifying) { q.AddCause("a", quiet) }, 0},
		{"quiet, then AddCause", func(q notifying) { q.AddCause("a", quiet); q.AddCause("a", loud) }, time.Second},
		{"quiet, then Add", func(q notifying) { q.AddCause("a", quiet); time.AfterFunc(time.Second, func() { q.Add("a") }) }, 2 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			overNotifying(t, func(t *testing.T, q notifying) {
				start := time.Now()
				var interrupted time.Duration
				calls := 0
				q.Add("a")
				r := run(t, worker.New(q, func(ctx context.Context, key string) error {
					if key == "b" {
						return nil
					}
					if calls++; calls > 1 {
						return nil
					}
					select {
					case <-worker.CallOf(ctx).UntilAdded().Done():
						interrupted = time.Since(start)
					case <-time.After(10 * time.Second):
					}
					return nil
				}, options{Workers: 2}))
				r.after(time.Second)
				c.add(q)
				r.after(time.Minute)
				if interrupted != c.at {
					t.Errorf("interrupted at %v, want %v", interrupted, c.at)
				}
				if want := 2; c.name != "another key" && calls != want {
					t.Errorf("%d calls, want %d", calls, want)
				}
				r.endCleanly()
			})
		})
	}
}

// Without a call UntilAdded returns its argument.
func TestUntilAddedOfOthers(t *testing.T) {
	if ctx := t.Context(); worker.CallOf(ctx).UntilAdded() != ctx {
		t.Error("another context than the argument, outside of a call")
	}
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		var kept context.Context
		q.Add("a")
		run(t, worker.New(q, func(ctx context.Context, _ string) error {
			kept = ctx
			if worker.CallOf(ctx).UntilAdded() == ctx {
				t.Errorf("%T: the same context", q)
			}
			return nil
		}, options{})).endCleanly()
		if worker.CallOf(kept).UntilAdded() != kept {
			t.Error("another context than the argument, after the call")
		}
	})
}

// What UntilAdded holds ends with the call, no matter what context it was made from.
func TestUntilAddedEndsWithTheCall(t *testing.T) {
	overNotifying(t, func(t *testing.T, q notifying) {
		before := testkit.Goroutines()
		var contexts []context.Context
		p := worker.New(q, func(ctx context.Context, _ string) error {
			contexts = append(contexts, worker.CallOf(ctx).UntilAdded(), worker.CallOf(context.WithoutCancel(ctx)).UntilAdded())
			return nil
		}, options{})
		q.Add("a")
		r := run(t, p)
		for _, until := range contexts {
			if until.Err() != context.Canceled || errors.Is(context.Cause(until), worker.ErrAdded) {
				t.Errorf("after the call: %v, %v", until.Err(), context.Cause(until))
			}
		}
		r.endCleanly()
		synctest.Wait()
		if after := testkit.Goroutines(); len(after) > len(before) {
			t.Errorf("%d goroutines, before there were %d", len(after), len(before))
		}
	})
}

// A handler that waits in a loop, each time with a context of its own, has no goroutine and no memory for the
// waits that are over.
func TestUntilAddedOfManyContexts(t *testing.T) {
	overNotifying(t, func(t *testing.T, q notifying) {
		const turns = 20_000
		q.Add("a")
		calls := 0
		r := run(t, worker.New(q, func(ctx context.Context, _ string) error {
			if calls++; calls > 1 {
				return nil
			}
			worker.CallOf(ctx).UntilAdded()
			time.Sleep(time.Millisecond)
			goroutines, heap := len(testkit.Goroutines()), testkit.Heap()
			var kept []context.Context
			for i := range turns {
				turn, cancel := context.WithCancel(ctx)
				until := worker.CallOf(turn).UntilAdded()
				if i%100 == 99 {
					kept = append(kept, until)
					defer cancel()
					time.Sleep(time.Microsecond) // What the ends of the others have started comes to its end.
					continue
				}
				cancel()
				if until.Err() == nil {
					t.Fatal("the context has not ended")
				}
			}
			time.Sleep(time.Millisecond)
			if more := len(testkit.Goroutines()) - goroutines; more > len(kept) {
				t.Errorf("%d goroutines more", more)
			}
			if more := testkit.Heap() - heap; more > turns*64 && !testkit.RaceEnabled { // The race detector uses memory of its own.
				t.Errorf("%d bytes more", more)
			}
			q.Add("a")
			for _, until := range kept {
				<-until.Done()
				if context.Cause(until) != worker.ErrAdded {
					t.Fatalf("after the add: %v", context.Cause(until))
				}
			}
			return nil
		}, options{}))
		r.after(time.Second)
		r.endCleanly()
		if calls != 2 {
			t.Errorf("%d calls", calls)
		}
	})
}

// Canceled is a failure if the handler has ended its wait by itself, before the key was added.
func TestAddedAfterTheWait(t *testing.T) {
	overNotifying(t, func(t *testing.T, q notifying) {
		calls := 0
		q.Add("a")
		p := worker.New(q, func(ctx context.Context, key string) error {
			if calls++; calls > 1 {
				return nil
			}
			wait, cancel := context.WithCancel(ctx)
			until := worker.CallOf(wait).UntilAdded()
			cancel()
			time.Sleep(time.Millisecond)
			q.Add(key)
			time.Sleep(time.Millisecond)
			return until.Err()
		}, options{})
		r := run(t, p)
		r.after(time.Minute)
		if st := p.Stats(); st.Failed != 1 || st.Interrupted != 0 {
			t.Errorf("%+v", st)
		}
		r.endCleanly()
	})
}
