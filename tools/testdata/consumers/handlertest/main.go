package main

import (
	"fmt"

	"github.com/keyedqueue/workqueue/handlertest"
)

func main() {
	schedule := handlertest.Crash // converges_test.go tests a handler.
	if schedule != 0 {
		fmt.Println("handlertest")
	}
}
