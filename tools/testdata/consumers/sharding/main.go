package main

import (
	"context"
	"fmt"
	"iter"
	"log"
	"slices"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/sharding"
)

// A group of one member, without an API server: it holds all slots.
func main() {
	ctx := context.Background()
	member, err := sharding.Join(ctx, sharding.Memory(), sharding.Config{Group: "consumer"})
	if err != nil {
		log.Fatal(err)
	}
	inner := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	queue, err := sharding.NewQueue(inner, member, sharding.QueueConfig[string]{
		Keys: func(context.Context) (iter.Seq[string], error) { return slices.Values([]string{"sharding"}), nil },
	})
	if err != nil {
		log.Fatal(err)
	}
	key, _ := queue.Get()
	fmt.Println(key)
	queue.Done(key)
	queue.ShutDown()
	if err := member.Leave(ctx); err != nil {
		log.Fatal(err)
	}
}
