package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"math"
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

// Pause makes all replicas hand out nothing until Resume. Workers finish what they have. It does not block; Flush waits until
// the server knows it. After shutdown it does nothing. Stats has Paused.
func (q *Queue[T]) Pause() { q.toAllShards("P") }

// Resume lets all replicas hand out keys again, as Pause.
func (q *Queue[T]) Resume() { q.toAllShards("R") }

func (q *Queue[T]) toAllShards(arg string) {
	_ = q.whileOpen(context.Background(), func() {
		for _, s := range q.shards {
			s.enqueueLocked(&op{kind: opOther, arg: arg})
		}
	})
}

// Remove takes item out of the queue, on all replicas, and reports whether it was there. A key that a worker holds stays with
// that worker, but does not come again. Its failures are forgotten. The errors are those of [Queue.Retry].
func (q *Queue[T]) Remove(ctx context.Context, item T) (bool, error) { return q.change(ctx, "x", item) }

// Discard is Remove for tools. It asks the server for up to a second, and returns false if that does not answer; the server may
// still do it later.
func (q *Queue[T]) Discard(item T) bool { return q.changed("x", item) }

func (q *Queue[T]) change(ctx context.Context, code string, item T) (bool, error) {
	encoded, s := q.locate(item)
	n, err := s.ask(ctx, code+encoded)
	return n > 0, err
}

func (q *Queue[T]) changed(code string, item T) bool {
	found, _ := q.change(context.Background(), code, item)
	return found
}

// GivenUp is a key that is not tried any more: a worker has called [Queue.GiveUp], or the key's lease was lost
// MaxLostLeases times in a row.
type GivenUp[T comparable] struct {
	Key      T
	Attempts int
	Reason   string
	At       time.Time
}

// maxReason is how many bytes of an error are kept.
const maxReason = 1000

// GiveUp keeps item on the server as a key that is not tried any more, for all replicas, until it is added and forgotten (see
// Forget), retried or dropped, or Config.GivenUpLimit or Config.GivenUpAge is reached. It changes nothing else. It does not
// block. After shutdown it does nothing, as Add. Package worker calls it.
func (q *Queue[T]) GiveUp(item T, attempts int, err error) {
	reason := "no error"
	if err != nil {
		reason = err.Error()
	}
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "") + "…"
	}
	q.enqueue(item, func(s *shard[T], encoded string) (seq uint64) {
		arg := fmt.Sprintf("g%016d%s%d %s", len(encoded), encoded, max(attempts, 0), reason)
		return s.enqueueLocked(&op{kind: opOther, arg: arg})
	})
}

// GivenUp returns up to limit keys that were given up, the latest first. It returns an error if the server does not answer or
// ctx ends, with what it has until then. It works after shutdown too.
func (q *Queue[T]) GivenUp(ctx context.Context, limit int) (keys []GivenUp[T], err error) {
	for _, s := range q.shards {
		err = s.read(ctx, listGivenUp, limit, func(k rawKey) {
			if item, err := q.decode(k.encoded); err == nil {
				keys = append(keys, givenUpKey(item, k))
			}
		})
		if err != nil {
			break
		}
	}
	return sortFirst(keys, limit, func(a, b GivenUp[T]) int { return b.At.Compare(a.At) }), err
}

func givenUpKey[T comparable](item T, k rawKey) GivenUp[T] {
	attempts, reason, _ := strings.Cut(k.failures, " ")
	n, _ := strconv.Atoi(attempts)
	return GivenUp[T]{Key: item, Attempts: n, Reason: reason, At: k.due}
}

// GivenUpKey returns item as a key that was given up, or nil if it was not. Its errors are those of [Queue.GivenUp].
func (q *Queue[T]) GivenUpKey(ctx context.Context, item T) (*GivenUp[T], error) {
	encoded, s := q.locate(item)
	page, _, err := s.readPage(ctx, oneGivenUp, encoded, 1)
	if err != nil || len(page) == 0 || page[0].due.IsZero() {
		return nil, err
	}
	k := givenUpKey(item, page[0])
	return &k, nil
}

// Retry adds item again, without its failures, if it was given up, and reports whether it was. It returns an error if the server
// has not answered when ctx ends or a second has passed, and ErrShutDown after shutdown.
func (q *Queue[T]) Retry(ctx context.Context, item T) (bool, error) { return q.change(ctx, "t", item) }

// DropGivenUp forgets that item was given up, and reports whether it was. Its errors are those of [Queue.Retry].
func (q *Queue[T]) DropGivenUp(ctx context.Context, item T) (bool, error) {
	return q.change(ctx, "y", item)
}

// GivenUpKeys is GivenUp for tools. It asks the server for up to a second, and returns what it has until then.
func (q *Queue[T]) GivenUpKeys(limit int) (keys []workqueue.GivenUpKey[T]) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	given, _ := q.GivenUp(ctx, limit)
	for _, k := range given {
		keys = append(keys, workqueue.GivenUpKey[T]{Key: k.Key, Attempts: k.Attempts, Err: k.Reason, Time: k.At})
	}
	return keys
}

// RetryGivenUp is Retry for tools. It asks the server for up to a second, and returns false if that does not answer; the server
// may still do it later.
func (q *Queue[T]) RetryGivenUp(item T) bool { return q.changed("t", item) }

// ForgetGivenUp is DropGivenUp for tools. It asks the server for up to a second, and returns false if that does not answer; the
// server may still do it later.
func (q *Queue[T]) ForgetGivenUp(item T) bool { return q.changed("y", item) }

// SetAside returns up to limit strings that could not be decoded, in no order, and how many there are. They stay on the server,
// and stop nothing, until RequeueSetAside or DropSetAside. It returns an error if the server does not answer or ctx ends, with
// what it has until then. It works after shutdown too.
func (q *Queue[T]) SetAside(ctx context.Context, limit int) (encoded []string, total int, err error) {
	for _, s := range q.shards {
		n, err := q.client.SCard(ctx, s.names.aside()).Result()
		total += int(n)
		if limit > len(encoded) && n > 0 {
			var some []string
			some, err = q.client.SRandMemberN(ctx, s.names.aside(), int64(limit-len(encoded))).Result()
			encoded = append(encoded, some...)
		}
		if err != nil {
			return encoded, total, fmt.Errorf("redisqueue: %w", err)
		}
	}
	return encoded, total, nil
}

// RequeueSetAside queues the keys again that were set aside, a few hundred at a time, and returns how many. A replica that still
// cannot decode one sets it aside again. It returns an error if the server does not answer or ctx ends; then a part is queued.
// After shutdown it returns ErrShutDown.
func (q *Queue[T]) RequeueSetAside(ctx context.Context) (n int, err error) {
	for _, s := range q.shards {
		var keys []string
		if err := s.read(ctx, listAside, math.MaxInt, func(k rawKey) { keys = append(keys, k.encoded) }); err != nil {
			return n, err
		}
		for _, key := range keys {
			found, err := s.ask(ctx, "s"+key)
			if err != nil {
				return n, err
			}
			n += found
		}
	}
	return n, nil
}

// DropSetAside deletes what was set aside, without blocking the server. It returns an error if the server does not answer or
// ctx ends, and works after shutdown too.
func (q *Queue[T]) DropSetAside(ctx context.Context) error {
	var errs []error
	for _, s := range q.shards {
		if err := q.client.Unlink(ctx, s.names.aside()).Err(); err != nil {
			errs = append(errs, fmt.Errorf("redisqueue: %w", err))
		}
	}
	return errors.Join(errs...)
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
