package redisqueue

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/keyedqueue/workqueue"
)

// The lists that snapshot.lua reads. The first are in order, the next are read in steps.
const (
	listProcessing = "processing"
	listQueued     = "queued"
	listWaiting    = "waiting"
	listFailing    = "failing"
	listGivenUp    = "givenup"

	scanStates = "states"
	scanDelays = "delays"
	listAside  = "aside"

	oneKey     = "key"
	oneGivenUp = "givenupkey"
)

const (
	maxSnapshot = 512 // how many keys of each state a Snapshot has
	maxPage     = 256 // how many keys one call reads
)

// rawKey is a key as snapshot.lua returns it.
type rawKey struct {
	encoded  string
	state    string // see batch.lua
	failures string // their number; of keys that were given up, the attempts and the reason
	due      time.Time
	offset   int64  // how far the queue's clock is ahead of the server's, in microseconds
	causes   string // only of a key that is read alone
}

// read calls f with up to limit keys of a list, all if limit is negative.
func (s *shard[T]) read(ctx context.Context, list string, limit int, f func(rawKey)) error {
	from := "0"
	for n := 0; limit < 0 || n < limit; {
		count := maxPage
		if limit >= 0 {
			count = min(count, limit-n)
		}
		page, next, err := s.readPage(ctx, list, from, count)
		if err != nil {
			return err
		}
		for _, k := range page {
			f(k)
		}
		if n += len(page); next == "" {
			break
		}
		from = next
	}
	return nil
}

// readPage reads some keys of a list, and returns where to go on, empty at the end.
func (s *shard[T]) readPage(ctx context.Context, list, from string, count int) (keys []rawKey, next string, err error) {
	result, err := snapshotScript.run(ctx, s.q.client, s.names.of("none"), count, list, from)
	if err != nil {
		return nil, "", fmt.Errorf("redisqueue: %w", err)
	}
	fields, _ := result.([]any)
	if len(fields) < 2 {
		return nil, "", errReply
	}
	text := func(i int) string { s, _ := fields[i].(string); return s }
	next = text(0)
	offset, _ := strconv.ParseInt(text(1), 10, 64)
	for fields = fields[2:]; len(fields) >= 4; fields = fields[4:] {
		k := rawKey{encoded: text(0), state: text(1), failures: text(2), offset: offset}
		if due, err := strconv.ParseFloat(text(3), 64); err == nil && due < math.MaxInt64 {
			k.due = time.UnixMicro(int64(due) - offset)
		}
		if k.encoded != filler {
			keys = append(keys, k)
		}
	}
	if len(fields) == 1 && len(keys) == 1 {
		keys[0].causes = text(0)
	}
	return keys, next, nil
}

// snapshotOf decodes a key, and returns what that list shows of it, or false if it does not belong there.
func (q *Queue[T]) snapshotOf(list string, raw rawKey) (k workqueue.KeySnapshot[T], ok bool) {
	item, err := q.decode(raw.encoded)
	if err != nil {
		return k, false
	}
	k = workqueue.KeySnapshot[T]{Key: item, Due: raw.due}
	if since := raw.state; len(since) >= 16 {
		k.State = workqueue.KeyQueued
		if len(since) > 16 {
			k.State, k.Again, since = workqueue.KeyProcessing, since[0] != 'p', since[12:28]
		}
		micros, _ := strconv.ParseInt(since, 10, 64)
		k.Since = time.UnixMicro(micros - raw.offset)
	} else if !raw.due.IsZero() {
		k.State = workqueue.KeyWaiting
	}
	failures, _ := strconv.ParseFloat(raw.failures, 64)
	k.Requeues = int(failures)
	if raw.causes != "" {
		causes := decodeCauses(raw.causes)
		k.Causes = &causes
	}
	switch list {
	case listQueued, listProcessing, scanStates:
		k.Due = time.Time{}
	case listWaiting, scanDelays:
		k.State, k.Since, k.Again = workqueue.KeyWaiting, time.Time{}, false
	}
	return k, list != listQueued || k.State == workqueue.KeyQueued // The line may have keys that were removed.
}

