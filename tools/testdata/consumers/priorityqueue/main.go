package main

import (
	"fmt"

	"github.com/keyedqueue/workqueue/priorityqueue"
)

func main() {
	queue := priorityqueue.New(priorityqueue.Config[string]{})
	queue.Add("priorityqueue")
	key, _ := queue.Get()
	queue.Done(key)
	fmt.Println(key)
}
