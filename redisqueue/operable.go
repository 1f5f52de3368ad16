package redisqueue

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/operate"
)

var (
	_ workqueue.ExtendedRateLimiting[string] = (*Queue[string])(nil)
	_ operate.Operable[string]               = (*Queue[string])(nil)
	_ leasing.Answerer[string]               = (*Queue[string])(nil)
)

// DropQueued returns nil: other replicas handle the keys.
func (q *Queue[T]) DropQueued() []T { return nil }

// AddedAt returns when item, which a worker of this replica holds, was added or came due before it was handed
// out, by this process's clock. It is zero for any other key.
func (q *Queue[T]) AddedAt(item T) time.Time {
	if h := q.holdOf(item); h != nil {
		return h.addedAt
	}
	return time.Time{}
}

// Pause makes all replicas hand out nothing for d on the server's clock, or until Resume with
// [operate.UntilResumed]. A pause with an end needs no process to end it. It does nothing if d is not
// positive, and of several pauses the latest end counts. Workers finish what they have. Pause does not block;
// Flush waits until the server knows it. After shutdown it does nothing, and a shutdown ends no pause: that
// is the whole queue's. Stats says until when the queue is paused and, in Shared, since when and by whom.
func (q *Queue[T]) Pause(d time.Duration) {
	if d > 0 {
		q.pauseAll(ceilMicros(d)) // UntilResumed is beyond FOREVER of batch.lua.
	}
}

// Resume lets all replicas hand out keys again, as Pause.
func (q *Queue[T]) Resume() { q.pauseAll(0) }

func (q *Queue[T]) pauseAll(micros uint64) {
	_ = q.whileOpen(context.Background(), func() {
		for _, s := range q.shards {
			s.putLocked(newOp(codePause, strconv.FormatUint(micros, 10)+" "+q.config.Replica))
		}
	})
}

// Remove takes item out of the queue, on all replicas, and forgets its failures and that it was given up.
// It reports whether the server knew any of that. A held key stays with its worker. It is queued again only
// if it is added after that, or if the worker requeues or fails it. Remove asks the server for up to a
// second, and returns false if that does not answer, and after shutdown; the server may still do it later.
func (q *Queue[T]) Remove(item T) bool {
	checkHashable(item)
	q.mu.Lock()
	q.forgetHeldLocked(item)
	q.mu.Unlock()
	return q.changeOne(codeDiscard, item)
}

// GivenUpKeys returns up to limit keys that were given up, the latest first: by Fail, or because their leases
// were lost MaxLostLeases times in a row. It asks the server for up to a second, and returns what it has
// until then. It also works after shutdown. [Admin.Keys] of [ListGivenUp] returns errors, and has those that
// this process cannot decode.
func (q *Queue[T]) GivenUpKeys(limit int) (keys []operate.GivenUpKey[T]) {
	if limit <= 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	first, _ := q.readFirst(ctx, limit, ListGivenUp)
	for _, k := range first[0] {
		keys = append(keys, *k.GivenUp)
	}
	return keys
}

// RetryGivenUp adds item again, without its failures, if it was given up, and reports whether it was. It asks
// the server as Remove.
func (q *Queue[T]) RetryGivenUp(item T) bool { return q.changeOne(codeRetryGivenUp, item) }

// ForgetGivenUp forgets that item was given up, and reports whether it was. It asks the server as Remove.
func (q *Queue[T]) ForgetGivenUp(item T) bool { return q.changeOne(codeForgetGivenUp, item) }

// changeOne sends an operation on one key, and reports whether the server knows the key.
func (q *Queue[T]) changeOne(c code, item T) bool {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	encoded, _ := q.locate(item)
	found, _ := q.change(ctx, c, []string{encoded})
	return len(found) > 0
}

// change sends an operation on each string, and returns those that the server knows.
func (q *Queue[T]) change(ctx context.Context, c code, keys []string) (found []string, err error) {
	for _, key := range keys {
		q.shardOf(key) // It panics for the reserved one.
	}
	for some := range slices.Chunk(keys, maxWork) {
		results, err := q.ask(ctx, c, some...)
		for i, a := range results {
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

// ask sends an operation on each key and returns their results. If ctx ends first, those that are missing are
// zero.
func (q *Queue[T]) ask(ctx context.Context, c code, keys ...string) ([]opResult, error) {
	results := make([]opResult, len(keys)) // Guarded by mu: some may come after ask has returned.
	left, result := len(keys), make(chan error, len(keys))
	err := q.whileOpen(ctx, func() {
		for i, key := range keys {
			o := newOp(c, key)
			o.onResult = func(a opResult, err error) {
				results[i] = a
				if left--; left == 0 || err != nil {
					result <- err
				}
			}
			q.shardOf(key).putLocked(o)
		}
	})
	if err == nil {
		err = q.wait(ctx, result)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(results), err
}
