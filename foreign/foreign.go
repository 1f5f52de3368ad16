// Package foreign lets programs use what this project has for its own queues, such as package worker, over
// any other queue with client-go's interface: client-go's own, controller-runtime's, or a queue of a
// program itself.
//
// Client-go's methods do not say everything that this project's queues know, so such a queue cannot do the
// following:
//
//   - The delay after a failure is unknown unless it is AtLeast, because AddRateLimited does not return one.
//     So Retry.Delay and Failures.Left are zero, and each failed call counts, even if an event has brought
//     the key early.
//   - A retry is not taken back, neither when its key is given up nor when the key fails again. If it comes
//     due while the key is held, Done queues the key at once.
//   - Priorities of its own are lost when a key fails or a handler wants it again: it is added without one.
//   - AddedAt is zero, because nothing says when a key came due.
//   - Its queued and waiting keys cannot be listed: Snapshot, SnapshotKey and SnapshotKeys have those that
//     workers hold, and Snapshot the failing ones.
//   - AddedAgain and Causes know the adds that came through the wrapper, and not the keys that came due.
//   - Stats counts queued and held keys, those on hold, and those that DropQueued took. The other numbers are
//     zero. In metrics of the queue's own a hold counts as work, because Done has not been called.
//   - Nothing says at which moment its Get takes a key. An add of the same key at just that moment may bring
//     the key once more after its Done. No add is lost.
package foreign

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/failures"
	"github.com/keyedqueue/workqueue/internal/gate"
)

// RateLimiting returns a wrapper that makes a [workqueue.ExtendedRateLimiting] of queue, through the public
// methods of queue alone. Call it once, and then use only the wrapper: each wrapper counts failures
// and hand-outs for itself. A queue that is an ExtendedRateLimiting already is returned as it is.
//
// Fail calls AddRateLimited, or AddAfter with AtLeast: then queue's limiter is not asked. A count is
// forgotten an hour after the failure, or after AtLeast, unless a worker holds the key then.
//
// A key that was added here and that queue drops when it is shut down, as controller-runtime's does, is still
// handed out, but no key that has come due after AddAfter or AddRateLimited. Drains shut queue down, and wait
// until nothing more comes and every key that was handed out is Done.
//
// A Get of such a queue cannot be interrupted, so the wrapper calls it on a goroutine of its own while
// somebody waits for a key. That stays when the caller gives up, and ends with the next key, which is handed
// out next, or with the shutdown. A queue that also has GetWithPriority, as controller-runtime's, gives Next
// the priority.
func RateLimiting[T comparable](queue workqueue.TypedRateLimitingInterface[T]) workqueue.ExtendedRateLimiting[T] {
	if q, ok := queue.(workqueue.ExtendedRateLimiting[T]); ok {
		return q
	}
	q := &wrapper[T]{below: queue}
	q.mu.keys, q.mu.held = make(map[T]*record), make(map[T]struct{})
	q.get = func() (T, int, bool) {
		key, shutdown := queue.Get()
		return key, 0, shutdown
	}
	if p, ok := queue.(interface{ GetWithPriority() (T, int, bool) }); ok {
		q.get = p.GetWithPriority
	}
	q.failures = failures.New(nil, q.isHeld)
	return q
}

// wrapper makes an ExtendedRateLimiting of any rate-limiting queue.
type wrapper[T comparable] struct {
	workqueue.Unimplemented[T]
	below    workqueue.TypedRateLimitingInterface[T]
	get      func() (item T, priority int, shutdown bool) // of below
	failures *failures.Counts[T]

	shuttingDown atomic.Bool // A method that shuts down was called here.
	shutDownOnce sync.Once   // of below
	leftLogged   atomic.Bool // how many keys a drain leaves

	// mu is the lock, and what it guards. No method of below is called under it.
	//
	// A key comes from below through the fetcher, which leaves it in fetched, until get reports the shutdown.
	// Then the wrapper is down: the keys that below has dropped come from left. A Done ends that, because below
	// may have queued its key again, so the fetcher asks once more.
	mu struct {
		gate.Gate

		// keys has every key with a record: see isEmpty.
		keys map[T]*record
		most int // how many there have been
		// held has the keys that workers hold. onHold counts those of them that are on hold.
		held   map[T]struct{}
		onHold int
		// dones counts the calls of below's Done that have not returned: they may queue a key. doneCount counts
		// those that have.
		dones     int
		doneCount uint64
		dropped   uint64

		waiting  int                   // the callers that wait for a key, and the drains
		fetching bool                  // A goroutine, the fetcher, is in get. It leaves what it gets in fetched.
		fetched  *workqueue.HandOut[T] // or nil
		down     bool
		left     []T
		dropping bool // DropQueued has returned. Neither fetched nor left gets keys any more.
		// idleSince is when the last key was Done, or the drain began.
		idleSince time.Time
	}
}

