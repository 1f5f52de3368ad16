package controllerruntime_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgo "k8s.io/client-go/util/workqueue"
	crpriority "sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/controllerruntime"
	"github.com/keyedqueue/workqueue/worker"
)

// The answers of package worker mean the same to the controller as to the page. If the controller knew
// nothing of them, a Terminal would be retried while the page says that it was given up, and a RequeueAfter
// would be a failure with a growing delay.
func TestAnswersOfWorkerInManager(t *testing.T) {
	for name, c := range map[string]struct {
		err      error
		want     []string
		givenUp  int
		requeued uint64
		failed   uint64
		priority int
	}{
		"Terminal": {worker.Terminal(errNotYet), []string{"a@0s"}, 1, 0, 1, 0},
		"Fatal":    {fmt.Errorf("a: %w", worker.Fatal(errNotYet)), []string{"a@0s"}, 1, 0, 1, 0},
		"RequeueAfter": {fmt.Errorf("a: %w", worker.RequeueAfter(10*time.Second)),
			[]string{"a@0s", "a@10s", "a@20s"}, 0, 3, 0, -100},
		"Requeue": {worker.Requeue{After: 20 * time.Second, Priority: ptr(7)}, []string{"a@0s", "a@20s"},
			0, 2, 0, 7},
		"Every": {worker.Every(20 * time.Second), []string{"a@0s", "a@4.056958856s", "a@24.056958856s"},
			0, 3, 0, -100},
	} {
		t.Run(name, func(t *testing.T) {
			p := &page{}
			onWrapped(t, controllerruntime.Options[reconcile.Request]{Page: p},
				func(s *scene, _ *controllerruntime.Reconciler[reconcile.Request]) {
					s.reconcile = func(context.Context, string) (reconcile.Result,
						error) {
						return reconcile.Result{}, c.err
					}
					s.create(true, "a")
					time.Sleep(29 * time.Second)
					s.want(c.want...)
					st := p.pool.Stats()
					if st.GivenUpKeys != c.givenUp || st.Requeued != c.requeued || st.Failed != c.failed {
						t.Errorf("%+v", st)
					}
					info, _ := s.queue.(*controllerruntime.Queue[reconcile.Request]).SnapshotKey(requestA)
					if waits := c.givenUp == 0; waits != (info.State == workqueue.KeyWaiting) || waits &&
						info.Priority != c.priority {
						t.Errorf("%+v", info)
					}
				})
		})
	}
}

// A result counts as a requeue if the controller brings the request again because of it, and only then.
func TestResultsThatRequeue(t *testing.T) {
	withPriority := reconcile.Result{}
	// From controller-runtime 0.23 on.
	if p := reflect.ValueOf(&withPriority).Elem().FieldByName("Priority"); p.IsValid() {
		p.Set(reflect.ValueOf(ptr(7)))
	}
	for n, c := range []struct {
		result   reconcile.Result
		requeued uint64
	}{
		{reconcile.Result{}, 0}, {reconcile.Result{RequeueAfter: -time.Second}, 0}, {withPriority, 0},
		{reconcile.Result{RequeueAfter: time.Second}, 1},
		//lint:ignore SA1019 the controller obeys Requeue until it is removed
		{reconcile.Result{Requeue: true}, 1},
	} {
		p := &page{}
		r := controllerruntime.WrapReconciler(reconcile.TypedFunc[int](func(context.Context, int) (reconcile.Result,
			error) {
			return c.result, nil
		}), p)
		q := r.NewQueue("q", nil)
		if got, err := r.Reconcile(t.Context(), 1); got != c.result || err != nil {
			t.Errorf("%d: Reconcile() = %+v, %v", n, got, err)
		}
		if st := p.pool.Stats(); st.Requeued != c.requeued || st.Handled != 1 {
			t.Errorf("%d: %+v", n, st)
		}
		q.ShutDown()
	}
}

