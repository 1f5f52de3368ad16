package worker_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

type contextKey struct{}

// The handlers' contexts have the values of Run's, but do not end with it. What Attempt and Logger say
// of a context stays true after the call.
func TestHandlerContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger, logs := newLogger()
		q := workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Hour),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "pods"})
		var kept []context.Context
		q.Add("a")
		r := runIn(context.WithValue(t.Context(), contextKey{}, "value"), t, worker.New(q, func(ctx context.Context, key string) error {
			ctx, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			kept = append(kept, context.WithoutCancel(ctx))
			worker.Logger(ctx).Info("hello")
			if ctx.Value(contextKey{}) != "value" {
				t.Error("a value of Run's context is missing")
			}
			if worker.Attempt(ctx) < 3 {
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
			if worker.Attempt(ctx) != i+1 {
				t.Errorf("call %d is attempt %d", i+1, worker.Attempt(ctx))
			}
		}
		want := `level=INFO msg=hello queue=pods key=a
level=WARN msg="The handler failed, its key comes again" queue=pods key=a next=retry attempt=1 duration=0s err=broken
level=INFO msg=hello queue=pods key=a
level=WARN msg="The handler failed, its key comes again" queue=pods key=a next=retry attempt=2 duration=0s err=broken
level=INFO msg=hello queue=pods key=a
level=DEBUG msg="Handled a key" queue=pods key=a next=forget attempt=3 duration=1s err=<nil>
`
		if logs.String() != want {
			t.Errorf("logged:\n%s", logs)
		}
	})
}

func TestOutsideOfACall(t *testing.T) {
	if n := worker.Attempt(t.Context()); n != 0 {
		t.Errorf("Attempt is %d", n)
	}
	worker.Logger(t.Context()).Error("silence")
}

func TestLogs(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		logger, logs := newLogger()
		addAll(q, "drops panics fatal queued")
		r := run(t, worker.New(q, acts, options{Logger: logger}))
		if r.returned() == nil {
			t.Error("no error")
		}
		for _, want := range []string{
			`level=ERROR msg="The handler failed, its key is dropped" key=drops next=drop attempt=1 duration=0s err="drops is broken"`,
			`level=ERROR msg="The handler panicked" key=panics panic="what a value"`,
			`level=WARN msg="The handler failed, its key comes again" key=panics next=retry attempt=1 duration=0s err="panic: what a value"`,
			`level=ERROR msg="The workers end because of a fatal error" err=broken`,
			`level=WARN msg="Keys are left undone" unfinished=0 notStarted=1 failing=1 left="1 queued and not started: queued; 1 failed and not retried: panics"`,
		} {
			if !strings.Contains(logs.String(), want+"\n") {
				t.Errorf("missing: %s\nin:\n%s", want, logs)
			}
		}
	})
}
