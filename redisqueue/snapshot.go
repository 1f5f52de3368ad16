package redisqueue

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/operate"
)

// List names the keys that [Admin.Keys] yields, with a limit in this order.
type List string

// The lists of keys.
const (
	// ListAll is what is queued, processed or waits, in no order. A key that waits and is queued or processed,
	// too, comes twice.
	ListAll        List = "all"
	ListProcessing List = "processing" // in no order
	ListQueued     List = "queued"     // the next one of each shard first
	ListWaiting    List = "waiting"    // the next due first
	ListFailing    List = "failing"    // the one with the most failures first, in any state
	ListGivenUp    List = "givenup"    // the latest first
	listStates     List = "states"     // the keys that are queued or processed, in no order
)

// KeyInfo is what the server knows of a key.
type KeyInfo[T comparable] struct {
	// State is empty for a key that is not in the queue. Only [Admin.Key] has the Causes.
	workqueue.KeySnapshot[T]
	// Holder is the [Config].Replica that holds the key, or a random name if the server does not know that.
	// Fence is that of the hand-out, see [Fence]. They are empty for a key that is not held.
	Holder string `json:"holder,omitempty"`
	Fence  int64  `json:"fence,omitempty"`
	// LostLeases is how often in a row the key's lease was lost.
	LostLeases int `json:"lost_leases,omitempty"`
	// GivenUp is nil for a key that was not given up.
	GivenUp *operate.GivenUpKey[T] `json:"given_up,omitempty"`
}

// keys is [Admin.Keys] with keys of the program's type.
func (q *Queue[T]) keys(ctx context.Context, list List, limit int) iter.Seq2[KeyInfo[T], error] {
	return func(yield func(KeyInfo[T], error) bool) {
		errs := make([]error, len(q.shards))
		type ranked struct {
			KeyInfo[T]
			rank int // in its shard
		}
		found := make([][]ranked, len(q.shards)) // with a limit: the first ones of each of several shards
		var reading sync.WaitGroup
		for i, s := range q.shards {
			if limit > 0 && len(q.shards) > 1 {
				reading.Go(func() { // A shard that hangs must not hide the others.
					for k, err := range s.keys(ctx, list, limit) {
						if errs[i] = err; err == nil {
							found[i] = append(found[i], ranked{k, len(found[i])})
						}
					}
				})
				continue
			}
			for k, err := range s.keys(ctx, list, limit) {
				if errs[i] = err; err == nil && !yield(k, nil) {
					return
				}
			}
		}
		reading.Wait()
		first := slices.Concat(found...)
		slices.SortFunc(first, func(a, b ranked) int {
			return cmp.Or(order(list, a.KeyInfo, b.KeyInfo), cmp.Compare(a.rank, b.rank))
		})
		for _, k := range first[:min(len(first), max(limit, 0))] {
			if !yield(k.KeyInfo, nil) {
				return
			}
		}
		if err := errors.Join(errs...); err != nil {
			yield(KeyInfo[T]{}, err)
		}
	}
}

// keys is Queue.keys of one shard, in the list's order. It reads page by page.
func (s *shard[T]) keys(ctx context.Context, list List, limit int) iter.Seq2[KeyInfo[T], error] {
	mode, lists, count := "page", []List{list}, min(limit, maxPage)
	if limit <= 0 {
		mode, count = "scan", maxPage
	}
	if list == ListAll { // also with a limit: it has no order
		mode, lists = "scan", []List{listStates, ListWaiting}
	}
	return func(yield func(KeyInfo[T], error) bool) {
		left := limit
		for _, list := range lists {
			for from := "0"; from != ""; {
				rows, next, err := s.readRows(ctx, mode, string(list), from, count)
				if err != nil {
					yield(KeyInfo[T]{}, err)
					return
				}
				for _, row := range rows {
					k, ok := s.q.listed(row, list)
					if !ok {
						continue
					}
					if left--; !yield(k, nil) || left == 0 {
						return
					}
				}
				from = next
			}
		}
	}
}

// listed decodes a key and returns what a list shows of it. It returns false for a key that does not belong
// there or cannot be decoded.
func (q *Queue[T]) listed(r row[T], list List) (k KeyInfo[T], ok bool) {
	item, err := q.decode(r.encoded)
	if err != nil {
		return k, false
	}
	k = r.withKey(item)
	switch list {
	case ListQueued, ListProcessing: // LINE and HELD may name a key whose state has changed since.
		k.Due = time.Time{}
		return k, string(k.State) == string(list)
	case listStates:
		k.Due = time.Time{}
	case ListWaiting: // Of a key that is also queued or held, only its delay belongs here.
		k.State, k.Since, k.Again, k.Holder, k.Fence = workqueue.KeyWaiting, time.Time{}, false, "", 0
	case ListGivenUp:
		return k, k.GivenUp != nil
	}
	return k, true
}

