package workqueue_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/keyedqueue/workqueue"
)

// A worker that retries. Package worker provides this loop, with retry limits, panic recovery and an orderly
// end.
func Example() {
	queue := workqueue.NewQueue(nil, workqueue.TypedRateLimitingQueueConfig[string]{Name: "orders"})
	ctx, failed := context.Background(), false
	reconcile := func(key string) error {
		if key == "default/db" && !failed {
			failed = true
			return errors.New("not ready")
		}
		return nil
	}
	queue.Add("default/db")
	queue.Add("default/web")
	queue.Add("default/web") // Is queued: nothing changes.

	for {
		h, err := queue.Next(ctx)
		if err != nil {
			break // ctx is done, or the queue is shut down and empty.
		}
		if err := reconcile(h.Key); err != nil {
			fmt.Println(h.Key, "failed:", err)
			queue.Fail(ctx, h.Key, workqueue.Failure{Err: err}) // Again, later.
		} else {
			fmt.Println(h.Key, "is in line")
			queue.Forget(h.Key) // The next failure is a first one.
		}
		queue.Done(h.Key)
		if h.Failures.Count > 0 {
			queue.ShutDown() // So that this ends.
		}
	}
	// Output:
	// default/db failed: not ready
	// default/web is in line
	// default/db is in line
}

// Three changes of two things are two keys.
func ExampleNewTyped() {
	queue := workqueue.NewTyped[string]()
	queue.Add("default/web")
	queue.Add("default/db")
	queue.Add("default/web")
	queue.ShutDown()

	for {
		key, shutdown := queue.Get()
		if shutdown {
			break
		}
		fmt.Println(key)
		queue.Done(key)
	}
	// Output:
	// default/web
	// default/db
}

// A key that is added while a worker holds it is not handed to a second worker. It is queued again when
// the first one is done.
func ExampleTyped_Done() {
	queue := workqueue.NewTyped[string]()
	queue.Add("default/web")
	key, _ := queue.Get()

	queue.Add("default/web")
	fmt.Println("queued while held:", queue.Len())
	queue.Done(key)
	fmt.Println("queued after Done:", queue.Len())
	// Output:
	// queued while held: 0
	// queued after Done: 1
}

func ExampleTyped_GetContext() {
	queue := workqueue.NewTyped[string]()
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()

	_, err := queue.GetContext(ctx)
	fmt.Println(err)

	queue.ShutDown()
	_, err = queue.GetContext(context.Background())
	fmt.Println(errors.Is(err, workqueue.ErrShutDown))
	// Output:
	// context deadline exceeded
	// true
}

// ShutDownContext waits for the workers, but not forever.
func ExampleTyped_ShutDownContext() {
	queue := workqueue.NewTyped[string]()
	queue.Add("default/web")
	key, _ := queue.Get()

	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	fmt.Println(queue.ShutDownContext(ctx))

	queue.Done(key)
	fmt.Println(queue.ShutDownContext(context.Background()))
	// Output:
	// context deadline exceeded
	// <nil>
}

// A fake clock makes tests of delays quick and exact.
func ExampleNewTypedDelayingQueueWithConfig() {
	clock := testingclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	queue := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{Clock: clock})
	defer queue.ShutDown()

	queue.AddAfter("in an hour", time.Hour)
	queue.AddAfter("in a minute", time.Minute)
	queue.AddAfter("in an hour", 2*time.Hour) // Keeps the earlier time.

	for range 2 {
		clock.Step(30 * time.Minute)
		key, _ := queue.Get()
		fmt.Println(clock.Now().Format(time.TimeOnly), key)
		queue.Done(key)
	}
	// Output:
	// 00:30:00 in a minute
	// 01:00:00 in an hour
}

func ExampleNewTypedItemExponentialFailureRateLimiter() {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, 5*time.Second)
	for range 4 {
		fmt.Print(limiter.When("default/web"), " ")
	}
	fmt.Println(limiter.When("default/db"))
	limiter.Forget("default/web")
	fmt.Println(limiter.When("default/web"))
	// Output:
	// 1s 2s 4s 5s 1s
	// 1s
}

func ExampleNewTypedItemFastSlowRateLimiter() {
	limiter := workqueue.NewTypedItemFastSlowRateLimiter[string](time.Millisecond, time.Minute, 2)
	fmt.Println(limiter.When("key"), limiter.When("key"), limiter.When("key"))
	// Output:
	// 1ms 1ms 1m0s
}

// Two keys may come at once, and after that one a second.
func ExampleTypedBucketRateLimiter() {
	limiter := &workqueue.TypedBucketRateLimiter[string]{Limiter: rate.NewLimiter(1, 2)}
	fmt.Println(limiter.When("a"), limiter.When("b"), limiter.When("c") > 900*time.Millisecond)
	// Output:
	// 0s 0s true
}

