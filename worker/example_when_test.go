package worker_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keyedqueue/workqueue/worker"
)

// A key that waits for something keeps no worker busy: the one worker handles another key meanwhile.
func ExampleCall_Hold() {
	queue := newExampleQueue()
	queue.Add("web")
	queue.Add("db")
	ctx, cancel := context.WithCancel(context.Background())

	attached := make(map[string]bool)
	var attach func() // says that web's volume is attached
	err := worker.Run(ctx, queue, func(ctx context.Context, key string) error {
		switch {
		case key == "db":
			fmt.Println("db is ready")
			attached["web"] = true
			attach()
		case !attached[key]:
			fmt.Println(key, "waits for its volume")
			attach = worker.CallOf(ctx).Hold("the volume is attached", 10*time.Minute)
			return worker.RequeueAfter(0) // It comes when the hold ends.
		default:
			fmt.Println(key, "is ready, attempt", worker.CallOf(ctx).Attempt())
			cancel()
		}
		return nil
	}, worker.Options[string]{})
	fmt.Println("end:", err)
	// Output:
	// web waits for its volume
	// db is ready
	// web is ready, attempt 1
	// end: <nil>
}

// A server that is asked too often says how long to stay away. The call counts as a failure.
func ExampleRetryAfter() {
	queue := newExampleQueue()
	queue.Add("bucket")
	ctx, cancel := context.WithCancel(context.Background())

	var asked time.Time
	err := worker.Run(ctx, queue, func(ctx context.Context, key string) error {
		attempt := worker.CallOf(ctx).Attempt()
		if attempt == 1 {
			asked = time.Now()
			return worker.RetryAfter(errors.New("429 Too Many Requests"), 20*time.Millisecond)
		}
		fmt.Println("attempt", attempt, "comes in time:", time.Since(asked) >= 20*time.Millisecond)
		cancel()
		return nil
	}, worker.Options[string]{})
	fmt.Println("end:", err)
	// Output:
	// attempt 2 comes in time: true
	// end: <nil>
}

// Ten thousand certificates are looked at once an hour, each at its own moment, and not all of them when the
// hour begins.
func ExampleEvery() {
	handler := func(ctx context.Context, certificate string) error {
		if err := renew(ctx, certificate); err != nil {
			return err
		}
		return worker.Every(time.Hour)
	}
	fmt.Println(handler(context.Background(), "example.com"))
	// Output:
	// again every 1h0m0s
}

func renew(context.Context, string) error { return nil }
