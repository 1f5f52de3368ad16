package worker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/worker"
)

// However the handler's context was made, Cancel ends it with its cause, whether or not the handler has
// looked at it before. An error is a failure.
func TestCancel(t *testing.T) {
	overContextKinds(t, func(t *testing.T, q stringQueue, o options) {
		var results []string
		o.OnFinish = func(_ context.Context, r outcome) {
			if r.Attempt == 1 {
				results = append(results, fmt.Sprint(r.Key, " ", r.Duration, " ", r.Next))
			}
		}
		o.Workers = 3
		p := worker.New(q, func(ctx context.Context, key string) error {
			if worker.CallOf(ctx).Attempt() > 1 {
				return nil
			}
			if key == "looks late" {
				time.Sleep(10 * time.Second)
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Minute):
				return nil
			}
			if cause := context.Cause(ctx); cause != worker.ErrCanceled {
				t.Errorf("%s: the cause is %v", key, cause)
			}
			if key == "ignores it" {
				return nil
			}
			return ctx.Err()
		}, o)
		if p.Cancel("waits") {
			t.Error("canceled before Run")
		}
		for _, key := range []string{"waits", "looks late", "goes on"} {
			q.Add(key)
		}
		q.AddAfter("ignores it", 2*time.Second)
		r := run(t, p)
		r.after(time.Second)
		if !p.Cancel("waits") || !p.Cancel("looks late") || p.Cancel("ignores it") || p.Cancel("unknown") ||
			p.Cancel("") {
			t.Error("Cancel does not know what runs")
		}
		r.after(3 * time.Second)
		if !p.Cancel("ignores it") {
			t.Error("not canceled")
		}
		r.after(5 * time.Minute)
		if p.Cancel("waits") || p.Cancel("") {
			t.Error("canceled after the call")
		}
		if o.Clock == nil {
			equal(t, "results", results, "waits 1s retry", "ignores it 1s forget", "looks late 10s retry",
				"goes on 1m0s forget")
		}
		r.endCleanly()
	})
}

// Cancel reaches a handler that Run has left behind, which knows the first cause already.
func TestCancelOfALeftHandler(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		var causes []error
		p := worker.New(q, func(ctx context.Context, key string) error {
			time.Sleep(time.Hour)
			causes = append(causes, context.Cause(ctx))
			return nil
		}, options{Drain: worker.Nothing, CancelGrace: worker.NoGrace})
		q.Add("a")
		r := run(t, p)
		q.Add("b")
		p.Stop(worker.Nothing)
		r.returnedLeaving("1 still running: a; 1 queued and not started: b")
		if !p.Cancel("a") || p.Cancel("b") {
			t.Error("Cancel does not know what runs")
		}
		r.after(2 * time.Hour)
		equal(t, "causes", causes, worker.ErrStopped)
	})
}

// A handler's context ends after the hooks of its call, and no earlier, whether or not somebody has looked at
// it before. It keeps its values.
func TestContextEndsWithTheCall(t *testing.T) {
	overContextKinds(t, func(t *testing.T, q stringQueue, o options) {
		kept := make(map[string]context.Context)
		o.OnFinish = func(ctx context.Context, r outcome) {
			if ctx.Err() != nil {
				t.Errorf("%s: it has ended before OnFinish: %v", r.Key, ctx.Err())
			}
		}
		p := worker.New(q, func(ctx context.Context, key string) error {
			if kept[key] = ctx; key == "looks" && isClosed(ctx.Done()) {
				t.Error("it has ended at once")
			}
			worker.CallOf(ctx).Logger().Info("silence, or not")
			return nil
		}, o)
		q.Add("looks")
		q.Add("does not look")
		r := runIn(context.WithValue(t.Context(), leaseOf{}, "value"), t, p)
		for key, ctx := range kept {
			if ctx.Err() != context.Canceled || context.Cause(ctx) != context.Canceled || !isClosed(ctx.Done()) {
				t.Errorf("%s: after the call: %v, %v", key, ctx.Err(), context.Cause(ctx))
			}
			if ctx.Value(leaseOf{}) != "value" {
				t.Errorf("%s: after the call it has lost its values", key)
			}
			child, cancel := context.WithCancel(ctx)
			if child.Err() != context.Canceled {
				t.Errorf("%s: what is made from it after the call has not ended", key)
			}
			cancel()
		}
		if len(kept) != 2 {
			t.Errorf("%d contexts", len(kept))
		}
		r.endCleanly()
	})
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
