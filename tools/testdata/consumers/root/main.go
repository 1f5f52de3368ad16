package main

import (
	"fmt"

	"github.com/keyedqueue/workqueue"
)

func main() {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	queue.Add("root")
	key, _ := queue.Get()
	queue.Forget(key)
	queue.Done(key)
	queue.ShutDownWithDrain()
	fmt.Println(key)
}