// The controller sees a terminal error that is the reconciler's, and a request that wants to come at once has
// come back.
func TestAnswersOfWorkerOfACall(t *testing.T) {
	var answer error
	r := controllerruntime.WrapReconciler(reconcile.TypedFunc[int](func(context.Context,
		int) (reconcile.Result, error) {
		return reconcile.Result{}, answer
	}), nil)
	q := r.NewQueue("", nil)
	defer q.ShutDown()
	for answer = range map[error]bool{worker.Terminal(errNotYet): true, worker.RequeueAfter(0): false} {
		q.Add(1)
		_, _ = q.Get()
		_, err := r.Reconcile(t.Context(), 1)
		q.Done(1)
		if again := err == nil; again != (q.Len() == 1) || !again &&
			(!errors.Is(err, reconcile.TerminalError(nil)) || !errors.Is(err, errNotYet)) {
			t.Errorf("%v has become %v, and the queue has %d", answer, err, q.Len())
		}
		if q.Len() == 1 {
			_, _ = q.Get()
			q.Done(1)
		}
	}
}

// A failure is one retry in the queue's numbers, with backoff and at the request's priority, with a wrapped
// reconciler and without. The controller recovers panics.
func TestFailureIsOneRetry(t *testing.T) {
	for name, fail := range map[string]func() error{
		"error": func() error { return errNotYet },
		"panic": func() error { panic("not yet") },
	} {
		t.Run(name, func(t *testing.T) {
			fails := func(s *scene) {
				n := 0
				s.reconcile = func(context.Context, string) (reconcile.Result, error) {
					if n++; n <= 3 {
						return reconcile.Result{}, fail()
					}
					return reconcile.Result{}, nil
				}
				q := s.queue.(*controllerruntime.Queue[reconcile.Request])
				s.create(true, "a")
				time.Sleep(2 * time.Second)
				if k, _ := q.SnapshotKey(requestA); k.Priority != -100 || k.Requeues != 2 {
					t.Errorf("%+v", k)
				}
				time.Sleep(time.Minute)
				s.want("a@0s", "a@1s", "a@3s", "a@7s")
				if st := q.Stats(); st.Retries != 3 || st.Failing != 0 || q.NumRequeues(requestA) != 0 {
					t.Errorf("%+v", st)
				}
			}
			onManager(t, controllerruntime.NewQueue, fails)
			onWrapped(t, controllerruntime.Options[reconcile.Request]{},
				func(s *scene, _ *controllerruntime.Reconciler[reconcile.Request]) { fails(s) })
		})
	}
}

// After a failure the controller adds the request with the priority of the reconcile.Result, which newer
// versions have. A higher one counts, as without a Reconciler.
func TestFailureWithPriority(t *testing.T) {
	r := controllerruntime.WrapReconcilerWithOptions(reconcile.Func(
		func(context.Context, reconcile.Request) (reconcile.Result, error) {
			return reconcile.Result{}, errors.New("not yet")
		}), controllerruntime.Options[reconcile.Request]{})
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Hour, time.Hour)
	q := r.NewQueue("test", limiter).(*controllerruntime.Queue[reconcile.Request])
	defer q.ShutDown()
	q.Add(requestA)
	if _, down := q.Get(); down {
		t.Fatal("the queue is shut down")
	}
	_, _ = r.Reconcile(t.Context(), requestA)
	q.AddWithOpts(crpriority.AddOpts{RateLimited: true, Priority: ptr(5)}, requestA)
	q.Done(requestA)
	if got := q.PriorityOf(requestA); got != 5 {
		t.Errorf("the priority is %d", got)
	}
}

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
	"RetryAfter of a short 429": {0, worker.RetryAfter(apierrors.NewTooManyRequests("slow down", 1),
		3*time.Second), "3s"},
	"RetryAfter and a short":   {time.Second, worker.RetryAfter(errNotYet, 3*time.Second), "3s"},
	"a short and a RetryAfter": {3 * time.Second, worker.RetryAfter(errNotYet, time.Second), "3s"},
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
					st, k := p.pool.Stats(), p.pool.SnapshotKey(requestA)
					if st.Failed != 5 || st.Requeued != 0 || k.Failing == nil || strings.Count(k.Failing.Err, c.d) != 1 {
						s.t.Errorf("%+v, %+v", st, k)
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
