package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/redis/go-redis/v9"
)

// ErrNoQueue is returned by [Attach] if there is no queue of that name.
var ErrNoQueue = errors.New("redisqueue: there is no such queue on the server")

// Attach returns an end of an existing queue for tools: its keys are the strings that the server has, whatever type of keys the
// program has. It may look, add, discard, retry, pause and purge; it should not process keys. It takes over no keys of replicas that
// are gone, gives up none, and forgets nothing. Without the right to write it can read. When the server answers a change with an
// error, that error is returned, and the change is not tried again. Nothing is logged.
//
// Attach returns ErrNoQueue if there is no such queue, [ErrIncompatible] for one of another version of this package or whose
// description makes no sense, and otherwise what the client returns.
func Attach(ctx context.Context, client redis.UniversalClient, name string) (*Queue[string], error) {
	if isNil(client) {
		return nil, errors.New("redisqueue: Attach without a client")
	}
	description, err := client.HGet(ctx, newKeyNames(name, 0).shard[0], "description").Result()
	if err == redis.Nil { // A Sentinel that does not know the master is an error that wraps it.
		return nil, fmt.Errorf("%w: %s", ErrNoQueue, name)
	}
	if err != nil {
		return nil, fmt.Errorf("redisqueue: %w", err)
	}
	config := Config[string]{Name: name, Lease: time.Second, Logger: slog.New(slog.DiscardHandler)}
	config.Backoff.ForgetAfter = math.MaxInt64 // A tool does not know after what time the replicas forget failures.
	var version int
	_, err = fmt.Sscanf(description, "format %d, %d shards", &version, &config.Shards)
	if err != nil || version != format || config.Shards < 1 || config.Shards > maxShards {
		return nil, fmt.Errorf("%w: on the server it has %.100q, this program knows format %d", ErrIncompatible, description, format)
	}
	if err := config.complete(readTimeout(client)); err != nil {
		return nil, err
	}
	config.description = description
	q := newQueue(client, config, batchScript)
	q.tool = true
	return q, nil
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

// Description says which format of data, how many shards and which type of keys the queue has.
func (q *Queue[T]) Description() string { return q.config.description }

// Pause makes all replicas hand out nothing for d on the server's clock, or until Resume with [workqueue.UntilResumed]. A pause with
// an end needs no process to end it. It does nothing if d is not positive, and of several pauses the latest end counts. Workers finish
// what they have. Pause does not block; Flush waits until the server knows it. After shutdown it does nothing, and a shutdown ends no
// pause: that is the whole queue's. Stats has Paused and PausedUntil, and Counts says who has paused the queue.
func (q *Queue[T]) Pause(d time.Duration) {
	switch {
	case d == workqueue.UntilResumed:
		q.pauseAll("inf")
	case d > 0:
		q.pauseAll(strconv.FormatUint(ceilMicros(d), 10))
	}
}

// Resume lets all replicas hand out keys again, as Pause.
func (q *Queue[T]) Resume() { q.pauseAll("0") }

func (q *Queue[T]) pauseAll(length string) {
	_ = q.whileOpen(context.Background(), func() {
		for _, s := range q.shards {
			s.enqueueLocked(newOp(codePause, length+" "+q.config.Replica))
		}
	})
}

// Remove takes item out of the queue, on all replicas, and forgets its failures. It reports whether the server knew it or
// its failures. A key that a worker holds stays with that worker, but does not come again. Remove asks the server for up to a
// second, and returns false if that does not answer, and after shutdown; the server may still do it later.
func (q *Queue[T]) Remove(item T) bool {
	q.mu.Lock()
	q.forgetHeldLocked(item)
	q.mu.Unlock()
	return q.changed(codeDiscard, item)
}

// DiscardContext is Remove of several keys. It returns those that the server knew. It sends a few hundred at a time, and the next
// ones when the server has answered. If it does not answer until ctx ends, DiscardContext returns an error beside the keys that the
// server is known to have removed; it may still remove the few hundred that were under way. After shutdown it returns ErrShutDown.
func (q *Queue[T]) DiscardContext(ctx context.Context, items ...T) (discarded []T, err error) {
	return change(ctx, q, codeDiscard, items, q.locate)
}

// changed sends an operation on one key, and reports whether the server knows the key.
func (q *Queue[T]) changed(c code, item T) bool {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	found, _ := change(ctx, q, c, []T{item}, q.locate)
	return len(found) > 0
}

// change sends an operation on each key, and returns the keys that the server knows.
func change[T comparable, K any](ctx context.Context, q *Queue[T], c code, keys []K, locate func(K) (string, *shard[T])) (found []K, err error) {
	for some := range slices.Chunk(keys, maxWork) {
		encoded := make([]string, len(some))
		for i, key := range some {
			encoded[i], _ = locate(key)
		}
		answers, err := q.ask(ctx, c, encoded...)
		for i, a := range answers {
			if a.n > 0 {
				found = append(found, some[i])
			}
		}
		if err != nil {
			return found, err
		}
	}
	return found, nil
}

// GiveUp lists item on the server as a key that is not tried any more, for all replicas, until Forget, Remove, RetryGivenUp or
// ForgetGivenUp takes it off the list, or Config.GivenUpLimit or Config.GivenUpAge is reached. It changes nothing else. It does
// not block. After shutdown it does nothing, as Add. Package worker calls it.
func (q *Queue[T]) GiveUp(item T, attempts int, err error) {
	reason := reasonOf(err)
	q.enqueue(item, func(s *shard[T], encoded string) (seq uint64) {
		text := fmt.Sprintf("%016d%s%d %s", len(encoded), encoded, max(attempts, 0), reason)
		return s.enqueueLocked(newOp(codeGiveUp, text))
	})
}

// GivenUpKeys returns up to limit keys that were given up, the latest first: a worker has called GiveUp, or the key's lease was
// lost MaxLostLeases times in a row. It asks the server for up to a second, and returns what it has until then. It works after
// shutdown too. Keys of [ListGivenUp] is the same with errors.
func (q *Queue[T]) GivenUpKeys(limit int) (keys []workqueue.GivenUpKey[T]) {
	if limit <= 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for k, err := range q.Keys(ctx, ListGivenUp, limit) {
		if err == nil {
			keys = append(keys, *k.GivenUp)
		}
	}
	return keys
}

// RetryGivenUp adds item again, without its failures, if it was given up, and reports whether it was. It asks the server as Remove.
func (q *Queue[T]) RetryGivenUp(item T) bool { return q.changed(codeRetryGivenUp, item) }

// RetryGivenUpContext is RetryGivenUp of several keys. It returns those that had been given up. It sends them as DiscardContext.
func (q *Queue[T]) RetryGivenUpContext(ctx context.Context, items ...T) (retried []T, err error) {
	return change(ctx, q, codeRetryGivenUp, items, q.locate)
}

// ForgetGivenUp forgets that item was given up, and reports whether it was. It asks the server as Remove.
func (q *Queue[T]) ForgetGivenUp(item T) bool { return q.changed(codeForgetGivenUp, item) }

// ForgetGivenUpContext is ForgetGivenUp of several keys. It returns those that had been given up. It sends them as DiscardContext.
func (q *Queue[T]) ForgetGivenUpContext(ctx context.Context, items ...T) (forgotten []T, err error) {
	return change(ctx, q, codeForgetGivenUp, items, q.locate)
}

// SetAsideKeys returns up to limit strings that could not be decoded, all if limit is not positive, in no order. They stay on the
// server, and stop nothing, until they are requeued or dropped. It returns an error if the server does not answer or ctx ends, with
// what it has until then. It reads alone, and works after shutdown too.
func (q *Queue[T]) SetAsideKeys(ctx context.Context, limit int) (encoded []string, err error) {
	for _, s := range q.shards {
		for from := "0"; from != ""; {
			var rows []row[T]
			if rows, from, err = s.readRows(ctx, "scan", "aside", from, maxPage); err != nil {
				return encoded, err
			}
			for _, r := range rows {
				if encoded = append(encoded, r.encoded); len(encoded) == limit {
					return encoded, nil
				}
			}
		}
	}
	return encoded, nil
}

// RequeueSetAside queues strings again that were set aside, and returns those that were. A replica that still cannot decode one sets it
// aside again. It sends them as DiscardContext.
func (q *Queue[T]) RequeueSetAside(ctx context.Context, encoded ...string) (requeued []string, err error) {
	return change(ctx, q, codeRequeueSetAside, encoded, q.locateString)
}

// DropSetAside forgets strings that were set aside, and returns those that were. It sends them as DiscardContext.
func (q *Queue[T]) DropSetAside(ctx context.Context, encoded ...string) (dropped []string, err error) {
	return change(ctx, q, codeDropSetAside, encoded, q.locateString)
}

// Purge deletes the queue from the server, with its keys, delays, failures and what was set aside. Keys that are being
// processed, on any replica, lose their leases with the replica's next call. It deletes without blocking the server, one shard
// after the other; what is added meanwhile may be deleted or not, and the replicas go on with an empty queue. It returns
// an error if the server does not answer, or ctx ends; then a part may be deleted. It works after shutdown too.
func (q *Queue[T]) Purge(ctx context.Context) error {
	for _, s := range q.shards {
		session := newSession()
		for {
			left, err := purgeScript.Run(ctx, q.client, s.names.of(session), session).Int()
			if err != nil {
				return fmt.Errorf("redisqueue: purge: %w", err)
			}
			if left == 0 {
				break
			}
		}
	}
	return nil
}