// record is what the wrapper knows of a key.
type record struct {
	added bool // here, since it was handed out last
	loud  bool // not only quietly
	held  bool
	own   bool // held, and below does not know: it had dropped the key
	// onHold: PutOnHold was called for a held key.
	onHold bool
	// causes are those of the last hand-out, next those for the next one.
	causes, next workqueue.Causes
	again        chan struct{} // is closed when a held key is added; nil unless somebody waits
}

func (k *record) isEmpty() bool { return !k.added && !k.held && k.next.IsZero() }

// recordLocked returns item's record, a new one if it has none.
func (q *wrapper[T]) recordLocked(item T) *record {
	k := q.mu.keys[item]
	if k == nil {
		k = new(record)
		q.mu.keys[item] = k
	}
	return k
}

// unlock ends every critical section. It starts the fetcher if that is needed, and wakes those for whom there
// is something to do.
func (q *wrapper[T]) unlock() {
	q.ensureFetcherLocked()
	if q.mu.fetched != nil || q.mu.down {
		q.mu.Wake()
	}
	if q.mu.down && len(q.mu.held)+q.mu.dones+len(q.mu.left) == 0 && q.mu.fetched == nil {
		q.mu.EndDrain(nil)
	}
	q.mu.UnlockAndSend()
}

func (q *wrapper[T]) ensureFetcherLocked() {
	if (q.mu.waiting > 0 || q.mu.dropping) && !q.mu.fetching && q.mu.fetched == nil && !q.mu.down {
		q.mu.fetching = true
		go q.fetch(q.mu.doneCount)
	}
}

// fetch gets one key, or notices that no more come. It gets doneCount as it was before get was called.
func (q *wrapper[T]) fetch(doneCount uint64) {
	item, priority, shutdown := q.get()
	if q.endFetch(workqueue.HandOut[T]{Key: item, Priority: priority}, shutdown, doneCount) {
		q.finish(item)
	}
}

// endFetch notes what get has returned, and reports whether that key is to be dropped.
func (q *wrapper[T]) endFetch(h workqueue.HandOut[T], shutdown bool, doneCount uint64) (dropped bool) {
	q.mu.Lock()
	defer q.unlock()
	q.mu.fetching = false
	switch {
	case !shutdown && q.mu.dropping:
		q.takeLocked(h.Key, false)
		q.mu.dropped++
		return true
	case !shutdown:
		q.mu.fetched = &h
		return false
	case q.mu.doneCount != doneCount:
		return false // A Done may have queued a key since get looked. unlock starts another fetcher if need be.
	}
	q.mu.down = true
	if q.mu.dones > 0 {
		return false // The same, but that Done will take down back.
	}
	for item, k := range q.mu.keys {
		if k.added && !k.held {
			q.leaveLocked(item)
		}
	}
	return false
}

// leaveLocked queues item, which below has dropped. While the wrapper drops keys, it drops item as well.
func (q *wrapper[T]) leaveLocked(item T) {
	if q.mu.dropping {
		q.mu.dropped++
		q.removeLocked(item)
	} else {
		q.mu.left = append(q.mu.left, item)
	}
}

// Get is GetContext without a context.
func (q *wrapper[T]) Get() (item T, shutdown bool) {
	h, err := q.await(nil)
	return h.Key, err != nil
}

// GetContext waits for a key: see [workqueue.Extended].
func (q *wrapper[T]) GetContext(ctx context.Context) (T, error) {
	h, err := q.Next(ctx)
	return h.Key, err
}

// Next is GetContext that also returns the failures, and whether there are causes.
func (q *wrapper[T]) Next(ctx context.Context) (h workqueue.HandOut[T], err error) {
	if err := ctx.Err(); err != nil {
		return h, err
	}
	if h, err = q.await(ctx.Done()); err != nil {
		return h, gate.PublicError(ctx, err)
	}
	h.Failures = q.Failures(h.Key)
	return h, nil
}

