package shardingprom_test

import (
	"context"
	"fmt"
	"iter"
	"log"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/sharding"
	"github.com/keyedqueue/workqueue/sharding/shardingprom"
)

// The metrics of a member and its queue, as a scrape finds them.
func ExampleNewCollector() {
	ctx := context.Background()
	member, err := sharding.Join(ctx, sharding.Memory(), sharding.Config{Group: "website-controller"})
	if err != nil {
		log.Fatal(err)
	}
	limiter := workqueue.DefaultTypedControllerRateLimiter[string]()
	queue, err := sharding.NewQueue(workqueue.NewTypedRateLimitingQueue(limiter), member,
		sharding.QueueConfig[string]{
			Keys: func(context.Context) (iter.Seq[string], error) { return nil, nil },
		})
	if err != nil {
		log.Fatal(err)
	}
	registry := prometheus.NewRegistry() // On controller-runtime: metrics.Registry.
	registry.MustRegister(shardingprom.NewCollector(member, map[string]shardingprom.Queue{"websites": queue}))

	for member.Stats().Held == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	families, err := registry.Gather()
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range families {
		switch f.GetName() {
		case "workqueue_sharding_in_touch", "workqueue_sharding_queues", "workqueue_sharding_slots",
			"workqueue_sharding_slots_held":
			fmt.Println(f.GetName(), f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	queue.ShutDown()
	if err := member.Leave(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// workqueue_sharding_in_touch 1
	// workqueue_sharding_queues 1
	// workqueue_sharding_slots 256
	// workqueue_sharding_slots_held 256
}
