package sharding_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/sharding"
	"github.com/keyedqueue/workqueue/worker"
)

// control is a replica of a controller until ctx ends. docs/sharding.md shows it. In a cluster store is
// sharding.Leases(client.CoordinationV1(), "my-system").
func control(ctx context.Context, store sharding.Store, reconcile worker.Handler[string]) error {
	member, err := sharding.Join(ctx, store, sharding.Config{Group: "website-controller"})
	if err != nil {
		return err
	}
	inner := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedControllerRateLimiter[string](nil))
	queue, err := sharding.NewQueue(inner, member, sharding.QueueConfig[string]{Name: "websites", Keys: allKeys})
	if err != nil {
		return err
	}
	// An informer's event handlers call queue.Add(key) for all objects. The queue drops the keys of others.
	err = worker.Run(ctx, queue, reconcile, worker.Options[string]{Workers: 8})
	leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
	defer cancel()
	return errors.Join(err, member.Leave(leave)) // hands over what it holds
}

// allKeys lists all keys of the source, also those of other replicas: those of an informer's cache.
func allKeys(context.Context) (iter.Seq[string], error) {
	return slices.Values([]string{"shop", "blog", "wiki"}), nil
}

// Each replica lists and watches all keys. Its queue hands out those whose slots its member holds.
func ExampleNewQueue() {
	ctx, stop := context.WithCancel(context.Background())
	handled := make(chan string, 3)
	err := control(ctx, sharding.Memory(), func(ctx context.Context, key string) error {
		// ctx ends before another replica may get the key.
		_, ok := sharding.Fence(ctx)
		fmt.Println(key, ok)
		if handled <- key; len(handled) == 3 {
			stop()
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Unordered output:
	// shop true
	// blog true
	// wiki true
}
