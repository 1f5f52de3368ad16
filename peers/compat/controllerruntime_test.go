package compat

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	peer "k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/keyedqueue/workqueue"
)

// patience is how long a test waits for what happens on the real clock and in other goroutines.
const patience = 30 * time.Second

// eventually waits until settled returns no reason not to be.
func eventually(t *testing.T, settled func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := settled()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %v: %v", patience, err)
		}
		time.Sleep(time.Millisecond)
	}
}

// requeueAfter is what the reconciler below asks for. It is short, because it passes on the real clock.
const requeueAfter = 20 * time.Millisecond

// What the reconciler does with a request, by its namespace: something special once or twice, then nothing.
const (
	succeeds  = "succeeds"
	comesBack = "comes back" // asks to be called again later
	fails     = "fails"      // twice
	panics    = "panics"     // once, which controller-runtime makes an error
	gives     = "gives up"   // with an error that is not to be tried again
)

// calls is how often a request is reconciled.
var calls = map[string]int{succeeds: 1, comesBack: 2, fails: 3, panics: 2, gives: 1}

// reconciler counts by request.
type reconciler struct {
	t *testing.T

	mu    sync.Mutex
	calls map[reconcile.Request]int
	held  map[reconcile.Request]bool
}

func (r *reconciler) Reconcile(_ context.Context, request reconcile.Request) (reconcile.Result, error) {
	n := r.begin(request)
	defer r.end(request)
	switch what := request.Namespace; {
	case what == comesBack && n == 1:
		return reconcile.Result{RequeueAfter: requeueAfter}, nil
	case what == fails && n <= 2:
		return reconcile.Result{}, errors.New("not this time")
	case what == panics && n == 1:
		panic("not this time")
	case what == gives:
		return reconcile.Result{}, reconcile.TerminalError(errors.New("never"))
	}
	return reconcile.Result{}, nil
}

// begin returns how often the request has been reconciled, with this time.
func (r *reconciler) begin(request reconcile.Request) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held[request] {
		r.t.Errorf("%s is reconciled twice at once", request)
	}
	r.held[request] = true
	r.calls[request]++
	return r.calls[request]
}

func (r *reconciler) end(request reconcile.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held[request] = false
}

func (r *reconciler) wants(want map[reconcile.Request]int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !maps.Equal(r.calls, want) {
		return fmt.Errorf("reconciled %v\nwant %v", r.calls, want)
	}
	return nil
}

// TestControllerRuntime runs a controller of controller-runtime on our queue, with two of its kinds of
// source, and every kind of result that a reconciler has.
func TestControllerRuntime(t *testing.T) {
	r := &reconciler{t: t, calls: map[reconcile.Request]int{}, held: map[reconcile.Request]bool{}}
	var queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	c, err := controller.NewTypedUnmanaged("on our queue", controller.TypedOptions[reconcile.Request]{
		Reconciler: r,
		// Names are unique in a process, and -count runs the test again.
		SkipNameValidation:      new(true),
		MaxConcurrentReconciles: 3,
		// The limiter is theirs, the queue is ours, and the controller asks for neither's.
		RateLimiter: peer.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Millisecond,
			time.Second),
		NewQueue: func(name string,
			limiter peer.TypedRateLimiter[reconcile.Request]) peer.TypedRateLimitingInterface[reconcile.Request] {
			queue = workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
				workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Name: name})
			return queue
		},
	})
	if err != nil {
		t.Fatal(err)
	}

	want := map[reconcile.Request]int{}
	ask := func(name string) (requests []reconcile.Request) {
		for what, n := range calls {
			request := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: what, Name: name}}
			requests = append(requests, request)
			want[request] = n
		}
		return requests
	}
	before, between := ask("from a function"), ask("from a channel")
	if err := c.Watch(source.Func(func(_ context.Context,
		q peer.TypedRateLimitingInterface[reconcile.Request]) error {
		for _, request := range before {
			q.Add(request)
			q.Add(request)
		}
		return nil
	})); err != nil {
		t.Fatal(err)
	}
	events := make(chan event.TypedGenericEvent[reconcile.Request])
	if err := c.Watch(source.TypedChannel(events, handler.TypedFuncs[reconcile.Request, reconcile.Request]{
		GenericFunc: func(_ context.Context, e event.TypedGenericEvent[reconcile.Request],
			q peer.TypedRateLimitingInterface[reconcile.Request]) {
			q.AddAfter(e.Object, time.Millisecond)
		},
	})); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	for _, request := range between {
		events <- event.TypedGenericEvent[reconcile.Request]{Object: request}
	}
	eventually(t, func() error { return r.wants(want) })

	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error("Start: ", err)
		}
	case <-time.After(patience):
		t.Fatal("the controller did not end")
	}
	if err := r.wants(want); err != nil {
		t.Error("at the end: ", err)
	}
	checkEnd(t, queue, want)
}

// checkEnd finds the queue shut down, with nothing in it, and every failure forgotten that a controller
// forgets: those that were followed by a success.
func checkEnd(t *testing.T, queue workqueue.TypedRateLimitingInterface[reconcile.Request],
	want map[reconcile.Request]int) {
	t.Helper()
	for request := range want {
		if n := queue.NumRequeues(request); n != 0 {
			t.Errorf("%s has %d requeues", request, n)
		}
	}
	if !queue.ShuttingDown() {
		t.Error("the queue is not shutting down")
	}
	stats := queue.(workqueue.Extended[reconcile.Request]).Stats()
	// Each half of the requests: one came back, two failures, one panic. And half came after a while.
	const retries = 2*(1+2+1) + 5
	if stats.Queued != 0 || stats.Processing != 0 || stats.Waiting != 0 || stats.Retries != retries ||
		stats.Dropped != 0 || stats.UnmatchedDones != 0 {
		t.Errorf("at the end: %+v, want %d retries and nothing else", stats, retries)
	}
}
