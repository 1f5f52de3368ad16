package compat_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/foreign"
	"github.com/keyedqueue/workqueue/worker"
	clientgo "k8s.io/client-go/util/workqueue"
)

// Package worker over client-go's queue, whose Get cannot be given up: the key that it returns after its
// worker has ended is not lost. After the end of the context nothing that is added is started. What else
// becomes of a key does not depend on the queue, and is tested in package worker.
func TestWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // The goroutine of client-go's delaying queue notices the shutdown.
		var q workqueue.ExtendedRateLimiting[string] = foreign.RateLimiting(clientgo.NewTypedRateLimitingQueue(
			clientgo.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Hour)))
		var mu sync.Mutex
		var handled []string
		p := worker.New(q, func(_ context.Context, key string) error {
			mu.Lock()
			handled = append(handled, key)
			mu.Unlock()
			time.Sleep(time.Second)
			return nil
		}, worker.Options[string]{Workers: 4, Drain: worker.Running, DrainTimeout: time.Minute})
		wantHandled := func(after time.Duration, n int) {
			t.Helper()
			time.Sleep(after)
			mu.Lock()
			defer mu.Unlock()
			if len(handled) != n {
				t.Errorf("handled %q, want %d", handled, n)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.Run(ctx) }()
		synctest.Wait()
		// Four Gets are blocked, three of them for workers that end.
		if err := p.SetWorkers(1); err != nil {
			t.Error(err)
		}
		for i := range 8 {
			q.Add(fmt.Sprint(i))
		}
		wantHandled(2500*time.Millisecond, 3) // One at a time.
		wantHandled(time.Hour, 8)
		q.Add("running")
		wantHandled(time.Second/2, 9)
		cancel()
		synctest.Wait()
		q.Add("late")
		if err := <-ended; err != nil || !slices.Equal(p.Left().NotStarted, []string{"late"}) {
			t.Errorf("Run returned %v, left: %v", err, p.Left())
		}
		wantHandled(0, 9)
	})
}
