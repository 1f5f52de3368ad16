package redisqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrNoQueue is returned by [Attach] if there is no queue of that name.
var ErrNoQueue = errors.New("redisqueue: there is no such queue on the server")

// Admin is an end of a queue for operators and their tools; [Attach] makes one. Its keys are the strings that
// the server has, for every type of keys. It hands out no keys.
//
// Its methods return an error if the server does not answer until ctx ends. Those that change keys return
// what the server is known to have done, beside an error; it may have done, or still do, what was under
// way. They send a few hundred keys at a time, and the next ones when the server has answered. After Close
// they return ErrShutDown, except Purge and those that only read. An add that a full server refuses is tried
// until ctx ends.
type Admin struct{ queue *Queue[string] }

// Attach returns an Admin of an existing queue. It takes over no keys of replicas that are gone, gives up
// none, and forgets nothing. Without the right to write it can read. When the server answers a change with an
// error, that error is returned, and the change is not tried again. Nothing is logged.
//
// Attach returns ErrNoQueue if there is no such queue, [ErrIncompatible] for one of another version of this
// package or whose description makes no sense, and otherwise what the client returns.
func Attach(ctx context.Context, client redis.UniversalClient, name string) (*Admin, error) {
	if err := checkClient(client); err != nil {
		return nil, err
	}
	description, err := client.HGet(ctx, newKeyNames(name, 0).shard[0], "description").Result()
	if err == redis.Nil { // A Sentinel that does not know the master is an error that wraps it.
		return nil, fmt.Errorf("%w: %s", ErrNoQueue, name)
	}
	if err != nil {
		return nil, fmt.Errorf("redisqueue: %w", err)
	}
	config := Config[string]{Name: name, Lease: time.Second, Logger: slog.New(slog.DiscardHandler)}
	config.Backoff.ForgetAfter = math.MaxInt64 // A tool does not know when the replicas forget failures.
	var version int
	_, err = fmt.Sscanf(description, "format %d, %d shards", &version, &config.Shards)
	if err != nil || version != format || config.Shards < 1 || config.Shards > maxShards {
		return nil, fmt.Errorf("%w: on the server it has %.100q, this program knows format %d",
			ErrIncompatible, description, format)
	}
	if err := config.complete(); err != nil {
		return nil, err
	}
	config.description = description
	q := newQueue(client, config, batchScript)
	q.tool = true
	return &Admin{queue: q}, nil
}

// Queues returns the names of the queues on the server, sorted, with a scan of all of its keys in steps.
func Queues(ctx context.Context, client redis.UniversalClient) (names []string, err error) {
	var mu sync.Mutex // guards names
	err = onEachNode(ctx, client, func(ctx context.Context, node redis.UniversalClient) error {
		keys := node.Scan(ctx, 0, "workqueue:{*/0}:meta", 1000).Iterator()
		for keys.Next(ctx) {
			mu.Lock()
			names = append(names, strings.TrimSuffix(strings.TrimPrefix(keys.Val(), "workqueue:{"), "/0}:meta"))
			mu.Unlock()
		}
		return keys.Err()
	})
	if err != nil {
		err = fmt.Errorf("redisqueue: %w", err)
	}
	slices.Sort(names)
	return slices.Compact(names), err // A scan may find a key twice.
}

// Close ends the Admin. Without it, what was not sent is tried until the server answers. It does not block.
func (a *Admin) Close() { a.queue.ShutDown() }

// Description says which format of data, how many shards and which type of keys the queue has.
func (a *Admin) Description() string { return a.queue.config.description }

// Add queues keys, or lets them wait if after is positive, and returns how many the server has confirmed. To
// the server, another way to write a key is another key.
func (a *Admin) Add(ctx context.Context, after time.Duration, keys ...string) (added int, err error) {
	for some := range slices.Chunk(keys, maxWork) {
		for _, key := range some {
			a.queue.AddAfter(key, after)
		}
		if err := a.queue.Flush(ctx); err != nil {
			// What the server says is worth more than that the time is up.
			return added, cmp.Or(a.queue.outage(), err)
		}
		added += len(some)
	}
	return added, nil
}

// Pause is [Queue.Pause] that returns when the server has paused the queue.
func (a *Admin) Pause(ctx context.Context, d time.Duration) error {
	a.queue.Pause(d)
	return a.queue.Flush(ctx)
}

// Resume is [Queue.Resume] that returns when the server has resumed the queue.
func (a *Admin) Resume(ctx context.Context) error {
	a.queue.Resume()
	return a.queue.Flush(ctx)
}

// Keys yields up to limit keys of a list in its order or, if limit is not positive, all of them in no order.
// It calls the server for every few hundred. Without a limit, every key that stays in the list is yielded;
// a key that moves may be yielded twice, or not at all. With a limit, nothing is yielded before all shards
// were read; with one above 256, or long keys, a key may also be missed because others leave the list.
//
// If a shard does not answer, the keys of the other shards are yielded, and an error last. When ctx ends,
// what was read until then is yielded, and ctx.Err(). Keys reads alone, and works after shutdown too.
func (a *Admin) Keys(ctx context.Context, list List, limit int) iter.Seq2[KeyInfo[string], error] {
	return a.queue.keys(ctx, list, limit)
}

// Key returns what the server knows of key; its State is empty if it is not in the queue. It reads alone.
func (a *Admin) Key(ctx context.Context, key string) (KeyInfo[string], error) {
	return a.queue.key(ctx, key)
}

// Remove is [Queue.Remove] of several keys. It returns those that the server knew.
func (a *Admin) Remove(ctx context.Context, keys ...string) (removed []string, err error) {
	return a.queue.change(ctx, codeDiscard, keys)
}

// RetryGivenUp is [Queue.RetryGivenUp] of several keys. It returns those that had been given up.
func (a *Admin) RetryGivenUp(ctx context.Context, keys ...string) (retried []string, err error) {
	return a.queue.change(ctx, codeRetryGivenUp, keys)
}

// ForgetGivenUp is [Queue.ForgetGivenUp] of several keys. It returns those that had been given up.
func (a *Admin) ForgetGivenUp(ctx context.Context, keys ...string) (forgotten []string, err error) {
	return a.queue.change(ctx, codeForgetGivenUp, keys)
}

// Release takes keys from the workers that hold them, for instance because their handlers hang, and returns
// those that were held. They are queued at once, before all others, with their failures and causes. What a
// former holder says of its key from now on changes nothing, but its handler may still run: its context ends
// with [ErrReleased] when its replica next calls the server, which is within a third of the lease. That
// process does not get the key again before its handler has returned.
func (a *Admin) Release(ctx context.Context, keys ...string) (released []string, err error) {
	return a.queue.change(ctx, codeRelease, keys)
}

// Purge deletes the queue from the server, with its keys, delays, failures and given-up keys. Keys that
// are being processed, on any replica, lose their leases with the replica's next call. It deletes without
// blocking the server, one shard after the other; what is added meanwhile may be deleted or not, and the
// replicas continue with an empty queue. It returns an error if the server does not answer, or ctx ends; then
// a part may be deleted. It works after shutdown too.
func (a *Admin) Purge(ctx context.Context) error {
	for _, s := range a.queue.shards {
		// The sessions' WAKE lists end by themselves within a minute.
		if err := a.queue.client.Unlink(ctx, s.names.shard...).Err(); err != nil {
			return fmt.Errorf("redisqueue: purge: %w", err)
		}
	}
	return nil
}
