package worker_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

func newExampleQueue() workqueue.TypedRateLimitingInterface[string] {
	return workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Millisecond, time.Second))
}

func Example() {
	queue := newExampleQueue()
	queue.Add("default/web")
	ctx, cancel := context.WithCancel(context.Background())
	reconcile := func(context.Context, string) error {
		fmt.Println("web is looked at")
		cancel() // So that this ends.
		return nil
	}

	err := worker.Run(ctx, queue, func(ctx context.Context, key string) error {
		if key == "default/db" {
			return worker.RequeueAfter(time.Minute) // nothing failed, it is only too early
		}
		return reconcile(ctx, key) // an error: again, when the queue's limiter says
	}, worker.Options[string]{
		Workers: 4, MaxRetries: 5, HandlerTimeout: time.Minute, DrainTimeout: 10 * time.Second,
	})

	fmt.Println("end:", err)
	// Output:
	// web is looked at
	// end: <nil>
}

func ExampleRun() {
	queue := newExampleQueue()
	queue.Add("apples")
	queue.Add("pears")
	ctx, cancel := context.WithCancel(context.Background())

	err := worker.Run(ctx, queue, func(ctx context.Context, key string) error {
		if key == "pears" && worker.CallOf(ctx).Attempt() == 1 {
			return errors.New("not ripe") // Again, when the limiter says.
		}
		fmt.Println(key, "at attempt", worker.CallOf(ctx).Attempt())
		if key == "pears" {
			cancel()
		}
		return nil
	}, worker.Options[string]{MaxRetries: 5, DrainTimeout: 10 * time.Second})
	fmt.Println("end:", err)
	// Output:
	// apples at attempt 1
	// pears at attempt 2
	// end: <nil>
}

// What was left undone is not an error.
func ExamplePool_Left() {
	queue := newExampleQueue()
	for _, key := range []string{"first", "second", "third"} {
		queue.Add(key)
	}
	ctx, cancel := context.WithCancel(context.Background())

	pool := worker.New(queue, func(ctx context.Context, key string) error {
		cancel() // The handler that runs may finish. No other is started.
		return nil
	}, worker.Options[string]{})
	fmt.Println("end:", pool.Run(ctx))
	fmt.Println(pool.Left().NotStarted)
	fmt.Println(pool.Left())
	// Output:
	// end: <nil>
	// [second third]
	// 2 queued and not started: second, third
}

// With Drain: All, what is queued when the context ends is handled first.
func ExampleOptions_drain() {
	queue := newExampleQueue()
	for _, key := range []string{"first", "second", "third"} {
		queue.Add(key)
	}
	ctx, cancel := context.WithCancel(context.Background())

	err := worker.Run(ctx, queue, func(ctx context.Context, key string) error {
		cancel()
		fmt.Println(key)
		return nil
	}, worker.Options[string]{Drain: worker.All, DrainTimeout: time.Minute})
	fmt.Println("end:", err)
	// Output:
	// first
	// second
	// third
	// end: <nil>
}

func ExampleRequeueAfter() {
	queue := newExampleQueue()
	queue.Add("oven")
	ctx, cancel := context.WithCancel(context.Background())

	looks := 0
	err := worker.Run(ctx, queue, func(ctx context.Context, key string) error {
		if looks++; looks < 3 {
			fmt.Println("not hot, attempt", worker.CallOf(ctx).Attempt())
			return worker.RequeueAfter(time.Millisecond) // No failure.
		}
		cancel()
		return nil
	}, worker.Options[string]{})
	fmt.Println("end:", err)
	// Output:
	// not hot, attempt 1
	// not hot, attempt 1
	// end: <nil>
}

func ExampleTerminal() {
	queue := newExampleQueue()
	queue.Add("lead")
	ctx, cancel := context.WithCancel(context.Background())

	err := worker.Run(ctx, queue, func(ctx context.Context, key string) error {
		return worker.Terminal(errors.New("will never be gold"))
	}, worker.Options[string]{OnFinish: func(_ context.Context, r worker.Result[string]) {
		fmt.Println(r.Key, r.Err, r.Next)
		cancel()
	}})
	fmt.Println("end:", err)
	// Output:
	// lead will never be gold give_up
	// end: <nil>
}

// The pool remembers why keys were given up.
func ExamplePool_Snapshot() {
	queue := newExampleQueue()
	queue.Add("disk")
	ctx, cancel := context.WithCancel(context.Background())

	pool := worker.New(queue, func(ctx context.Context, key string) error {
		return errors.New("no space left on device")
	}, worker.Options[string]{MaxRetries: 2, OnFinish: func(_ context.Context, r worker.Result[string]) {
		if r.Next == worker.NextGiveUp {
			cancel()
		}
	}})
	fmt.Println("end:", pool.Run(ctx))

	s := pool.Snapshot(10)
	fmt.Println(s.Stats.Handled, "calls,", s.Stats.Failed, "failed,", s.Stats.GivenUp, "given up")
	for _, f := range s.GivenUp {
		fmt.Printf("%s, attempt %d: %s\n", f.Key, f.Attempt, f.Err)
	}
	// Output:
	// end: <nil>
	// 3 calls, 3 failed, 1 given up
	// disk, attempt 3: no space left on device
}

func ExamplePool_SetWorkers() {
	queue := newExampleQueue()
	handled := make(chan string)
	pool := worker.New(queue, func(ctx context.Context, key string) error {
		handled <- key
		return nil
	}, worker.Options[string]{})
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error)
	go func() { result <- pool.Run(ctx) }()

	_ = pool.SetWorkers(0) // A pause.
	queue.Add("a")
	_ = pool.SetWorkers(8)
	fmt.Println(<-handled)
	cancel()
	fmt.Println("end:", <-result)
	// Output:
	// a
	// end: <nil>
}

// Handlers start when the caches are filled.
func ExampleOptions_ready() {
	queue := newExampleQueue()
	queue.Add("default/web")
	ctx, cancel := context.WithCancel(context.Background())
	cache := make(map[string]string)
	filled := make(chan struct{})
	go func() {
		cache["default/web"] = "3 replicas"
		close(filled)
	}()

	err := worker.Run(ctx, queue, func(ctx context.Context, key string) error {
		fmt.Println(key, "has", cache[key])
		cancel()
		return nil
	}, worker.Options[string]{Ready: func(ctx context.Context) error {
		select {
		case <-filled:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}})
	fmt.Println("end:", err)
	// Output:
	// default/web has 3 replicas
	// end: <nil>
}

// A test adds keys, and waits until everything is done that follows from them.
func ExamplePool_WaitIdle() {
	queue := newExampleQueue()
	var handled []string
	pool := worker.New(queue, func(ctx context.Context, key string) error {
		if handled = append(handled, key); key == "parent" {
			queue.AddAfter("child", 10*time.Millisecond)
		}
		return nil
	}, worker.Options[string]{})
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error)
	go func() { result <- pool.Run(ctx) }()

	queue.Add("parent")
	if err := pool.WaitIdle(ctx); err != nil {
		fmt.Println(err)
	}
	cancel()
	fmt.Println("end:", <-result)
	fmt.Println(handled)
	// Output:
	// end: <nil>
	// [parent child]
}
