package controllerruntime_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	clientgo "k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/controllerruntime"
	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/prom"
	"github.com/keyedqueue/workqueue/worker"
)

// onWrapped is onManager with the queue of a Reconciler.
func onWrapped(t *testing.T, options controllerruntime.Options[reconcile.Request],
	f func(s *scene, r *controllerruntime.Reconciler[reconcile.Request])) {
	var s *scene
	r := controllerruntime.WrapReconcilerWithOptions(reconcile.Func(func(ctx context.Context,
		r reconcile.Request) (reconcile.Result, error) {
		return s.Reconcile(ctx, r)
	}), options)
	onManagerWith(t, r.NewQueue, func(inner *scene) reconcile.Reconciler { s = inner; return r },
		func(s *scene) { f(s, r) })
}

// A reconciler that waits with UntilAdded is interrupted by an add that is not quiet. That is no failure and
// no success: the request is retried at once, its failures are kept, and so is the limiter's delay.
func TestUntilAddedInManager(t *testing.T) {
	onWrapped(t, controllerruntime.Options[reconcile.Request]{},
		func(s *scene, r *controllerruntime.Reconciler[reconcile.Request]) {
			var attempts []int
			var causes []string
			var answers []error
			s.reconcile = func(ctx context.Context, _ string) (reconcile.Result, error) {
				attempts, causes = append(attempts, worker.CallOf(ctx).Attempt()),
					append(causes, worker.CallOf(ctx).Causes().String())
				if len(attempts) != 3 {
					return reconcile.Result{}, errors.New("not yet")
				}
				until := worker.CallOf(ctx).UntilAdded()
				<-until.Done()
				if ctx.Err() != nil || context.Cause(until) != worker.ErrAdded {
					t.Errorf("after the add: %v, %v", ctx.Err(), context.Cause(until))
				}
				err := fmt.Errorf("waiting for the rollout: %w", until.Err())
				answers = append(answers, err)
				return reconcile.Result{RequeueAfter: time.Hour}, err
			}
			r.AddCause(requestA, workqueue.Cause{Reason: "created"})
			time.Sleep(10 * time.Second)
			s.want("a@0s", "a@1s", "a@3s") // It waits.
			r.AddCause(requestA, workqueue.Cause{Reason: "status", Quiet: true})
			time.Sleep(10 * time.Second)
			s.want()
			if n := s.queue.NumRequeues(requestA); n != 2 {
				t.Errorf("%d failures before the interruption, want 2", n)
			}
			r.AddCause(requestA, workqueue.Cause{Reason: "generation 2"})
			time.Sleep(time.Second)
			s.want("a@20s") // At once. It fails for the third time, and is retried after 4 s.
			if n := s.queue.NumRequeues(requestA); n != 3 {
				t.Errorf("%d failures after the interruption, want 3", n)
			}
			time.Sleep(4 * time.Second)
			s.want("a@24s")
			if got, want := fmt.Sprint(attempts), "[1 2 3 3 4]"; got != want {
				t.Errorf("attempts %v, want %v", got, want)
			}
			if got, want := strings.Join(causes, ", "), "created, , , status; generation 2, "; got != want {
				t.Errorf("causes %q, want %q", got, want)
			}
			if len(answers) != 1 {
				t.Errorf("interrupted by %v", answers)
			}
			s.mu.Lock()
			s.reconcile = func(context.Context, string) (reconcile.Result, error) { return reconcile.Result{}, nil }
			s.mu.Unlock()
			time.Sleep(time.Minute)
			s.want("a@32s")
			if n := s.queue.NumRequeues(requestA); n != 0 {
				t.Errorf("%d failures after a success", n)
			}
		})
}

// An add between Get and the call also interrupts. Without UntilAdded, an error is a failure.
func TestAddedBeforeTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var err error
		r := controllerruntime.WrapReconciler(reconcile.Func(func(ctx context.Context,
			_ reconcile.Request) (reconcile.Result, error) {
			until := worker.CallOf(ctx).UntilAdded()
			if until.Err() == nil {
				t.Error("the add was missed")
			}
			return reconcile.Result{}, err
		}), nil)
		q := r.NewQueue("", clientgo.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer q.ShutDown()
		for err = range map[error]bool{context.Canceled: true, worker.ErrAdded: true, errors.New("else"): false} {
			q.Add(requestA)
			_, _ = q.Get()
			q.Add(requestA)
			_, got := r.Reconcile(t.Context(), requestA)
			if interrupted := err == context.Canceled || err == worker.ErrAdded; (got == nil) != interrupted ||
				got != nil && got != err {
				t.Errorf("%v has become %v", err, got)
			}
			q.Done(requestA)
			_, _ = q.Get()
			q.Done(requestA)
		}
	})
}