// Snapshot returns Stats and up to limit keys of each state, at most 512, of the whole queue, as the server has them when
// it has executed what was called before. Each state is read by calls of its own, none of which takes more than about a
// millisecond: a key that changes its state meanwhile may be in two lists. If more than limit keys are processed, it has any
// of them, not the oldest. It asks the server for up to two seconds, and lacks the keys of a state if that does not answer.
// After shutdown it still reads the keys.
func (q *Queue[T]) Snapshot(limit int) workqueue.Snapshot[T] {
	snapshot := workqueue.Snapshot[T]{Stats: q.Stats()}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	limit = min(max(limit, 0), maxSnapshot)
	bySince := func(a, b workqueue.KeySnapshot[T]) int { return a.Since.Compare(b.Since) }
	lists := []struct {
		list  string
		keys  *[]workqueue.KeySnapshot[T]
		order func(a, b workqueue.KeySnapshot[T]) int
	}{
		// In the order in which a key passes through them: one that goes on meanwhile is seen twice rather than not at all.
		{listFailing, &snapshot.Failing, func(a, b workqueue.KeySnapshot[T]) int { return b.Requeues - a.Requeues }},
		{listWaiting, &snapshot.Waiting, func(a, b workqueue.KeySnapshot[T]) int { return a.Due.Compare(b.Due) }},
		{listQueued, &snapshot.Queued, bySince},
		{listProcessing, &snapshot.Processing, bySince},
	}
	for _, l := range lists {
		for _, s := range q.shards {
			_ = s.read(ctx, l.list, limit, func(raw rawKey) {
				if k, ok := q.snapshotOf(l.list, raw); ok {
					*l.keys = append(*l.keys, k)
				}
			})
		}
		if len(q.shards) > 1 || l.list == listProcessing {
			sortFirst(l.keys, limit, l.order)
		}
	}
	return snapshot
}

// sortFirst sorts keys and keeps the first of them.
func sortFirst[K any](keys *[]K, limit int, order func(a, b K) int) {
	slices.SortStableFunc(*keys, order)
	*keys = (*keys)[:min(len(*keys), max(limit, 0))]
}

// SnapshotKey returns what the server knows of key, and whether key is in the queue. It asks the server for up to a second,
// and returns false if that does not answer.
func (q *Queue[T]) SnapshotKey(key T) (k workqueue.KeySnapshot[T], found bool) {
	encoded, s := q.locate(key)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	page, _, err := s.readPage(ctx, oneKey, encoded, 1)
	if err != nil || len(page) == 0 {
		return workqueue.KeySnapshot[T]{Key: key}, false
	}
	k, ok := q.snapshotOf(oneKey, page[0])
	return k, ok && k.State != ""
}

// SnapshotKeys yields the keys of every state, in no particular order, with a call of the server for every few hundred. A key
// that is queued or held and waits as well is yielded for each. One that moves meanwhile may be yielded twice, or not at
// all. The iteration ends early if the server does not answer for a second.
func (q *Queue[T]) SnapshotKeys() iter.Seq[workqueue.KeySnapshot[T]] {
	return func(yield func(workqueue.KeySnapshot[T]) bool) {
		for _, s := range q.shards {
			for _, list := range []string{scanStates, scanDelays} {
				for from := "0"; from != ""; {
					ctx, cancel := context.WithTimeout(context.Background(), patience)
					page, next, err := s.readPage(ctx, list, from, maxPage)
					cancel()
					if err != nil {
						return
					}
					for _, raw := range page {
						if k, ok := q.snapshotOf(list, raw); ok && !yield(k) {
							return
						}
					}
					from = next
				}
			}
		}
	}
}