// await waits for a key, and takes it.
func (q *wrapper[T]) await(done <-chan struct{}) (h workqueue.HandOut[T], err error) {
	q.mu.Lock()
	defer q.unlock()
	for {
		switch {
		case q.mu.fetched != nil:
			h, q.mu.fetched = *q.mu.fetched, nil
			h.HasCauses = q.takeLocked(h.Key, false)
			return h, nil
		case len(q.mu.left) > 0:
			h.Key, q.mu.left = q.mu.left[0], q.mu.left[1:]
			h.HasCauses = q.takeLocked(h.Key, true)
			return h, nil
		case q.mu.down:
			return h, workqueue.ErrShutDown
		}
		if !q.sleepLocked(done) {
			return h, gate.ErrContextDone
		}
	}
}

// sleepLocked waits until there may be a key, and returns false if done is closed first.
func (q *wrapper[T]) sleepLocked(done <-chan struct{}) bool {
	q.mu.waiting++
	defer func() { q.mu.waiting-- }()
	q.ensureFetcherLocked()
	return q.mu.Sleep(done)
}

// takeLocked notes that a worker has got item, and reports whether that has causes.
func (q *wrapper[T]) takeLocked(item T, own bool) (hasCauses bool) {
	k := q.recordLocked(item)
	*k = record{held: true, own: own, causes: k.next}
	q.mu.held[item] = struct{}{}
	return !k.causes.IsZero()
}

// Done ends the work on item. For a key that was not handed out here it only calls below's Done.
func (q *wrapper[T]) Done(item T) { q.finish(item) }

func (q *wrapper[T]) finish(item T) {
	known, own := q.finishHere(item)
	if own {
		return
	}
	q.below.Done(item)
	if known {
		q.mu.Lock()
		defer q.unlock()
		q.mu.dones--
		q.mu.doneCount++
		q.mu.idleSince = time.Now()
		q.mu.down, q.mu.left = false, nil // Below may have queued the key again.
	}
}

// finishHere notes that item is Done. It reports whether item was handed out here, and whether below does not
// know that. If not, it counts in dones the call of below's Done that its caller must make.
func (q *wrapper[T]) finishHere(item T) (known, own bool) {
	q.mu.Lock()
	defer q.unlock()
	k := q.mu.keys[item]
	if k == nil || !k.held {
		return false, false
	}
	own = k.own
	if k.onHold {
		q.mu.onHold--
	}
	k.held, k.own, k.onHold, k.causes, k.again = false, false, false, workqueue.Causes{}, nil
	if k.isEmpty() {
		q.removeLocked(item)
	}
	if k.added && own {
		q.leaveLocked(item)
	}
	delete(q.mu.held, item)
	q.mu.idleSince = time.Now()
	if !own {
		q.mu.dones++
	}
	return true, own
}

// removeLocked removes item's record. A map does not shrink, so an empty one that was large is replaced.
func (q *wrapper[T]) removeLocked(item T) {
	q.mu.most = max(q.mu.most, len(q.mu.keys))
	if delete(q.mu.keys, item); len(q.mu.keys) == 0 && q.mu.most > 1<<10 {
		q.mu.keys, q.mu.most = make(map[T]*record), 0
	}
}

// Add adds item: see AddCause.
func (q *wrapper[T]) Add(item T) { q.AddCause(item, workqueue.Cause{}) }

// AddCause notes the add before below knows of it: later the key may have been handed out again.
func (q *wrapper[T]) AddCause(item T, cause workqueue.Cause) {
	if cause.Time.IsZero() {
		cause.Time = time.Now()
	}
	if q.ShuttingDown() || !q.noteAdd(item, cause) {
		q.below.Add(item)
	}
}

// noteAdd reports whether item is queued already because the fetcher has got it. Below takes it for a held
// key then, and would bring it once more after Done.
func (q *wrapper[T]) noteAdd(item T, cause workqueue.Cause) (fetched bool) {
	q.mu.Lock()
	defer q.unlock()
	k := q.recordLocked(item)
	k.added, k.loud, k.next = true, k.loud || !cause.Quiet, k.next.Plus(cause)
	if k.again != nil && k.loud {
		close(k.again)
		k.again = nil
	}
	return q.mu.fetched != nil && q.mu.fetched.Key == item
}

// AddAfter is below's, or Add if item is not to wait.
func (q *wrapper[T]) AddAfter(item T, d time.Duration) {
	if d > 0 {
		q.below.AddAfter(item, d)
	} else {
		q.Add(item)
	}
}

// AddRateLimited is below's.
func (q *wrapper[T]) AddRateLimited(item T) { q.below.AddRateLimited(item) }
