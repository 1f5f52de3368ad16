package worker_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// wrapper is an error whose nil pointer cannot be unwrapped.
type wrapper struct{ within error }

func (*wrapper) Error() string   { return "wrapper" }
func (w *wrapper) Unwrap() error { return w.within }

// The methods of a handler's error are its code, too: what they do is the failure of its key, and not of the pool.
func TestPanicOfTheErrorFailsTheKey(t *testing.T) {
	for name, bad := range map[string]error{
		"wrapper":           (*wrapper)(nil),
		"Requeue":           (*worker.Requeue)(nil),
		"RequeueAfterError": (*worker.RequeueAfterError)(nil),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, q stringQueue) {
				calls := 0
				q.Add("a")
				r := run(t, worker.New(q, func(context.Context, string) error {
					if calls++; calls == 1 {
						return bad
					}
					return nil
				}, options{}))
				r.after(time.Second)
				if calls != 2 {
					t.Errorf("%d calls", calls)
				}
				r.endCleanly()
			})
		})
	}
}

// forgetPanics is a limiter whose Forget panics.
type forgetPanics struct {
	workqueue.TypedRateLimiter[string]
}

func (forgetPanics) Forget(string) { panic("forget") }

// The key was to come again. It is in the queue when the limiter panics, and so it is reported.
func TestPanicOfForgetKeepsTheRequeuedKey(t *testing.T) {
	inBubble(t, func(t *testing.T, _ stringQueue) {
		q := workqueue.NewTypedRateLimitingQueue[string](forgetPanics{workqueue.NewTypedMaxOfRateLimiter[string]()})
		q.Add("a")
		r := run(t, worker.New(q, func(context.Context, string) error { return worker.RequeueAfter(0) }, options{}))
		err := r.returned()
		var p *worker.PanicError
		if !errors.As(err, &p) || p.Value != "forget" || !slices.Equal(left(t, err).NotStarted, []string{"a"}) {
			t.Errorf("Run returned %v", err)
		}
	})
}
