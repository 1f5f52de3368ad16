package redisqueue_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/keyedqueue/workqueue/redisqueue"
	"github.com/keyedqueue/workqueue/worker"
	"github.com/redis/go-redis/v9"
)

// Two replicas of a program share a queue: one adds a key, the other handles it.
func Example() {
	addr, stop := redisqueue.StartServer() // starts Redis on a free port
	defer stop()
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	config := redisqueue.Config[string]{Name: "orders"}
	first, err1 := redisqueue.New(ctx, client, config)
	second, err2 := redisqueue.New(ctx, client, config) // In another process, as a rule.
	if err := errors.Join(err1, err2); err != nil {
		fmt.Println(err)
		return
	}
	defer first.ShutDown()

	// AddContext returns when Redis has the key; Add does not wait for that.
	if err := first.AddContext(ctx, "order/17"); err != nil {
		fmt.Println(err)
		return
	}
	err := worker.Run(ctx, second, func(_ context.Context, key string) error {
		fmt.Println("the second replica handles", key)
		cancel() // So that this ends.
		return nil
	}, worker.Options[string]{Workers: 4})
	fmt.Println("end:", err)
	// Output:
	// the second replica handles order/17
	// end: <nil>
}