// An interrupted request is queued by the add that interrupts it, unless that is taken back. An ErrAdded from
// elsewhere queues it: it would be lost otherwise.
func TestErrAddedWithoutAnAdd(t *testing.T) {
	for interrupted, want := range map[bool]int{true: 0, false: 1} {
		var q *controllerruntime.Queue[reconcile.Request]
		r := controllerruntime.WrapReconciler(reconcile.Func(func(ctx context.Context,
			_ reconcile.Request) (reconcile.Result, error) {
			if interrupted {
				q.Add(requestA)
				<-worker.CallOf(ctx).UntilAdded().Done()
				q.Remove(requestA)
			}
			return reconcile.Result{}, worker.ErrAdded
		}), nil)
		q = r.NewQueue("", nil).(*controllerruntime.Queue[reconcile.Request])
		q.Add(requestA)
		_, _ = q.Get()
		if _, err := r.Reconcile(t.Context(), requestA); err != nil {
			t.Error(err)
		}
		q.Done(requestA)
		if n := q.Len(); n != want {
			t.Errorf("interrupted: %v, %d requests are queued, want %d", interrupted, n, want)
		}
		q.ShutDown()
	}
}

// The page has the last attempts with the stacks of panics, the stack of a stuck reconciler, the causes, and
// hands.
func TestInspectorInManager(t *testing.T) {
	p := &page{}
	var stuck []worker.RunningKey[reconcile.Request]
	onWrapped(t, controllerruntime.Options[reconcile.Request]{
		Page: p, StuckAfter: time.Minute,
		OnStuck: func(_ context.Context, k worker.RunningKey[reconcile.Request]) { stuck = append(stuck, k) },
	}, func(s *scene, r *controllerruntime.Reconciler[reconcile.Request]) {
		if p.pool.Queue.Queue != any(s.queue) || p.queue != any(s.queue) || p.name != "test" {
			t.Error("the page was not given the queue and the pool")
		}
		if r.Cancel(requestA) {
			t.Error("Cancel of a request that is not reconciled")
		}
		calls, began := 0, time.Now()
		s.reconcile = func(ctx context.Context, _ string) (reconcile.Result, error) {
			time.Sleep(time.Second)
			switch calls++; {
			case calls == 7:
				panic("bang")
			case calls == 8:
				<-ctx.Done()
				return reconcile.Result{}, reconcile.TerminalError(context.Cause(ctx)) // What it returns decides.
			}
			return reconcile.Result{}, fmt.Errorf("no %d", calls)
		}
		r.AddCause(requestA, workqueue.Cause{Reason: "created"})
		time.Sleep(500 * time.Millisecond)
		if k := p.pool.SnapshotKey(requestA); k.Running == nil || k.Running.Attempt != 1 ||
			!k.Running.Started.Equal(began) || k.Causes.String() != "created" {
			t.Errorf("in the first call: %+v", k)
		}
		time.Sleep(time.Second * (7 + 1 + 2 + 4 + 8 + 16 + 32))
		synctest.Wait()
		k := p.pool.SnapshotKey(requestA)
		if k.Failing == nil || k.Failing.Attempt != 7 || !k.Failing.Since.Equal(began.Add(time.Second)) ||
			!k.Failing.NextTry.Equal(began.Add((70+64)*time.Second)) {
			t.Fatalf("after seven failures: %+v", k)
		}
		if k.Failing.Err != "panic: bang" {
			t.Errorf("after a panic: %+v", k)
		}
		if st := p.pool.Stats(); st.Failing != 1 || st.Name != "test" || st.Panicked != 1 || st.Wanted != 0 {
			t.Errorf("after seven failures: %+v", st)
		}

		time.Sleep(64*time.Second + 61*time.Second)
		synctest.Wait()
		k = p.pool.SnapshotKey(requestA)
		if k.Running == nil || !k.Running.Stuck || !strings.Contains(k.Running.Stack, "TestInspectorInManager") ||
			len(stuck) != 1 || stuck[0].Stack != k.Running.Stack {
			t.Errorf("stuck: %+v, reported %+v", k.Running, stuck)
		}
		if st := p.pool.Stats(); st.Busy != 1 || st.Wanted != 1 || st.Stuck != 1 || st.Ended {
			t.Errorf("stuck: %+v", st)
		}
		if !r.Cancel(requestA) || p.pool.Cancel(request("b")) {
			t.Error("Cancel found nothing")
		}
		synctest.Wait()
		k = p.pool.SnapshotKey(requestA)
		if k.Running != nil || k.Failing != nil || k.GivenUp == nil ||
			!strings.Contains(k.GivenUp.Err, worker.ErrCanceled.Error()) {
			t.Errorf("after a terminal error: %+v", k)
		}
		p.pool.Forget(requestA)
		if k = p.pool.SnapshotKey(requestA); k.GivenUp != nil {
			t.Errorf("forgotten: %+v", k)
		}
		p.untyped.Add(requestA) // "retry"
		time.Sleep(time.Second)
		synctest.Wait()
		if k = p.pool.SnapshotKey(requestA); k.Failing == nil || k.Failing.Attempt != 1 {
			t.Errorf("retried: %+v", k)
		}
		p.untyped.(operate.Operable[any]).Remove(requestA)
		if k, st := p.pool.SnapshotKey(requestA), p.pool.Stats(); k.Failing != nil || st.Failing != 0 {
			t.Errorf("a failure of a request that was removed from the queue is kept: %+v, %+v", k, st)
		}
	})
	if !p.pool.Stats().Ended {
		t.Error("the page does not see the end")
	}
}

