package main

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
)

func main() {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	queue.Add("worker")
	ctx, cancel := context.WithCancel(context.Background())
	failures := 0
	context.AfterFunc(ctx, queue.ShutDown)
	wait.UntilWithContext(ctx, func(context.Context) {
		for key, shutdown := queue.Get(); !shutdown; key, shutdown = queue.Get() {
			if failures++; failures < 3 {
				fmt.Println(errors.New("not yet"))
				queue.AddRateLimited(key)
			} else {
				fmt.Println(key)
				queue.Forget(key)
				cancel()
			}
			queue.Done(key)
		}
	}, 0)
}
