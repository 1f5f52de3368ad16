package compat

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	peer "k8s.io/client-go/util/workqueue"
	crpriority "sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"

	"github.com/keyedqueue/workqueue"
)

// TestOneLineMends: a key is broken for ten seconds, during which an event every 50 ms adds it. With the
// peers' default limiters it succeeds a quarter of an hour after its repair, because each event doubles its
// delay (kubernetes/kubernetes#132805). With ours in their queues it succeeds as if there were no events.
func TestOneLineMends(t *testing.T) {
	for name, tt := range map[string]struct {
		queue    func() peer.TypedRateLimitingInterface[string]
		min, max time.Duration
	}{
		"client-go": {func() peer.TypedRateLimitingInterface[string] {
			return peer.NewTypedRateLimitingQueue(peer.DefaultTypedControllerRateLimiter[string]())
		}, 15 * time.Minute, 17 * time.Minute},
		"client-go, our limiter": {func() peer.TypedRateLimitingInterface[string] {
			return peer.NewTypedRateLimitingQueue[string](workqueue.NewTypedControllerRateLimiter[string](nil))
		}, 0, 10 * time.Second},
		"client-go, our item limiter": {func() peer.TypedRateLimitingInterface[string] {
			return peer.NewTypedRateLimitingQueue[string](
				workqueue.NewTypedItemBackoffRateLimiter(workqueue.BackoffConfig[string]{}))
		}, 0, 10 * time.Second},
		"controller-runtime": {func() peer.TypedRateLimitingInterface[string] {
			return crpriority.New[string]("")
		}, 15 * time.Minute, 17 * time.Minute},
		"controller-runtime, our limiter": {func() peer.TypedRateLimitingInterface[string] {
			return crpriority.New("", func(o *crpriority.Opts[string]) {
				o.RateLimiter = workqueue.NewTypedControllerRateLimiter[string](nil)
			})
		}, 0, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := tt.queue()
				repair := time.Now().Add(10 * time.Second)
				ctx, succeeded := context.WithCancel(t.Context())
				go func() {
					for {
						key, shutdown := q.Get()
						if shutdown {
							return
						}
						if time.Now().Before(repair) {
							q.AddRateLimited(key)
						} else {
							q.Forget(key)
							succeeded()
						}
						q.Done(key)
					}
				}()
				for time.Now().Before(repair) {
					q.Add("key")
					time.Sleep(50 * time.Millisecond)
				}
				<-ctx.Done()
				if late := time.Since(repair); late < tt.min || late > tt.max {
					t.Errorf("succeeded %v after the repair, want %v to %v", late, tt.min, tt.max)
				}
				q.ShutDown()
			})
		})
	}
}