// The priority is the request's, and a Reconciler without a queue of its own passes calls on and says
// so, once.
func TestContextOfReconciler(t *testing.T) {
	var ctx context.Context
	var p, attempt int
	r := controllerruntime.WrapReconciler(reconcile.Func(func(c context.Context,
		_ reconcile.Request) (reconcile.Result, error) {
		ctx, attempt = c, worker.CallOf(c).Attempt()
		p, _ = worker.CallOf(c).Priority()
		return reconcile.Result{RequeueAfter: worker.CallOf(c).UntilAdded().Value(key{}).(time.Duration)}, c.Err()
	}), nil)
	var logged []string
	logger := funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})
	caller := log.IntoContext(context.WithValue(t.Context(), key{}, time.Minute), logger)
	r.AddCause(requestA, workqueue.Cause{})
	if result, err := r.Reconcile(caller, requestA); result.RequeueAfter != time.Minute || err != nil ||
		ctx != caller || r.Cancel(requestA) {
		t.Errorf("without a queue: %v, %v", result, err)
	}
	if _, _ = r.Reconcile(caller, requestA); len(logged) != 1 ||
		!strings.Contains(logged[0], "set NewQueue of controller.Options") {
		t.Errorf("without a queue it has logged %q", logged)
	}
	q := r.With(priorityqueue.Config[reconcile.Request]{})("", nil).(*controllerruntime.Queue[reconcile.Request])
	defer q.ShutDown()
	q.AddWithPriority(requestA, -100, 0)
	_, _ = q.Get()
	if result, err := r.Reconcile(caller, requestA); result.RequeueAfter != time.Minute || err != nil {
		t.Errorf("%v, %v", result, err)
	}
	if p != -100 || attempt != 1 || ctx.Err() == nil {
		t.Errorf("priority %d, attempt %d, ended with %v", p, attempt, ctx.Err())
	}
	q.Done(requestA)
}

// Two controllers with one Reconciler would see each other's attempts and causes. It says so, once.
func TestReconcilerOfTwoControllers(t *testing.T) {
	r := controllerruntime.WrapReconciler(reconcile.Func(func(context.Context,
		reconcile.Request) (reconcile.Result, error) {
		return reconcile.Result{}, nil
	}), nil)
	var logged []string
	ctx := log.IntoContext(t.Context(), funcr.New(func(_, args string) { logged = append(logged, args) },
		funcr.Options{}))
	for _, name := range []string{"a", "b"} {
		q := r.NewQueue(name, nil)
		defer q.ShutDown()
		for range 2 {
			q.Add(requestA)
			_, _ = q.Get()
			if _, err := r.Reconcile(ctx, requestA); err != nil {
				t.Error(err)
			}
			q.Done(requestA)
		}
		if name == "a" && len(logged) > 0 {
			t.Errorf("one controller: %q", logged)
		}
	}
	if len(logged) != 1 || !strings.Contains(logged[0], "one Reconciler for two controllers") {
		t.Errorf("logged %q", logged)
	}
}

type key struct{}

// A request whose reconciler interrupts itself without an end is slowed down. The metric and the page know
// it. The page recognizes the queue, also if the queue's own provider has shown it before.
func TestInterruptLoop(t *testing.T) {
	for _, shownTwice := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			var q clientgo.TypedRateLimitingInterface[reconcile.Request]
			p, own := &page{}, &passingPage{Provider: prom.NewProvider(prometheus.NewRegistry(), prom.Options{})}
			r := controllerruntime.WrapReconciler(reconcile.Func(func(ctx context.Context,
				req reconcile.Request) (reconcile.Result, error) {
				calls++
				until := worker.CallOf(ctx).UntilAdded()
				q.Add(req)
				<-until.Done()
				return reconcile.Result{}, until.Err()
			}), p)
			config := priorityqueue.Config[reconcile.Request]{}
			if shownTwice {
				config.MetricsProvider = own
			}
			q = r.With(config)("busy", clientgo.DefaultTypedControllerRateLimiter[reconcile.Request]())
			go func() {
				for req, shutDown := q.Get(); !shutDown; req, shutDown = q.Get() {
					_, _ = r.Reconcile(t.Context(), req)
					q.Done(req)
				}
			}()
			q.Add(requestA)
			time.Sleep(time.Minute)
			synctest.Wait()
			if calls < 10 || calls > 30 {
				t.Errorf("%d calls in a minute", calls)
			}
			if n := p.pool.Stats().Looping; n != 1 {
				t.Errorf("%d keys loop", n)
			}
			if p.pool.Queue.Queue != p.queue || shownTwice && own.queue != p.untyped.Below() {
				t.Error("the page cannot know that this is one queue")
			}
			if got := served(t, "busy"); !shownTwice && !strings.Contains(got,
				`workqueue_pool_looping_keys{controller="NAME",name="NAME"} 1`) {
				t.Errorf("the metric does not know it: %s", got)
			}
			q.ShutDown()
			synctest.Wait()
		})
	}
}
