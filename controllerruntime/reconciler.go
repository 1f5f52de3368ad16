package controllerruntime

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Page shows queues, and what is done with their keys. It is a *debug.Handler.
type Page interface {
	InspectQueue(name string, q workqueue.Inspector)
	WatchPoolKeys(name string, snapshot func(limit int) worker.Snapshot[any])
}

// Reconciler calls another reconciler and remembers, for a page, which requests are being reconciled and which fail, with
// their last errors. It is made by [WrapReconciler].
type Reconciler[request comparable] struct {
	reconciler reconcile.TypedReconciler[request]
	page       Page

	mu struct {
		sync.Mutex
		queue   *Queue[request] // nil until Watch
		stats   worker.Stats    // its counters
		running map[request]worker.RunningKey[request]
		// failing has the elements of failures, whose values are FailedKeys, the last failure first.
		failing  map[request]*list.Element
		failures list.List
	}
}

const (
	// maxFailing is how many failing requests are remembered: those that have failed last.
	maxFailing   = 10_000
	maxErrorText = 1 << 10
)

// WrapReconciler returns a reconciler that calls r, whose results, errors and panics it passes on unchanged. It shows
// what it does on the page, beside the controller's queue, as soon as that is passed to [Reconciler.Watch]:
//
//	r := controllerruntime.WrapReconciler(myReconciler, page)
//	ctrl.NewControllerManagedBy(mgr).
//		WithOptions(controller.Options{NewQueue: controllerruntime.With(config, r.Watch)}).
//		Complete(r)
//
// Each controller needs one of its own. A call takes two locks for a moment. The last errors of up to 10,000 requests are
// kept, 1 KiB of each. An error is forgotten when the request succeeds or is no longer in the queue.
func WrapReconciler[request comparable](r reconcile.TypedReconciler[request], page Page) *Reconciler[request] {
	w := &Reconciler[request]{reconciler: r, page: page}
	w.mu.running = map[request]worker.RunningKey[request]{}
	w.mu.failing = map[request]*list.Element{}
	return w
}

// Watch shows q and the reconciler on the page, under the queue's name. It is for [With], which passes it the queue of the
// controller.
func (r *Reconciler[request]) Watch(q *Queue[request]) {
	r.mu.Lock()
	r.mu.queue = q
	r.mu.Unlock()
	name := q.Stats().Name
	r.page.InspectQueue(name, workqueue.Inspect(q))
	r.page.WatchPoolKeys(name, r.snapshot)
}

// Reconcile calls the other reconciler.
func (r *Reconciler[request]) Reconcile(ctx context.Context, req request) (result reconcile.Result, err error) {
	r.begin(req)
	returned := false
	defer func() {
		if returned {
			r.end(req, result, err, false)
			return
		}
		// A panic goes on with the stack that it has.
		v := recover()
		r.end(req, result, fmt.Errorf("panic: %v", v), true)
		if v != nil {
			panic(v)
		}
	}()
	result, err = r.reconciler.Reconcile(ctx, req)
	returned = true
	return result, err
}

func (r *Reconciler[request]) begin(req request) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	attempt := 1
	if e := r.mu.failing[req]; e != nil {
		attempt += e.Value.(worker.FailedKey[request]).Attempt
	}
	r.mu.running[req] = worker.RunningKey[request]{Key: req, Attempt: attempt, Started: now}
}

// end notes how the call of req has ended, as controller-runtime sees it.
func (r *Reconciler[request]) end(req request, result reconcile.Result, err error, panicked bool) {
	failed := worker.FailedKey[request]{Key: req, Time: time.Now()}
	if err != nil {
		failed.Err = errorText(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	failed.Attempt = r.mu.running[req].Attempt
	delete(r.mu.running, req)
	r.forgetLocked(req)
	st := &r.mu.stats
	st.Handled++
	switch {
	case err != nil:
		st.Failed++
		if panicked {
			st.Panicked++
		}
		if errors.Is(err, reconcile.TerminalError(nil)) {
			st.Dropped++
			return
		}
		r.mu.failing[req] = r.mu.failures.PushFront(failed)
		if r.mu.failures.Len() > maxFailing {
			r.forgetLocked(r.mu.failures.Back().Value.(worker.FailedKey[request]).Key)
		}
	case !result.IsZero():
		st.Requeued++
		if result.RequeueAfter > 0 {
			st.RequeuedAfter++
		}
	}
}

func (r *Reconciler[request]) forgetLocked(req request) {
	if e := r.mu.failing[req]; e != nil {
		r.mu.failures.Remove(e)
		delete(r.mu.failing, req)
	}
}

// errorText returns the text of err, cut where it is too long, without the rest in memory.
func errorText(err error) string {
	s := err.Error()
	return strings.Clone(strings.ToValidUTF8(s[:min(len(s), maxErrorText)], ""))
}

// snapshot returns what the page shows: up to limit requests of each kind.
func (r *Reconciler[request]) snapshot(limit int) worker.Snapshot[any] {
	s, failing, queue := r.copy(limit)
	for _, f := range failing {
		k, found := queue.SnapshotKey(f.Key)
		if !found {
			r.forget(f)
			continue
		}
		s.Failing = append(s.Failing, worker.FailedKey[any]{Key: f.Key, Attempt: f.Attempt, Err: f.Err, Time: f.Time, NextTry: k.Due})
	}
	return s
}

// copy returns the running and the failing requests.
func (r *Reconciler[request]) copy(limit int) (s worker.Snapshot[any], failing []worker.FailedKey[request], q *Queue[request]) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	q = r.mu.queue
	s.Stats = r.mu.stats
	s.Stats.Name = q.Stats().Name
	s.Stats.Busy = len(r.mu.running)
	s.Stats.Wanted, s.Stats.Living = s.Stats.Busy, s.Stats.Busy // Only the controller knows how many workers it has.
	s.Stats.Failing = r.mu.failures.Len()
	s.Stats.Ended = q.ShuttingDown() && s.Stats.Busy == 0
	for _, k := range r.mu.running {
		s.Running = append(s.Running, worker.RunningKey[any]{Key: k.Key, Attempt: k.Attempt, Started: k.Started, Duration: max(0, now.Sub(k.Started))})
	}
	slices.SortFunc(s.Running, func(a, b worker.RunningKey[any]) int { return a.Started.Compare(b.Started) })
	s.Running = s.Running[:max(0, min(limit, len(s.Running)))]
	for e := r.mu.failures.Front(); e != nil && len(failing) < limit; e = e.Next() {
		failing = append(failing, e.Value.(worker.FailedKey[request]))
	}
	return s, failing, q
}

// forget forgets a failure, unless the request has failed again since.
func (r *Reconciler[request]) forget(f worker.FailedKey[request]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.mu.failing[f.Key]; e != nil && e.Value.(worker.FailedKey[request]) == f {
		r.forgetLocked(f.Key)
	}
}
