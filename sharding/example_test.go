package sharding_test

import (
	"context"
	"fmt"
	"iter"
	"log"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/sharding"
	"github.com/keyedqueue/workqueue/worker"
)

// A replica joins when its cache is filled, makes its queues at once, and leaves when its workers have ended.
func ExampleJoin() {
	ctx := context.Background()
	// In a cluster: sharding.Leases(client.CoordinationV1(), "my-system")
	store := sharding.Memory()
	member, err := sharding.Join(ctx, store, sharding.Config{Group: "website-controller", Name: "pod-1"})
	if err != nil {
		log.Fatal(err)
	}
	// A member takes slots once it has a queue.
	queue := sharding.NewQueue(workqueue.NewTypedRateLimitingQueue[string](nil), member,
		sharding.QueueConfig[string]{
			Keys: func(context.Context) (iter.Seq[string], error) { return nil, nil },
		})
	defer queue.ShutDown()
	// Programs need not wait: their queues hand out keys as soon as there are some.
	for member.Stats().Held == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	st := member.Stats()
	fmt.Printf("%d of %d slots, %d member\n", st.Held, st.Slots, st.Members)

	// Both this and the drain of the workers must end within the pod's grace period.
	leaving, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := member.Leave(leaving); err != nil {
		log.Fatal(err)
	}
	fmt.Println(member.Err())
	// Output:
	// 256 of 256 slots, 1 member
	// sharding: the member has left its group
}

// Each replica lists and watches all keys. Its queue hands out those whose slots its member holds.
func ExampleNewQueue() {
	ctx, stop := context.WithCancel(context.Background())
	member, err := sharding.Join(ctx, sharding.Memory(), sharding.Config{Group: "website-controller"})
	if err != nil {
		log.Fatal(err)
	}
	limiter := workqueue.DefaultTypedControllerRateLimiter[string]()
	queue := sharding.NewQueue(workqueue.NewTypedRateLimitingQueue(limiter), member,
		sharding.QueueConfig[string]{
			// In a controller: the keys of the informer's store, as they are now.
			Keys: func(context.Context) (iter.Seq[string], error) {
				return slices.Values([]string{"shop", "blog", "wiki"}), nil
			},
		})
	// An informer's event handlers call queue.Add with every key. The queue drops those of other replicas.
	handled := 0
	err = worker.Run(ctx, queue, func(ctx context.Context, key string) error {
		// ctx ends before another replica may get the key.
		_, ok := sharding.Fence(ctx)
		fmt.Println(key, ok)
		if handled++; handled == 3 {
			stop()
		}
		return nil
	}, worker.Options[string]{Workers: 1})
	if err != nil {
		log.Fatal(err)
	}
	if err := member.Leave(context.WithoutCancel(ctx)); err != nil {
		log.Fatal(err)
	}
	// Unordered output:
	// shop true
	// blog true
	// wiki true
}

// Over a queue with the interface of controller-runtime's PriorityQueue, priorities get through. In a manager
// this is what controller.Options.NewQueue returns; its NeedLeaderElection must be false.
func ExampleNewOptsQueue() {
	ctx := context.Background()
	member, err := sharding.Join(ctx, sharding.Memory(), sharding.Config{Group: "website-controller"})
	if err != nil {
		log.Fatal(err)
	}
	queue := sharding.NewOptsQueue(priorityqueue.New(priorityqueue.Config[string]{}), member,
		sharding.QueueConfig[string]{
			Keys: func(context.Context) (iter.Seq[string], error) {
				return slices.Values([]string{"shop"}),
					nil
			},
			ListPriority: -100, // Changes come before what a new slot brings.
		}, func(priority int) priorityqueue.AddOpts { return priorityqueue.AddOpts{Priority: priority} })
	for range 2 {
		key, priority, _ := queue.GetWithPriority()
		// controller-runtime does not know that the context of a handler must end when the key moves.
		leased, release := queue.Lease(ctx, key)
		fmt.Println(key, priority, leased.Err())
		release()
		queue.Done(key)
		queue.AddWithOpts(priorityqueue.AddOpts{Priority: 5}, "blog")
	}
	queue.ShutDown()
	if err := member.Leave(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// shop -100 <nil>
	// blog 5 <nil>
}
