package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

func main() {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	queue.Add("worker")
	ctx, cancel := context.WithCancel(context.Background())
	failures := 0
	err := worker.Run(ctx, queue, func(_ context.Context, key string) error {
		if failures++; failures < 3 {
			return errors.New("not yet")
		}
		fmt.Println(key)
		cancel()
		return nil
	}, worker.Options[string]{Workers: 2, DrainTimeout: time.Second})
	if err != nil {
		panic(err)
	}
}
