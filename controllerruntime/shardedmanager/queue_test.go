package shardedmanager

import (
	"context"
	"errors"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/sharding"
)

// leasedBy is a queue whose leases are those that the function returns.
type leasedBy struct {
	sharding.Queue[request]
	lease func(ctx context.Context) (context.Context, context.CancelFunc)
}

func (q leasedBy) Lease(ctx context.Context, _ request) (context.Context, context.CancelFunc) {
	return q.lease(ctx)
}

// A key whose lease is lost belongs to another replica: its call here is neither made nor a failure, at which
// the controller would add it again.
func TestLostLease(t *testing.T) {
	failure := errors.New("broken")
	asksAgain := reconcile.Result{RequeueAfter: time.Minute}
	for name, c := range map[string]struct {
		lostBefore, lostInCall, managerEnds bool
		calls                               int
		result                              reconcile.Result
		err                                 error
	}{
		"kept":                         {calls: 1, result: asksAgain, err: failure},
		"lost before the call":         {lostBefore: true},
		"lost in the call":             {lostInCall: true, calls: 1},
		"the manager ends in the call": {managerEnds: true, calls: 1, result: asksAgain, err: failure},
		"lost as the manager ends":     {lostInCall: true, managerEnds: true, calls: 1, result: asksAgain, err: failure},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, endManager := context.WithCancel(t.Context())
			defer endManager()
			var lose context.CancelCauseFunc
			calls := 0
			s := &shardedController{made: make(chan struct{}), Controller: Controller{
				Reconciler: reconcile.Func(func(context.Context, request) (reconcile.Result, error) {
					calls++
					if c.lostInCall {
						lose(leasing.ErrLost)
					}
					if c.managerEnds {
						endManager()
					}
					return asksAgain, failure
				}),
			}}
			close(s.made)
			s.queue = leasedBy{lease: func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, lose = context.WithCancelCause(ctx)
				if c.lostBefore {
					lose(leasing.ErrLost)
				}
				return ctx, func() { lose(nil) }
			}}
			if result, err := s.Reconcile(ctx, request{}); result != c.result || err != c.err || calls != c.calls {
				t.Errorf("%d calls, %+v, %v, want %d, %+v, %v", calls, result, err, c.calls, c.result, c.err)
			}
		})
	}
}
