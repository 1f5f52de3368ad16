package worker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"github.com/keyedqueue/workqueue/worker"
)

type contextKey struct{}

// The handlers' contexts have the values of Run's, but do not end with it.
func TestHandlerContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger, logs := newLogger()
		q := workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Hour),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "pods"})
		var kept []context.Context
		q.Add("a")
		r := runIn(context.WithValue(t.Context(), contextKey{}, "value"), t,
			worker.New(q, func(ctx context.Context, key string) error {
				ctx, cancel := context.WithTimeout(ctx, time.Hour)
				defer cancel()
				kept = append(kept, context.WithoutCancel(ctx))
				worker.CallOf(ctx).Logger().Info("hello")
				if ctx.Value(contextKey{}) != "value" {
					t.Error("a value of Run's context is missing")
				}
				if worker.CallOf(ctx).Attempt() < 3 {
					return errBroken
				}
				time.Sleep(time.Second)
				if ctx.Err() != nil {
					t.Errorf("the context has ended before the handler's time: %v", ctx.Err())
				}
				return nil
			}, options{Logger: logger}))
		r.after(3500 * time.Millisecond)
		r.endCleanly()
		for i, ctx := range kept {
			if worker.CallOf(ctx).Attempt() != 0 || worker.CallOf(ctx).Logger() == nil {
				t.Errorf("call %d is still running", i+1)
			}
		}
		want := `level=INFO msg=hello queue=pods key=a
level=WARN msg="The handler failed, its key is retried" queue=pods key=a next=retry attempt=1 duration=0s err=broken
level=INFO msg=hello queue=pods key=a
level=WARN msg="The handler failed, its key is retried" queue=pods key=a next=retry attempt=2 duration=0s err=broken
level=INFO msg=hello queue=pods key=a
level=DEBUG msg="Handled a key" queue=pods key=a next=forget attempt=3 duration=1s err=<nil>
`
		if logs.String() != want {
			t.Errorf("logged:\n%s", logs)
		}
	})
}

// A handler may ask UntilAdded in every turn of a loop: for the same context it is the same one, with one
// goroutine.
func TestUntilAddedInALoop(t *testing.T) {
	overContextKinds(t, func(t *testing.T, q stringQueue, o options) {
		turns := 0
		q.Add("a")
		r := run(t, worker.New(q, func(ctx context.Context, key string) error {
			if turns > 0 {
				return nil
			}
			before, first := testkit.Goroutines(), worker.CallOf(ctx).UntilAdded()
			for ; turns < 20_000; turns++ {
				if until := worker.CallOf(ctx).UntilAdded(); until != first {
					t.Fatalf("another context in turn %d", turns)
				}
			}
			most := 1
			if o.Clock != nil {
				most = 3 // One watches that clock, and the context package needs one for a context that it does not know.
			}
			if n := len(testkit.Goroutines()) - len(before); n > most {
				t.Errorf("%d goroutines more", n)
			}
			q.Add(key)
			<-first.Done()
			return context.Cause(first)
		}, o))
		r.after(time.Second)
		r.endCleanly()
		if turns != 20_000 {
			t.Errorf("%d turns", turns)
		}
	})
}
