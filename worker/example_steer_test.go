package worker_test

import (
	"context"
	"fmt"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// app is what the controller of the example watches. Its generation grows when somebody changes what is
// wanted. What the controller itself writes into the status leaves it as it is.
type app struct {
	name       string
	generation int
	status     string
}

// onUpdate is the event handler: a new generation interrupts the handler that has the key, a new status does
// not.
func onUpdate(queue workqueue.Extended[string], before, after app) {
	cause := workqueue.Cause{Reason: fmt.Sprint("generation ", after.generation)}
	if after.generation == before.generation {
		cause = workqueue.Cause{Reason: "status " + after.status, Quiet: true}
	}
	queue.AddCause(after.name, cause)
}

// A handler rolls out an app and waits until it is healthy. If the app is changed meanwhile, it does not wait
// for what is not wanted any more. Its own update of the status does not interrupt it.
func ExampleCall_UntilAdded() {
	queue := newExampleQueue()
	adder := queue.(workqueue.Extended[string])
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	healthy := make(chan struct{}) // never closed: the first rollout is broken

	rollouts := 0
	pool := worker.New(queue, func(ctx context.Context, key string) error {
		rollouts++
		fmt.Println(key, "because of:", worker.CallOf(ctx).Causes())
		if rollouts > 1 {
			cancel()
			return nil
		}
		// as the API server's answer to a status update
		onUpdate(adder, app{key, 1, ""}, app{key, 1, "rolling out"})
		until := worker.CallOf(ctx).UntilAdded()
		fmt.Println("interrupted by the status:", until.Err() != nil)
		go onUpdate(adder, app{key, 1, "rolling out"}, app{key, 2, "rolling out"}) // as somebody's kubectl apply
		select {
		case <-healthy:
			return nil
		case <-until.Done():
			return fmt.Errorf("waiting for %s: %w", key, context.Cause(until))
		}
	}, worker.Options[string]{OnFinish: func(_ context.Context, r worker.Result[string]) {
		fmt.Println(r.Next, "attempt", r.Attempt, "-", r.Err)
	}})
	onUpdate(adder, app{}, app{"shop", 1, ""})
	fmt.Println("end:", pool.Run(ctx))
	// Output:
	// shop because of: generation 1
	// interrupted by the status: false
	// interrupted attempt 1 - waiting for shop: worker: the key was added again
	// shop because of: status rolling out; generation 2
	// forget attempt 1 - <nil>
	// end: <nil>
}

// Adds that are merged keep all their causes.
func ExampleCall_Causes() {
	queue := newExampleQueue()
	adder := queue.(workqueue.Extended[string])
	adder.AddCause("default/web", workqueue.Cause{Reason: "Secret default/db changed"})
	adder.AddCause("default/web", workqueue.Cause{Reason: "Deployment default/web changed"})
	ctx, cancel := context.WithCancel(context.Background())

	err := worker.Run(ctx, queue, func(ctx context.Context, key string) error {
		for _, cause := range worker.CallOf(ctx).Causes().Last {
			fmt.Println(key, "-", cause.Reason)
		}
		cancel()
		return nil
	}, worker.Options[string]{})
	fmt.Println("end:", err)
	// Output:
	// default/web - Secret default/db changed
	// default/web - Deployment default/web changed
	// end: <nil>
}

// A handler that waits for something that will never come is canceled.
func ExamplePool_Cancel() {
	queue := newExampleQueue()
	queue.Add("default/web")
	ctx, cancel := context.WithCancel(context.Background())
	waits := make(chan string)

	pool := worker.New(queue, func(ctx context.Context, key string) error {
		waits <- key
		<-ctx.Done()
		return worker.Terminal(context.Cause(ctx))
	}, worker.Options[string]{OnFinish: func(_ context.Context, r worker.Result[string]) {
		fmt.Println(r.Key, r.Next, "-", r.Err)
		cancel()
	}})
	result := make(chan error)
	go func() { result <- pool.Run(ctx) }()

	known, unknown := pool.Cancel(<-waits), pool.Cancel("default/other")
	fmt.Println("end:", <-result)
	fmt.Println(known, unknown)
	// Output:
	// default/web give_up - worker: Cancel was called for the key
	// end: <nil>
	// true false
}

// A program that has a loop of its own keeps the same account as a pool.
func ExampleTracker() {
	queue := newExampleQueue()
	queue.Add("disk")
	tracker := worker.NewTracker(queue, worker.Options[string]{MaxRetries: 2})

	for tracker.Stats().GivenUp == 0 {
		key, _ := queue.Get()
		call := tracker.Begin(context.Background(), key)
		err := fmt.Errorf("attempt %d: no space left on device", worker.CallOf(call.Context()).Attempt())
		if call.End(err).Next == worker.NextForget { // After a failure End has told the queue.
			queue.Forget(key)
		}
		call.Done(func() { queue.Done(key) })
	}
	for _, k := range tracker.Snapshot(10).GivenUp {
		fmt.Println(k.Key, "-", k.Err)
	}
	queue.ShutDown()
	// Output:
	// disk - attempt 3: no space left on device
}
