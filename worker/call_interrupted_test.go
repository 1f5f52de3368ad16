package worker_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// Five pools end, one after the other, while the handler runs, and it returns the cause of its context each
// time. That is no failure: the key keeps its count, its priority and its causes, and comes at once.
func TestEndIsNoFailure(t *testing.T) {
	for name, newQueue := range map[string]func() extended{
		"fifo":     func() extended { return newQueue() },
		"priority": func() extended { return newPriorityQueue(priorityqueue.Config[string]{}) },
	} {
		for _, drain := range []worker.Drain{worker.Running, worker.Nothing} {
			t.Run(fmt.Sprint("queue=", name, "/drain=", drain), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					q := newQueue()
					prioritized, _ := q.(operate.Operable[string])
					q.AddCause("a", workqueue.Cause{Reason: "it was asked for"})
					if prioritized != nil {
						prioritized.AddWithPriority("a", 7, 0)
					}
					o := options{MaxRetries: 3, KeepQueue: true, Drain: drain, DrainTimeout: time.Second}
					for range 5 {
						var got outcome
						o.OnFinish = func(_ context.Context, r outcome) { got = r }
						r := run(t, worker.New(q, func(ctx context.Context, _ string) error {
							<-ctx.Done()
							return fmt.Errorf("it was stopped: %w", context.Cause(ctx))
						}, o))
						r.endCleanly()
						if got.Next != worker.NextInterrupted || got.Attempt != 1 || got.AtOnce != 1 {
							t.Errorf("the call ends with %+v", got)
						}
						if n := q.Failures("a").Count; n != 0 || q.Len() != 1 {
							t.Errorf("%d failures, %d keys queued", n, q.Len())
						}
					}
					attempts, began := []string{}, time.Now()
					o.OnFinish = nil
					r := run(t, worker.New(q, func(ctx context.Context, _ string) error {
						call := worker.CallOf(ctx)
						priority, _ := call.Priority()
						causes := call.Causes()
						attempts = append(attempts, fmt.Sprint(call.Attempt(), " ", priority, " ", causes.String(), " ",
							time.Since(began)))
						return errBroken
					}, o))
					r.after(time.Hour)
					priority := 0
					if prioritized != nil {
						priority = 7
					}
					if first := fmt.Sprint("1 ", priority, " it was asked for 0s"); len(attempts) != 4 || attempts[0] != first {
						t.Errorf("attempts %q, want 4 that begin with %q", attempts, first)
					}
					r.endCleanly()
				})
			})
		}
	}
}

// After the end of its context a handler that is sure counts: with nil, with Terminal, and with a panic or
// Goexit.
func TestAnswersThatCountAtTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		answer func() error
		next   worker.Next
	}{
		"nil":         {func() error { return nil }, worker.NextForget},
		"Terminal":    {func() error { return worker.Terminal(errBroken) }, worker.NextGiveUp},
		"Requeue":     {func() error { return worker.RequeueAfter(time.Minute) }, worker.NextRequeue},
		"a panic":     {func() error { panic("a bug") }, worker.NextRetry},
		"Goexit":      {func() error { runtime.Goexit(); return nil }, worker.NextRetry},
		"a failure":   {func() error { return errBroken }, worker.NextInterrupted},
		"RetryAfter":  {func() error { return worker.RetryAfter(errBroken, time.Hour) }, worker.NextInterrupted},
		"its context": {func() error { return context.Canceled }, worker.NextInterrupted},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue()
				q.Add("a")
				var got outcome
				r := run(t, worker.New(q, func(ctx context.Context, _ string) error {
					<-ctx.Done()
					err := c.answer()
					if next := worker.NextOf(ctx, err); next != c.next {
						t.Errorf("NextOf returned %v", next)
					}
					return err
				}, options{Drain: worker.Nothing, OnFinish: func(_ context.Context, r outcome) { got = r }}))
				_ = r.end()
				if got.Next != c.next {
					t.Errorf("the call ends with %+v, want %v", got, c.next)
				}
			})
		})
	}
}

// A key that would be slowed down by seconds is handed back at once if the end of the pool interrupts it.
func TestNoSlowdownAtTheEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		calls := 0
		r := run(t, worker.New(q, func(ctx context.Context, key string) error {
			if key == "deaf" {
				time.Sleep(time.Hour)
				return nil
			}
			if calls++; calls > 20 {
				<-ctx.Done()
			}
			return worker.ErrAdded
		}, options{Workers: 2, Drain: worker.Nothing, CancelGrace: time.Minute}))
		addAll(q, "deaf interrupted")
		r.after(10 * time.Minute)
		r.cancel()
		r.after(10*time.Minute + time.Second)
		if n := held(q); n != 1 || calls != 21 {
			t.Errorf("%d keys are with workers after %d calls, want the deaf one", n, calls)
		}
		_ = r.end()
		time.Sleep(time.Hour)
	})
}

