package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrNoQueue is returned by [Attach] if there is no queue of that name.
var ErrNoQueue = errors.New("redisqueue: there is no such queue on the server")

// Attach returns an end of an existing queue for tools: its keys are the strings that the server has, whatever type of keys the
// program has. It has the queue's number of shards, and may look, remove, retry, pause and purge; it should not process keys.
// Attach returns ErrNoQueue if there is none, [ErrIncompatible] for one of another version of this package, and otherwise what
// [New] returns.
func Attach(ctx context.Context, client redis.UniversalClient, name string) (*Queue[string], error) {
	// What the program has configured is not known here. A tool must not forget, give up or take over anything earlier than that.
	config := Config[string]{Name: name, Lease: time.Second, MaxLostLeases: -1, GivenUpLimit: math.MaxInt32, GivenUpAge: 100 * 365 * 24 * time.Hour}
	if err := config.complete(readTimeout(client)); err != nil {
		return nil, err
	}
	description, err := client.HGet(ctx, newKeyNames(name, 0).shard[0], "d").Result()
	if errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("%w: %s", ErrNoQueue, name)
	}
	if err != nil {
		return nil, fmt.Errorf("redisqueue: %w", err)
	}
	var version int
	if _, err := fmt.Sscanf(description, "format %d, %d shards", &version, &config.Shards); err != nil || version != format {
		return nil, fmt.Errorf("%w: on the server it has %s, this program knows format %d", ErrIncompatible, description, format)
	}
	_, config.keys, _ = strings.Cut(description, "keys: ")
	q := newQueue(client, config, batchScript)
	return q, q.checkScripts(ctx)
}

// Queues returns the names of the queues on the server, in no order, with a scan of all of its keys in steps.
func Queues(ctx context.Context, client redis.UniversalClient) (names []string, err error) {
	var mu sync.Mutex // guards names
	err = onEachNode(ctx, client, func(ctx context.Context, node redis.UniversalClient) error {
		keys := node.Scan(ctx, 0, "workqueue:{*/0}:meta", 1000).Iterator()
		for keys.Next(ctx) {
			name := strings.TrimSuffix(strings.TrimPrefix(keys.Val(), "workqueue:{"), "/0}:meta")
			mu.Lock()
			names = append(names, name)
			mu.Unlock()
		}
		return keys.Err()
	})
	if err != nil {
		err = fmt.Errorf("redisqueue: %w", err)
	}
	return names, err
}

// Description says which format of data, how many shards and which type of keys the queue has.
func (q *Queue[T]) Description() string { return q.description }
