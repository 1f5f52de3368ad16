package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/keyedqueue/workqueue/redisqueue"
	"github.com/keyedqueue/workqueue/worker"
	"github.com/redis/go-redis/v9"
)

// replica handles orders until ctx ends.
func replica(ctx context.Context, number int, addr string, out io.Writer) error {
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	queue, err := openQueue(ctx, client)
	if err != nil {
		return err
	}
	say := func(format string, args ...any) {
		fmt.Fprintf(out, "replica %d: %s\n", number, fmt.Sprintf(format, args...))
	}
	say("started")
	err = worker.Run(ctx, queue, func(ctx context.Context, key string) error { return handle(ctx, key, say) },
		worker.Options[string]{Workers: 2, DrainTimeout: 2 * time.Second,
			Logger: slog.New(slog.DiscardHandler)}) // handle says what fails.
	return errors.Join(err, end(queue))
}

// end waits until the server knows what became of the keys that this replica had.
func end(queue *redisqueue.Queue[string]) error {
	ctx, cancel := context.WithTimeout(context.Background(), lease)
	defer cancel()
	return queue.ShutDownContext(ctx)
}

var errDeclined = errors.New("the card was declined")

// handle takes a while. One order in ten fails at its first attempt.
func handle(ctx context.Context, key string, say func(string, ...any)) error {
	fence, _ := redisqueue.Fence(ctx)
	n, _ := strconv.Atoi(strings.TrimPrefix(key, "order/"))
	say("%s (fence …%03d)", key, fence%1000)
	select {
	case <-ctx.Done():
		say("%s was given up: %v", key, context.Cause(ctx))
		return ctx.Err()
	case <-time.After(400 * time.Millisecond):
	}
	if n%10 == 0 && worker.CallOf(ctx).Attempt() == 1 {
		say("%s fails: %v", key, errDeclined)
		return errDeclined
	}
	return nil
}