// A key that asks for itself at once, again and again, is slowed down, counted, logged and shown.
func TestRequeueAtOnce(t *testing.T) {
	overHolding(t, func(t *testing.T, q stringQueue) {
		var calls atomic.Int64
		logger, logs := newLogger()
		var ends atomic.Bool
		p := worker.New(q, func(ctx context.Context, _ string) error {
			n := calls.Add(1)
			if ends.Load() {
				return nil
			}
			if at := worker.CallOf(ctx).AtOnce(); at != int(n-1) {
				t.Errorf("call %d is told of %d at once", n, at)
			}
			return worker.RequeueAfter(-time.Second)
		}, options{Logger: logger})
		r := run(t, p)
		q.Add("a")
		synctest.Wait()
		if n := calls.Load(); n != 6 {
			t.Errorf("%d calls at once", n)
		}
		r.after(time.Minute)
		if n, s, k := calls.Load(), p.Stats(), p.SnapshotKey("a"); n > 25 || s.Looping != 1 || k.AtOnce != int(n) {
			t.Errorf("%d calls, %+v, %+v", n, s, k)
		}
		if n := strings.Count(logs.String(), `level=WARN msg="A key comes at once again and again, it is slowed down" key=a`); n != 2 {
			t.Errorf("logged %d times, want at 8 and 16:\n%s", n, logs)
		}
		ends.Store(true)
		r.after(2 * time.Minute)
		if s := p.Stats(); s.Looping != 0 {
			t.Errorf("%+v", s)
		}
		r.endCleanly()
	})
}

// lastAnswer is a queue that calls then between its answer that it is shut down and empty, and the worker.
type lastAnswer struct {
	extended
	then func()
}

func (q *lastAnswer) Next(ctx context.Context) (workqueue.HandOut[string], error) {
	h, err := q.extended.Next(ctx)
	if errors.Is(err, workqueue.ErrShutDown) {
		q.then()
	}
	return h, err
}

// The Done of a hold queues a key after the last worker has heard that the queue is empty, and before it
// looks for holds. The worker must ask again.
func TestDoneOfAHoldAfterTheLastAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var release func()
		calls := 0
		q := &lastAnswer{extended: newQueue()}
		q.then = sync.OnceFunc(func() { release() })
		r := run(t, worker.New(q, func(ctx context.Context, key string) error {
			if calls++; calls == 1 {
				release = worker.CallOf(ctx).Hold("it is ready", time.Hour)
				return worker.RequeueAfter(0)
			}
			return nil
		}, options{}))
		q.Add("a")
		synctest.Wait()
		q.ShutDown()
		<-r.result
		if calls != 2 {
			t.Errorf("%d calls, want that of the key that came when its hold ended", calls)
		}
		wantMatchedDones(t, q.extended)
	})
}

// slowLeaseOnHold is a queue with leases that calls meanwhile while it begins the lease of a key on hold.
type slowLeaseOnHold struct {
	leasing.UnimplementedLeaser[string]
	extended
	meanwhile func()
	released  *atomic.Int32
}

func (slowLeaseOnHold) Lease(ctx context.Context, _ string) (context.Context, context.CancelFunc) {
	return ctx, func() {}
}

func (q slowLeaseOnHold) LeaseOnHold(ctx context.Context, _ string) (context.Context, context.CancelFunc) {
	q.meanwhile()
	return ctx, func() { q.released.Add(1) }
}

// A hold that ends while its lease begins leaves no lease.
func TestHoldThatEndsWhileItsLeaseBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var release func()
		q := slowLeaseOnHold{extended: newQueue(), meanwhile: func() { release() }, released: new(atomic.Int32)}
		r := run(t, worker.New(q, func(ctx context.Context, _ string) error {
			release = worker.CallOf(ctx).Hold("it is ready", time.Hour)
			return nil
		}, options{}))
		q.Add("a")
		r.after(time.Second)
		if n := q.released.Load(); n != 1 {
			t.Errorf("the lease was released %d times", n)
		}
		r.endCleanly()
	})
}
