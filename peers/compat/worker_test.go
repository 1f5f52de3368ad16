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

// Package worker over client-go's queue, whose Get cannot be given up. What becomes of a key does not depend
// on the queue, and is tested in package worker.

type workerRun struct {
	cancel context.CancelFunc
	result chan error
}

func runWorker(t *testing.T, p *worker.Pool[string]) workerRun {
	ctx, cancel := context.WithCancel(t.Context())
	r := workerRun{cancel, make(chan error, 1)}
	go func() { r.result <- p.Run(ctx) }()
	synctest.Wait()
	return r
}

func clientgoQueue() workqueue.ExtendedRateLimiting[string] {
	return foreign.RateLimiting(clientgo.NewTypedRateLimitingQueue(
		clientgo.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Hour)))
}

// endOfBubble lets the goroutine of client-go's delaying queue notice the shutdown.
func endOfBubble() { time.Sleep(time.Minute) }

// A worker that is blocked in Get when it should stop leaves that Get behind. The key that it returns
// later is not lost.
func TestWorkerShrinksAndPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer endOfBubble()
		q := clientgoQueue()
		var mu sync.Mutex
		running, most, handled := 0, 0, 0
		p := worker.New(q, func(context.Context, string) error {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			running--
			handled++
			mu.Unlock()
			return nil
		}, worker.Options[string]{Workers: 4})
		check := func(wantMost, wantHandled int) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if most != wantMost || handled != wantHandled {
				t.Errorf("%d at once, %d handled, want %d and %d", most, handled, wantMost, wantHandled)
			}
			most = running
		}
		set := func(n int) {
			if err := p.SetWorkers(n); err != nil {
				t.Error(err)
			}
		}
		r := runWorker(t, p)
		set(1) // Four Gets are blocked, three of them for workers that have ended.
		for i := range 8 {
			q.Add(fmt.Sprint(i))
		}
		time.Sleep(2500 * time.Millisecond)
		check(1, 2)
		set(0)
		time.Sleep(time.Hour)
		check(1, 3)
		set(3)
		time.Sleep(10 * time.Second)
		check(3, 8)
		set(0)
		for i := range 8 {
			q.Add(fmt.Sprint(i))
		}
		time.Sleep(time.Hour)
		check(0, 8)
		r.cancel()
		if err := <-r.result; err != nil || len(p.Left().NotStarted) != 8 {
			t.Errorf("Run returned %v, left: %v", err, p.Left())
		}
	})
}

// After the end of the context nothing that is added is started, though a Get is still blocked. A handler
// that runs keeps the queue open meanwhile.
func TestWorkerStartsNothingAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer endOfBubble()
		q := clientgoQueue()
		q.Add("running")
		p := worker.New(q, func(_ context.Context, key string) error {
			if key != "running" {
				t.Error("started", key)
			}
			time.Sleep(time.Second)
			return nil
		}, worker.Options[string]{Workers: 2, Drain: worker.Running, DrainTimeout: time.Minute})
		r := runWorker(t, p)
		synctest.Wait()
		r.cancel()
		synctest.Wait()
		q.Add("late")
		if err := <-r.result; err != nil || !slices.Equal(p.Left().NotStarted, []string{"late"}) {
			t.Errorf("Run returned %v, left: %v", err, p.Left())
		}
	})
}
