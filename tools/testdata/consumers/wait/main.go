package main

import (
	"context"
	"fmt"
	"time"

	"github.com/keyedqueue/workqueue/wait"
)

func main() {
	tries := 0
	err := wait.PollUntilContextTimeout(context.Background(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		tries++
		return tries == 3, nil
	})
	if err == nil {
		fmt.Println("wait")
	}
}
