package compat

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	peer "k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/keyedqueue/workqueue"
)

// TestControllerRuntime runs a controller of controller-runtime on our queue, with two of its kinds of
// source, and every kind of result that a reconciler has.
func TestControllerRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		calls := map[string]int{}
		var queue workqueue.TypedRateLimitingInterface[string]
		c, err := controller.NewTypedUnmanaged("on our queue", controller.TypedOptions[string]{
			Reconciler: reconcile.TypedFunc[string](func(_ context.Context, key string) (reconcile.Result, error) {
				mu.Lock()
				calls[key]++
				n := calls[key]
				mu.Unlock()
				switch kind, _, _ := strings.Cut(key, ", "); {
				case kind == "requeues" && n == 1:
					return reconcile.Result{RequeueAfter: time.Minute}, nil
				case kind == "fails" && n <= 2:
					return reconcile.Result{}, errors.New("not this time")
				case kind == "panics" && n == 1:
					panic("not this time") // Controller-runtime makes it an error.
				case kind == "gives up":
					return reconcile.Result{}, reconcile.TerminalError(errors.New("never"))
				}
				return reconcile.Result{}, nil
			}),
			SkipNameValidation:      new(true), // Names are unique in a process, and -count runs the test again.
			MaxConcurrentReconciles: 3,
			// The limiter is theirs, the queue is ours, and the controller asks for neither's.
			RateLimiter: peer.NewTypedItemExponentialFailureRateLimiter[string](time.Millisecond, time.Second),
			NewQueue: func(name string, limiter peer.TypedRateLimiter[string]) peer.TypedRateLimitingInterface[string] {
				queue = workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
					workqueue.TypedRateLimitingQueueConfig[string]{Name: name})
				return queue
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		kinds := map[string]int{"succeeds": 1, "requeues": 2, "fails": 3, "panics": 2, "gives up": 1}
		events := make(chan event.TypedGenericEvent[string])
		if err := errors.Join(
			c.Watch(source.TypedFunc[string](func(_ context.Context, q peer.TypedRateLimitingInterface[string]) error {
				for kind := range kinds {
					q.Add(kind + ", from a function")
					q.Add(kind + ", from a function")
				}
				return nil
			})),
			c.Watch(source.TypedChannel(events, handler.TypedFuncs[string, string]{
				GenericFunc: func(_ context.Context, e event.TypedGenericEvent[string],
					q peer.TypedRateLimitingInterface[string]) {
					q.AddAfter(e.Object, time.Second)
				},
			}))); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Start(ctx) }()
		want := map[string]int{}
		for kind, n := range kinds {
			events <- event.TypedGenericEvent[string]{Object: kind + ", from a channel"}
			want[kind+", from a channel"], want[kind+", from a function"] = n, n
		}
		time.Sleep(time.Hour)
		cancel()
		if err := <-ended; err != nil || !maps.Equal(calls, want) {
			t.Errorf("Start returned %v, reconciled %v\nwant %v", err, calls, want)
		}
		// Each failure that was followed by a success is forgotten.
		for key := range want {
			if n := queue.NumRequeues(key); n != 0 {
				t.Errorf("%s has %d requeues", key, n)
			}
		}
		st := queue.(workqueue.Extended[string]).Stats()
		// Of each source one requeue, two failures and a panic, and the delayed adds of one.
		const retries = 2*(1+2+1) + 5
		if !st.ShuttingDown || st.Queued+st.Processing+st.Waiting != 0 || st.Retries != retries || st.Dropped != 0 ||
			st.UnmatchedDones != 0 {
			t.Errorf("at the end: %+v, want %d retries and nothing else", st, retries)
		}
	})
}
