package worker_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// The causes of a call are known as long as it runs, and every log line about it has them. A retry has
// none.
func TestCauses(t *testing.T) {
	overNotifying(t, func(t *testing.T, q notifying) {
		var calls, hooks []string
		var kept context.Context
		logger, logs := newLogger()
		q.AddCause("a", workqueue.Cause{Reason: "Secret x changed"})
		q.AddCause("a", workqueue.Cause{Reason: "spec changed"})
		r := run(t, worker.New(q, func(ctx context.Context, key string) error {
			kept = ctx
			derived, cancel := context.WithCancel(ctx)
			defer cancel()
			calls = append(calls, worker.CallOf(derived).Causes().String())
			switch len(calls) {
			case 1:
				q.AddCause("a", workqueue.Cause{Reason: "during the call"})
				time.Sleep(100 * time.Millisecond)
				return errBroken
			case 2:
				return worker.ErrAdded
			case 3:
				return worker.Terminal(errBroken)
			}
			return nil
		}, options{
			Logger: logger, StuckAfter: 50 * time.Millisecond,
			OnFinish: func(ctx context.Context, r outcome) {
				hooks = append(hooks, worker.CallOf(ctx).Causes().String())
			},
		}))
		r.after(time.Minute)
		q.AddCause("a", workqueue.Cause{Reason: "at last"})
		r.after(2 * time.Minute)
		// In the FIFO a key comes twice that is added now and after a time.
		want := []string{"Secret x changed; spec changed", "during the call", "", "at last"}
		if !slices.Equal(slices.Compact(calls), want) || !slices.Equal(slices.Compact(hooks), want) {
			t.Errorf("handlers have %q, hooks %q, want %q", calls, hooks, want)
		}
		if causes := worker.CallOf(kept).Causes(); !causes.IsZero() {
			t.Errorf("after the call: %v", causes)
		}
		for _, line := range []string{
			`level=WARN msg="A handler is stuck" key=a running=50ms causes="Secret x changed; spec changed"`,
			`level=WARN msg="The handler failed, its key is retried" key=a next=retry attempt=1 duration=100ms err=broken causes="Secret x changed; spec changed"`,
			`level=DEBUG msg="The handler was interrupted, its key comes at once" key=a next=interrupted attempt=2 duration=0s err="worker: the key was added again" atOnce=1 causes="during the call"`,
			`level=ERROR msg="The handler failed, its key is given up" key=a next=give_up attempt=1 duration=0s err=broken`,
			`level=DEBUG msg="Handled a key" key=a next=forget attempt=1 duration=0s err=<nil> causes="at last"`,
		} {
			if !strings.Contains(logs.String(), line+"\n") {
				t.Errorf("missing: %s\nin:\n%s", line, logs)
			}
		}
		r.endCleanly()
	})
}

// Without a cause or a call there are no causes.
func TestCausesOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.Add("a")
		run(t, worker.New(q, func(ctx context.Context, key string) error {
			if !worker.CallOf(ctx).Causes().IsZero() || !worker.CallOf(t.Context()).Causes().IsZero() {
				t.Errorf("%s: %v", key, worker.CallOf(ctx).Causes())
			}
			return nil
		}, options{})).endCleanly()
	})
}

// askedCauses is a queue that counts the calls of Causes.
type askedCauses struct {
	notifying
	asked int
}

func (q *askedCauses) Causes(key string) workqueue.Causes { q.asked++; return q.notifying.Causes(key) }

// Without a line to write, the queue is not asked for causes.
func TestCausesAreAskedForLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger, _ := newLogger()
		for want, o := range []options{{}, {Logger: logger}} {
			q := &askedCauses{notifying: newQueue()}
			q.Add("a")
			run(t, worker.New(q, fine, o)).endCleanly()
			if q.asked != want {
				t.Errorf("asked %d times, want %d", q.asked, want)
			}
		}
	})
}
