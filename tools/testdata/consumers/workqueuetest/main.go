package main

import (
	"fmt"

	"github.com/keyedqueue/workqueue/workqueuetest"
)

func main() {
	var suite workqueuetest.Suite // queue_test.go runs one.
	if suite.New == nil {
		fmt.Println("workqueuetest")
	}
}
