package redisqueue

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/keyedqueue/workqueue"
)

var (
	_ workqueue.ExtendedRateLimiting[string] = (*Queue[string])(nil)
	_ workqueue.Operable[string]             = (*Queue[string])(nil)
	_ workqueue.Leaser[string]               = (*Queue[string])(nil)
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

// maxPriority bounds priorities, so that places in the line stay exact.
const maxPriority = 1_000_000

// AddWithPriority adds item with a priority after a delay, or at once unless that is positive. A key
// of priority 1 is handed out before all keys of priority 0, except those that were queued more than
// Config.PriorityStep before it, one of priority 2 more than twice that, and so on: no key starves. Of
// several adds for the same hand-out the highest priority counts; those without one have priority 0. A key
// that fails, or whose lease is lost, keeps its priority. Priorities beyond a million count as a million. It
// does not block. After shutdown it does nothing, as Add.
func (q *Queue[T]) AddWithPriority(item T, priority int, delay time.Duration) {
	priority = max(-maxPriority, min(priority, maxPriority))
	q.put(item, func(s *shard[T], encoded string) opSeq {
		if delay > 0 {
			q.mu.totals.stats.Retries++
		} else {
			s.closeAddedLocked(encoded)
			s.setEmptyLocked(false)
		}
		text := fmt.Sprintf("%016d%s%d %d", len(encoded), encoded, priority, ceilMicros(delay))
		return s.putLocked(newOp(codeAddPriority, text))
	})
}

// PriorityOf returns the priority with which item was handed out, if a worker of this replica holds it. For
// any other key it asks the server for up to a second, and returns 0 if that does not answer.
func (q *Queue[T]) PriorityOf(item T) int {
	if h := q.holdOf(item); h != nil {
		return h.priority
	}
	k, _ := q.SnapshotKey(item)
	return k.Priority
}

// Below returns nil: the queue has no other below it.
func (q *Queue[T]) Below() any { return nil }

// PauseGroup does nothing: the queue has no groups.
func (q *Queue[T]) PauseGroup(string, time.Duration) {}

// ResumeGroup does nothing: the queue has no groups.
func (q *Queue[T]) ResumeGroup(string) {}

// PausedGroups returns nil: the queue has no groups.
func (q *Queue[T]) PausedGroups() []string { return nil }

// SnapshotGroup returns nothing: the queue has no groups.
func (q *Queue[T]) SnapshotGroup(string) (g workqueue.GroupSnapshot) { return g }

// Pause makes all replicas hand out nothing for d on the server's clock, or until Resume with
// [workqueue.UntilResumed]. A pause with an end needs no process to end it. It does nothing if d is not
// positive, and of several pauses the latest end counts. Workers finish what they have. Pause does not block;
// Flush waits until the server knows it. After shutdown it does nothing, and a shutdown ends no pause: that
// is the whole queue's. Stats says until when the queue is paused and, in Shared, since when and by whom.
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
			s.putLocked(newOp(codePause, length+" "+q.config.Replica))
		}
	})
}

// Remove takes item out of the queue, on all replicas, and forgets its failures. It reports whether the
// server knew it or its failures. A key that a worker holds stays with that worker, but does not come again.
// Remove asks the server for up to a second, and returns false if that does not answer, and after shutdown;
// the server may still do it later.
func (q *Queue[T]) Remove(item T) bool {
	checkHashable(item)
	q.mu.Lock()
	q.forgetHeldLocked(item)
	q.mu.Unlock()
	return q.changeOne(codeDiscard, item)
}

// GivenUpKeys returns up to limit keys that were given up, the latest first: by Fail, or because their leases
// were lost MaxLostLeases times in a row. It asks the server for up to a second, and returns what it has
// until then. It works after shutdown too. [Admin.Keys] of [ListGivenUp] is the same with errors.
func (q *Queue[T]) GivenUpKeys(limit int) (keys []workqueue.GivenUpKey[T]) {
	if limit <= 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for k, err := range q.keys(ctx, ListGivenUp, limit) {
		if err == nil {
			keys = append(keys, *k.GivenUp)
		}
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
		q.locateString(key) // It panics for the reserved one.
	}
	for some := range slices.Chunk(keys, maxWork) {
		answers, err := q.ask(ctx, c, some...)
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
