// Command first is the program of the repository's README.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	queue := workqueue.NewQueue(nil, workqueue.TypedRateLimitingQueueConfig[string]{Name: "orders"})
	queue.Add("default/web") // any number of times, from anywhere: it is one key
	queue.Add("default/web")
	queue.Add("default/db")
	handler := func(ctx context.Context, key string) error {
		if key == "default/db" && worker.CallOf(ctx).Attempt() < 3 {
			return errors.New("no connection") // again, when the queue's limiter says
		}
		fmt.Println("reconciled", key)
		return worker.RequeueAfter(time.Minute) // nothing failed: look again in a minute
	}
	if err := worker.Run(ctx, queue, handler, worker.Options[string]{Workers: 4}); err != nil { // until Ctrl-C
		log.Fatal(err)
	}
}
