package sharding_test

import (
	"context"
	"fmt"
	"iter"
	"log"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
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
	queue, err := sharding.NewQueue(workqueue.NewTypedRateLimitingQueue[string](nil), member,
		sharding.QueueConfig[string]{
			Keys: func(context.Context) (iter.Seq[string], error) { return nil, nil },
		})
	if err != nil {
		log.Fatal(err)
	}
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
	queue, err := sharding.NewQueue(workqueue.NewTypedRateLimitingQueue(limiter), member,
		sharding.QueueConfig[string]{
			// In a controller: the keys of the informer's store, as they are now.
			Keys: func(context.Context) (iter.Seq[string], error) {
				return slices.Values([]string{"shop", "blog", "wiki"}), nil
			},
		})
	if err != nil {
		log.Fatal(err)
	}
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
