package main

import (
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

func main() {
	queue := priorityqueue.New[string]("queue")
	queue.Add("priorityqueue")
	key, _ := queue.Get()
	queue.Done(key)
	fmt.Println(key)
}
