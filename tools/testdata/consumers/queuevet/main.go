package main

import (
	"fmt"

	"github.com/keyedqueue/workqueue"
	clientgo "k8s.io/client-go/util/workqueue"
)

func main() {
	clientgo.SetProvider(nil)
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: "queuevet"})
	fmt.Println(queue.Len())
}