// order compares two keys of different shards as a list is ordered. Of the queued ones, as of those without
// an order, the first of each shard come first.
func order[T comparable](list List, a, b KeyInfo[T]) int {
	switch list {
	case ListWaiting:
		return a.Due.Compare(b.Due)
	case ListFailing:
		return cmp.Compare(b.Requeues, a.Requeues)
	case ListGivenUp:
		return b.GivenUp.Time.Compare(a.GivenUp.Time)
	}
	return 0
}

// key is [Admin.Key] with a key of the program's type.
func (q *Queue[T]) key(ctx context.Context, key T) (KeyInfo[T], error) {
	encoded, s := q.locate(key)
	rows, _, err := s.readRows(ctx, "key", encoded)
	if err != nil {
		return KeyInfo[T]{}, err
	}
	if len(rows) != 1 {
		return KeyInfo[T]{}, errReply
	}
	return rows[0].withKey(key), nil
}

const maxSnapshot = 512 // how many keys of each state a Snapshot has

// Snapshot returns Stats and up to limit keys of each state, at most 512, of the whole queue. A key that
// changes its state meanwhile may be in two lists. If more than limit keys are processed, these are any of
// them, not the oldest, with those that other processes have put on hold. Snapshot asks the server for the
// keys, for up to a second; without an answer it lacks those of a state, where [Admin.Keys] would return an
// error. After shutdown it still reads the keys.
func (q *Queue[T]) Snapshot(limit int) workqueue.Snapshot[T] {
	snapshot := workqueue.Snapshot[T]{Stats: q.Stats()}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	read := func(list List) []workqueue.KeySnapshot[T] {
		return q.snapshotsOf(ctx, list, min(limit, maxSnapshot))
	}
	// In the order in which a key passes through them: one that moves meanwhile is seen twice rather than
	// not at all.
	snapshot.Failing, snapshot.Waiting = read(ListFailing), read(ListWaiting)
	snapshot.Queued, snapshot.Processing = read(ListQueued), read(ListProcessing)
	snapshot.Processing = q.withoutOnHold(snapshot.Processing)
	slices.SortStableFunc(snapshot.Processing, func(a, b workqueue.KeySnapshot[T]) int {
		return a.Since.Compare(b.Since)
	})
	return snapshot
}

// withoutOnHold takes out the keys that this process has put on hold: the server does not know of those.
func (q *Queue[T]) withoutOnHold(keys []workqueue.KeySnapshot[T]) []workqueue.KeySnapshot[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.DeleteFunc(keys, func(k workqueue.KeySnapshot[T]) bool {
		h := q.mu.held[k.Key]
		return h != nil && h.onHold
	})
}

// snapshotsOf returns up to limit keys of a list, and those that it has got if the server does not answer.
func (q *Queue[T]) snapshotsOf(ctx context.Context, list List, limit int) (keys []workqueue.KeySnapshot[T]) {
	if limit <= 0 {
		return nil
	}
	for k, err := range q.keys(ctx, list, limit) {
		if err == nil {
			keys = append(keys, k.KeySnapshot)
		}
	}
	return keys
}

// SnapshotKey is [Admin.Key] without errors. It asks the server for up to a second, and returns false if that
// does not answer, and for a key that is not in the queue.
func (q *Queue[T]) SnapshotKey(key T) (k workqueue.KeySnapshot[T], found bool) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	info, err := q.key(ctx, key)
	if err != nil || info.State == "" {
		return workqueue.KeySnapshot[T]{Key: key}, false
	}
	return info.KeySnapshot, true
}

// SnapshotKeys is [Admin.Keys] of ListAll without errors. The iteration ends early if the server does not
// answer for a second.
func (q *Queue[T]) SnapshotKeys() iter.Seq[workqueue.KeySnapshot[T]] {
	return func(yield func(workqueue.KeySnapshot[T]) bool) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		timer := time.AfterFunc(patience, cancel)
		for k, err := range q.keys(ctx, ListAll, 0) {
			timer.Stop() // The caller may take its time.
			if err != nil || !yield(k.KeySnapshot) {
				return
			}
			timer.Reset(patience)
		}
	}
}
