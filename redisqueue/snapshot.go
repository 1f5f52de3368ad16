package redisqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

	rank int // in its list of its shard
}

// keys is [Admin.Keys] with keys of the program's type.
func (q *Queue[T]) keys(ctx context.Context, list List, limit int) iter.Seq2[KeyInfo[T], error] {
	return func(yield func(KeyInfo[T], error) bool) {
		var err error
		if limit > 0 {
			var pages [][]KeyInfo[T]
			pages, err = q.readFirst(ctx, limit, list)
			for _, k := range pages[0] {
				if !yield(k, nil) {
					return
				}
			}
		} else {
			for _, s := range q.shards {
				for k, failed := range s.keys(ctx, list, 0) {
					if failed != nil {
						err = errors.Join(err, failed)
					} else if !yield(k, nil) {
						return
					}
				}
			}
		}
		if err != nil {
			yield(KeyInfo[T]{}, err)
		}
	}
}

// readFirst returns up to limit keys of each list, in its order, and beside an error what it has got. It
// reads all shards at once, so that a shard that hangs does not hide the others.
func (q *Queue[T]) readFirst(ctx context.Context, limit int, lists ...List) (pages [][]KeyInfo[T], err error) {
	found, errs := make([][][]KeyInfo[T], len(q.shards)), make([]error, len(q.shards))
	var reading sync.WaitGroup
	for i, s := range q.shards {
		found[i] = make([][]KeyInfo[T], len(lists))
		reading.Go(func() {
			for j, list := range lists {
				for k, err := range s.keys(ctx, list, limit) {
					if err == nil {
						found[i][j] = append(found[i][j], k)
					} else {
						errs[i] = err
					}
				}
			}
		})
	}
	reading.Wait()
	pages = make([][]KeyInfo[T], len(lists))
	for j, list := range lists {
		for i := range q.shards {
			pages[j] = append(pages[j], found[i][j]...)
		}
		slices.SortStableFunc(pages[j], func(a, b KeyInfo[T]) int { return order(list, a, b) })
		pages[j] = pages[j][:min(len(pages[j]), limit)]
	}
	return pages, errors.Join(errs...)
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
		rank := 0
		for _, list := range lists {
			for from := "0"; from != ""; {
				keys, next, err := s.readKeys(ctx, mode, string(list), from, count)
				if err != nil {
					yield(KeyInfo[T]{}, err)
					return
				}
				for _, k := range keys {
					k, ok := shown(k, list)
					if !ok {
						continue
					}
					k.rank = rank
					if rank++; !yield(k, nil) || rank == limit {
						return
					}
				}
				from = next
			}
		}
	}
}

// shown returns what a list shows of a key, and false if the key does not belong there.
func shown[T comparable](k KeyInfo[T], list List) (KeyInfo[T], bool) {
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

// order compares two keys as a list is ordered. Of the queued ones, as of those without an order, the first
// of each shard come first.
func order[T comparable](list List, a, b KeyInfo[T]) (c int) {
	switch list {
	case ListWaiting:
		c = a.Due.Compare(b.Due)
	case ListFailing:
		c = cmp.Compare(b.Requeues, a.Requeues)
	case ListGivenUp:
		c = b.GivenUp.Time.Compare(a.GivenUp.Time)
	}
	return cmp.Or(c, cmp.Compare(a.rank, b.rank))
}

// key is [Admin.Key] with a key of the program's type.
func (q *Queue[T]) key(ctx context.Context, key T) (KeyInfo[T], error) {
	encoded, s := q.locate(key)
	keys, _, err := s.readKeys(ctx, "key", encoded)
	if err != nil {
		return KeyInfo[T]{}, err
	}
	if len(keys) != 1 {
		return KeyInfo[T]{}, fmt.Errorf("redisqueue: the Codec does not decode its encoding %q", encoded)
	}
	return keys[0], nil
}

const maxSnapshot = 512 // how many keys of each state a Snapshot has

// Snapshot returns Stats and up to limit keys of each state, at most 512, of the whole queue. A key that
// changes its state meanwhile may be in two lists. If more than limit keys are processed, it has any of them,
// not the oldest. Keys that other processes have put on hold are among them. Snapshot asks the server for the
// keys, for up to a second; without an answer it lacks those of a state, where [Admin.Keys] would return an
// error. After shutdown it still reads the keys.
func (q *Queue[T]) Snapshot(limit int) workqueue.Snapshot[T] {
	snapshot := workqueue.Snapshot[T]{Stats: q.Stats()}
	// In the order in which a key passes through them: one that moves meanwhile is seen twice rather than
	// not at all.
	lists := q.snapshots(min(limit, maxSnapshot), ListFailing, ListWaiting, ListQueued, ListProcessing)
	snapshot.Failing, snapshot.Waiting, snapshot.Queued = lists[0], lists[1], lists[2]
	snapshot.Processing = q.withoutOnHold(lists[3])
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

// snapshots returns up to limit keys of each list, as far as the server has returned them within a second.
func (q *Queue[T]) snapshots(limit int, lists ...List) [][]workqueue.KeySnapshot[T] {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	snapshots := make([][]workqueue.KeySnapshot[T], len(lists))
	if limit > 0 {
		pages, _ := q.readFirst(ctx, limit, lists...)
		for i := range pages {
			for _, k := range pages[i] {
				snapshots[i] = append(snapshots[i], k.KeySnapshot)
			}
		}
	}
	return snapshots
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

// SnapshotKeys is [Admin.Keys] of ListAll without errors. The iteration ends early if no key comes from the
// server for a second.
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
