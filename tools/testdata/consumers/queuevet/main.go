package main

import (
	"fmt"

	"github.com/keyedqueue/workqueue"
)

func main() {
	queue := workqueue.NewTyped[string]()
	queue.Add("queuevet")
	key, shutdown := queue.Get()
	if shutdown {
		return
	}
	fmt.Println(key)
}
