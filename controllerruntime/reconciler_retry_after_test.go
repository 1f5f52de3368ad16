package controllerruntime_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	clientgo "k8s.io/client-go/util/workqueue"

	"github.com/keyedqueue/workqueue/controllerruntime"
	"github.com/keyedqueue/workqueue/worker"
)

var (
	errNotYet = errors.New("not yet")
	tooMany   = apierrors.NewTooManyRequests("slow down", 3)
)

// failsWith is an answer of a reconciler, and its d.
type failsWith struct {
	after time.Duration
	err   error
	d     string
}

// These are failures after which the API server or the reconciler do not want the request back before 3 s.
var notBefore3s = map[string]failsWith{
	"RequeueAfter":             {3 * time.Second, errNotYet, "3s"},
	"429":                      {0, tooMany, "3s"},
	"wrapped 429":              {0, fmt.Errorf("list: %w", tooMany), "3s"},
	"server timeout":           {0, apierrors.NewServerTimeout(schema.GroupResource{}, "list", 3), "3s"},
	"429 and RequeueAfter":     {time.Second, tooMany, "3s"},
	"RequeueAfter and a short": {3 * time.Second, apierrors.NewTooManyRequests("slow down", 1), "3s"},
	"worker.RetryAfter":        {0, worker.RetryAfter(errNotYet, 3*time.Second), "3s"},
}

// A failure with a least delay is counted, and the request is retried after the longer of that and the
// limiter's delay. The priority stays, and the page and the controller's log show the delay.
func TestRetryAfterInManager(t *testing.T) {
	for name, c := range notBefore3s {
		t.Run(name, func(t *testing.T) {
			p := &page{}
			onWrapped(t, controllerruntime.Options[reconcile.Request]{Page: p},
				func(s *scene, _ *controllerruntime.Reconciler[reconcile.Request]) {
					s.reconcile = func(context.Context, string) (reconcile.Result, error) {
						return reconcile.Result{RequeueAfter: c.after}, c.err
					}
					s.create(true, "a")
					time.Sleep(20 * time.Second)
					s.want("a@0s", "a@3s", "a@6s", "a@10s", "a@18s") // The limiter's delays are 1, 2, 4, 8 and 16 s.
					info, _ := s.queue.(*controllerruntime.Queue[reconcile.Request]).SnapshotKey(requestA)
					if info.Priority != -100 || info.Requeues != 5 {
						s.t.Errorf("priority %d, %d failures", info.Priority, info.Requeues)
					}
					got := p.pool.Snapshot(9)
					if got.Stats.Failed != 5 || got.Stats.Requeued != 0 || len(got.Failing) != 1 ||
						strings.Count(got.Failing[0].Err, c.d) != 1 {
						s.t.Errorf("%+v", got)
					}
					s.mu.Lock()
					s.reconcile = func(context.Context, string) (reconcile.Result, error) { return reconcile.Result{}, nil }
					s.mu.Unlock()
					s.create(false, "b")
					time.Sleep(time.Minute)
					s.want("b@20s", "a@34s")
				})
		})
	}
}

// Other answers with a delay mean what they did.
func TestNoRetryAfter(t *testing.T) {
	for name, c := range map[string]struct {
		result reconcile.Result
		err    error
		want   []string
	}{
		"no failure": {reconcile.Result{RequeueAfter: 25 * time.Second}, nil, []string{"a@0s", "a@25s"}},
		"terminal": {reconcile.Result{RequeueAfter: time.Second}, reconcile.TerminalError(tooMany),
			[]string{"a@0s"}},
		"no delay":              {reconcile.Result{}, errNotYet, []string{"a@0s", "a@1s", "a@3s", "a@7s", "a@15s"}},
		"an event in the delay": {reconcile.Result{RequeueAfter: time.Hour}, errNotYet, []string{"a@0s", "a@29s"}},
	} {
		t.Run(name, func(t *testing.T) {
			onWrapped(t, controllerruntime.Options[reconcile.Request]{},
				func(s *scene, _ *controllerruntime.Reconciler[reconcile.Request]) {
					s.reconcile = func(context.Context, string) (reconcile.Result, error) { return c.result, c.err }
					s.create(false, "a")
					time.Sleep(29 * time.Second)
					if c.result.RequeueAfter == time.Hour {
						s.queue.Add(requestA)
					}
					s.want(c.want...)
				})
		})
	}
}

// The controller gets an error that says the delay and is the reconciler's, and no RequeueAfter, about which
// it would warn.
func TestRetryAfterOfACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		result, fails := reconcile.Result{RequeueAfter: time.Minute}, errNotYet
		wrapped := controllerruntime.WrapReconciler(reconcile.TypedFunc[int](func(context.Context,
			int) (reconcile.Result, error) {
			return result, fails
		}), nil)
		limiter := clientgo.NewTypedItemExponentialFailureRateLimiter[int](time.Second, time.Hour)
		q := wrapped.NewQueue("q", limiter).(*controllerruntime.Queue[int])
		defer q.ShutDown()
		got, err := wrapped.Reconcile(t.Context(), 1)
		if got.RequeueAfter != 0 || !errors.Is(err, errNotYet) ||
			err.Error() != "not yet (again after 1m0s at the earliest)" {
			t.Errorf("Reconcile() = %+v, %v", got, err)
		}
		result.RequeueAfter = 0
		if _, err = wrapped.Reconcile(t.Context(), 1); err != errNotYet {
			t.Errorf("Reconcile() = %v", err)
		}
	})
}
