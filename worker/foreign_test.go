package worker_test

import (
	"context"
	"testing"
	"time"

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