// The longer of two delays counts: the first grows with the failures of a key, the second keeps all
// keys together from coming too often.
func ExampleNewTypedMaxOfRateLimiter() {
	limiter := workqueue.NewTypedMaxOfRateLimiter(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Millisecond, time.Minute),
		workqueue.NewTypedItemFastSlowRateLimiter[string](3*time.Millisecond, time.Second, 4),
	)
	for range 5 {
		fmt.Print(limiter.When("key"), " ")
	}
	fmt.Println(limiter.NumRequeues("key"))
	// Output:
	// 3ms 3ms 4ms 8ms 1s 5
}

func ExampleNewTypedWithMaxWaitRateLimiter() {
	limiter := workqueue.NewTypedWithMaxWaitRateLimiter(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Minute, time.Hour),
		2*time.Minute)
	fmt.Println(limiter.When("key"), limiter.When("key"), limiter.When("key"))
	// Output:
	// 1m0s 2m0s 2m0s
}

func ExampleParallelizeUntil() {
	squares := make([]int, 5)
	workqueue.ParallelizeUntil(context.Background(), 2, len(squares), func(i int) {
		squares[i] = i * i
	})
	fmt.Println(squares)
	// Output:
	// [0 1 4 9 16]
}

// Every queue of this package has calls that client-go's lacks. Package foreign gives them to any other queue.
func ExampleExtended() {
	queue := workqueue.NewTypedRateLimitingQueue[string](nil)
	queue.Add("a")
	queue.Add("b")
	queue.AddAfter("c", time.Hour)

	extended := queue.(workqueue.Extended[string])
	key, err := extended.GetContext(context.Background()) // ends with its context
	fmt.Println(key, err)
	stats := extended.Stats()
	fmt.Println("queued:", stats.Queued, "processing:", stats.Processing)
	fmt.Println("waiting:", extended.Snapshot(10).Waiting[0].Key)
	queue.Done(key)
	queue.Get()
	queue.Done("b")
	err = extended.ShutDownContext(context.Background()) // drains, no longer than its context
	fmt.Println("drained:", err)
	// Output:
	// a <nil>
	// queued: 1 processing: 1
	// waiting: c
	// drained: <nil>
}

// A key waits longer after each failure. If an event brings it before its delay has passed, and it fails,
// that is the same failure. Once it has not failed for a while, it starts afresh, even if Forget was not
// called.
func ExampleNewTypedItemBackoffRateLimiter() {
	clock := testingclock.NewFakeClock(time.Date(2026, time.March, 1, 0, 0, 0, 0, time.UTC))
	limiter := workqueue.NewTypedItemBackoffRateLimiter(workqueue.BackoffConfig[string]{
		Base:        100 * time.Millisecond,
		Max:         time.Second,
		Factor:      3,
		Jitter:      workqueue.NoJitter, // a fleet takes FullJitter
		ForgetAfter: time.Minute,
		Clock:       clock, // real programs leave it out
	})
	for range 3 {
		delay := limiter.When("orders/42")
		fmt.Println(delay)
		clock.Step(delay)
	}
	fmt.Println(limiter.When("orders/42"), limiter.NumRequeues("orders/42"), "failures")
	clock.Step(300 * time.Millisecond) // an event
	fmt.Println(limiter.When("orders/42"), limiter.NumRequeues("orders/42"), "failures")

	clock.Step(700*time.Millisecond + time.Minute) // what is left of its delay, and ForgetAfter
	fmt.Println(limiter.NumRequeues("orders/42"), "failures")
	fmt.Println(limiter.When("orders/42"))
	// Output:
	// 100ms
	// 300ms
	// 900ms
	// 1s 4 failures
	// 700ms 4 failures
	// 0 failures
	// 100ms
}

// Adds of a key that are merged keep their reasons. A queue that cannot keep them, such as client-go's, gets
// the key alone.
func ExampleAddCause() {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	defer queue.ShutDown()
	workqueue.AddCause(queue, "default/web", workqueue.Cause{Reason: "Deployment default/web has generation 2"})
	workqueue.AddCause(queue, "default/web", workqueue.Cause{Reason: "Secret default/db changed"})

	key, _ := queue.Get()
	defer queue.Done(key)
	// A handler of package worker has them from CallOf(ctx).Causes().
	if q, ok := queue.(workqueue.Extended[string]); ok {
		fmt.Println(key, "because of:", q.Causes(key))
	}
	// Output:
	// default/web because of: Deployment default/web has generation 2; Secret default/db changed
}

// In main, before the first queue is made: each queue with a name then has metrics.
func ExampleSetProvider() {
	var provider workqueue.MetricsProvider // prom.NewProvider(prometheus.DefaultRegisterer, prom.Options{})
	workqueue.SetProvider(provider)
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.DefaultTypedControllerRateLimiter[string](),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "deployments"})
	queue.Add("default/web") // workqueue_adds_total{name="deployments"} is 1
}
