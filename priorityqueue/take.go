package priorityqueue

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/keytable"
)

// Get blocks until a key can be handed out, and hands it to the caller, who must call Done with it. After
// shutdown it hands out the keys that are still queued, waiting for a Done where a group is at its limit,
// and then returns shutdown = true without blocking.
func (q *Queue[T]) Get() (item T, shutdown bool) {
	item, _, err := q.takeOne(nil)
	return item, err != nil
}

// GetWithPriority is Get that also returns the key's priority: the one that it was added with, whatever it has
// gained by Aging.
func (q *Queue[T]) GetWithPriority() (item T, priority int, shutdown bool) {
	item, priority, err := q.takeOne(nil)
	return item, priority, err != nil
}

// GetContext is Get that gives up when ctx is done, also if keys are queued: then it takes none and returns
// ctx.Err(). After shutdown, when nothing is queued, it returns [workqueue.ErrShutDown].
func (q *Queue[T]) GetContext(ctx context.Context) (item T, err error) {
	if err := ctx.Err(); err != nil {
		return item, err
	}
	item, _, err = q.takeOne(ctx.Done())
	return item, publicError(ctx, err)
}

// Take is GetContext that returns everything that the queue knows of the key. The limiter's NumRequeues is called
// after the key was taken; if it panics, the key goes back into the queue.
func (q *Queue[T]) Take(ctx context.Context) (info Info[T], err error) {
	if err := ctx.Err(); err != nil {
		return info, err
	}
	if info, err = q.takeInfo(ctx.Done()); err != nil {
		return info, publicError(ctx, err)
	}
	one := [...]Info[T]{info}
	q.addFailures(one[:])
	return one[0], nil
}

func (q *Queue[T]) takeInfo(done <-chan struct{}) (info Info[T], err error) {
	now := q.readClock(false)
	q.lockAt(now)
	defer q.unlock()
	if now, err = q.awaitLocked(done, now); err != nil {
		return info, err
	}
	return q.infoLocked(q.takeLocked(now)), nil
}

// GetBatch waits like GetContext until a key can be handed out, and then takes that one and the others that can be
// handed out now, up to limit of them. The caller must call Done with each, or DoneBatch with all. It allocates the
// slice that it returns. It panics if limit is less than one.
func (q *Queue[T]) GetBatch(ctx context.Context, limit int) ([]T, error) {
	return takeBatch(ctx, q, limit, func(s keytable.Slot) T { return q.keys.At(s).Key })
}

// TakeBatch is GetBatch that returns everything that the queue knows of the keys. The limiter's NumRequeues is
// called after the keys were taken; if it panics, they go back into the queue.
func (q *Queue[T]) TakeBatch(ctx context.Context, limit int) ([]Info[T], error) {
	batch, err := takeBatch(ctx, q, limit, q.infoLocked)
	if err != nil {
		return nil, err
	}
	q.addFailures(batch)
	return batch, nil
}

// addFailures asks the limiter for the failures of keys that were just taken. If it panics, they go back.
func (q *Queue[T]) addFailures(infos []Info[T]) {
	complete := false
	defer func() {
		if !complete {
			q.giveBack(infos)
		}
	}()
	for i := range infos {
		infos[i].Failures = q.NumRequeues(infos[i].Key)
	}
	complete = true
}

// takeBatch takes keys for GetBatch or TakeBatch. It calls result, under the lock, for each.
func takeBatch[T comparable, R any](ctx context.Context, q *Queue[T], limit int, result func(keytable.Slot) R) (batch []R, err error) {
	if limit < 1 {
		panic("priorityqueue: a batch of less than one key")
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	done := ctx.Done()
	now := q.readClock(false) // Not once more for each lock: if the clock panicked, the keys taken so far would be lost.
	takeSome := func() (more bool, err error) {
		q.lockAt(now)
		defer q.unlock()
		if len(batch) == 0 {
			if now, err = q.awaitLocked(done, now); err != nil {
				return false, err
			}
		}
		n := min(limit-len(batch), maxPerLock, q.queued-q.blockedKeys)
		batch = slices.Grow(batch, n)
		for ; n > 0 && q.takeable(); n-- {
			batch = append(batch, result(q.takeLocked(now)))
		}
		return len(batch) < limit && q.takeable(), nil
	}
	for more := true; more; {
		if len(batch) > 0 {
			// Without the lock, because it may move all keys of the batch.
			batch = slices.Grow(batch, min(limit-len(batch), maxPerLock))
		}
		if more, err = takeSome(); err != nil {
			return nil, publicError(ctx, err)
		}
	}
	return batch, nil
}

// giveBack makes keys ready again that were taken and cannot be returned to the caller.
func (q *Queue[T]) giveBack(infos []Info[T]) {
	// Not slices.Chunk: that would move the one Info of each Take to the heap.
	for len(infos) > 0 {
		n := min(len(infos), maxPerLock)
		q.giveSomeBack(infos[:n])
		infos = infos[n:]
	}
}

func (q *Queue[T]) giveSomeBack(infos []Info[T]) {
	now := q.readClock(false)
	q.lockAt(now)
	defer q.unlock()
	for i := range infos {
		s, e := q.keys.Find(keytable.HashOf(infos[i].Key), infos[i].Key)
		if e == nil || e.Value.state&running == 0 {
			continue
		}
		it := &e.Value
		if !q.stopped {
			q.needAgainLocked(s, it, now)
		}
		q.doneLocked(s, it, now)
	}
}

// needAgainLocked makes the running key at s come again at once, with its priority or the higher one of an add since
// its hand-out.
func (q *Queue[T]) needAgainLocked(s keytable.Slot, it *item, now int64) {
	d := q.details.At(s)
	switch it.state & (again | timed) {
	case again:
		q.urgeLocked(s, it, &d.priority, it.priority, false, now)
		return
	case again | timed:
		q.due.Remove(s)
		d.priority = max(d.priority, it.priority)
	default:
		d.priority = it.priority
	}
	q.comeAgainAtOnceLocked(s, it, now)
}

// errContextDone is what a getter returns under the lock instead of its context's error: Err is foreign code.
var errContextDone = errors.New("priorityqueue: the context is done")

// publicError returns err, or ctx.Err() if err is errContextDone.
func publicError(ctx context.Context, err error) error {
	if err != errContextDone {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return context.Canceled // This context breaks the contract of its interface.
}

// takeOne waits until a key can be handed out, and takes it.
func (q *Queue[T]) takeOne(done <-chan struct{}) (key T, priority int, err error) {
	now := q.readClock(false)
	q.lockAt(now)
	defer q.unlock()
	return q.takeOneLocked(done, now)
}

func (q *Queue[T]) takeOneLocked(done <-chan struct{}, now int64) (key T, priority int, err error) {
	if now, err = q.awaitLocked(done, now); err != nil {
		return key, 0, err
	}
	e := q.keys.At(q.takeLocked(now))
	return e.Key, e.Value.priority, nil
}

// awaitLocked waits until a key can be handed out, or there is an error to return. It returns the time.
func (q *Queue[T]) awaitLocked(done <-chan struct{}, now int64) (int64, error) {
	for !q.takeable() {
		if q.exhausted() {
			return now, workqueue.ErrShutDown
		}
		if !q.gate.Sleep(done, func() { now = q.readClock(false) }) {
			return now, errContextDone
		}
		q.advanceLocked(now)
	}
	return now, nil
}

// takeLocked hands out the next key, and returns its slot. There must be one.
func (q *Queue[T]) takeLocked(now int64) keytable.Slot {
	s := q.nextLocked()
	it := &q.keys.At(s).Value
	q.leaveLineLocked(s, it)
	it.state = running | it.state&dated
	q.running++
	q.last.Took(s, q.running)
	if q.config.Group != nil {
		q.countRunningLocked(it.home, 1)
	}
	if q.config.MinInterval > 0 {
		q.details.At(s).started = now
	}
	if q.observer != nil {
		q.observer.Taken(s, time.Duration(now))
	}
	q.endNeedLocked(it.priority)
	return s
}

// Done says that the caller is finished with an item from Get. If the item was added in the meantime, it
// becomes ready, or waits for the time that was asked for. Done of a key that no worker holds changes
// nothing but [workqueue.Stats].UnmatchedDones.
func (q *Queue[T]) Done(item T) {
	h, hashed := q.last.Hash(item)
	now := q.readClock(false)
	q.lockAt(now)
	defer q.unlock()
	q.finishLocked(item, h, hashed, now)
}

// DoneBatch is Done of each of items, in this order. If one of them cannot be hashed, it panics before any is Done.
func (q *Queue[T]) DoneBatch(items ...T) {
	hashes := make([]keytable.Hash, len(items))
	for i, item := range items {
		hashes[i] = keytable.HashOf(item)
		keytable.CheckKey(item)
	}
	for len(items) > 0 {
		n := min(len(items), maxPerLock)
		q.finishSome(items[:n], hashes[:n])
		items, hashes = items[n:], hashes[n:]
	}
}

func (q *Queue[T]) finishSome(items []T, hashes []keytable.Hash) {
	now := q.readClock(false)
	q.lockAt(now)
	defer q.unlock()
	for i, item := range items {
		q.finishLocked(item, hashes[i], true, now)
	}
}

// DoneAndGet is Done of done followed by GetContext, under one lock: for a worker that takes one key after the other.
// If it returns an error, done is Done nevertheless.
func (q *Queue[T]) DoneAndGet(ctx context.Context, done T) (item T, err error) {
	ended, err := ctx.Done(), ctx.Err()
	if err != nil {
		q.Done(done)
		return item, err
	}
	item, err = q.finishAndTake(ended, done)
	return item, publicError(ctx, err)
}

func (q *Queue[T]) finishAndTake(ended <-chan struct{}, done T) (item T, err error) {
	h, hashed := q.last.Hash(done)
	now := q.readClock(false)
	q.lockAt(now)
	defer q.unlock()
	q.finishLocked(done, h, hashed, now)
	item, _, err = q.takeOneLocked(ended, now)
	return item, err
}

// finishLocked is Done of item, whose hash is h if it is hashed already.
func (q *Queue[T]) finishLocked(item T, h keytable.Hash, hashed bool, now int64) {
	s, e := keytable.FindTaken(&q.keys, &q.last, item, h, hashed)
	if e == nil || e.Value.state&running == 0 {
		q.unmatchedDones++
		return
	}
	q.doneLocked(s, &e.Value, now)
}

// doneLocked is Done of the running key at s.
func (q *Queue[T]) doneLocked(s keytable.Slot, it *item, now int64) {
	q.running--
	q.last.Ended(s)
	if q.config.Group != nil {
		q.countRunningLocked(q.groupOfLocked(it), -1)
	}
	if q.observer != nil {
		q.observer.Finished(s, time.Duration(now))
	}
	if it.state&timed != 0 && q.shuttingDown.Load() {
		q.due.Remove(s)
		q.dropped++
		it.state &^= again | timed
	}
	if it.state&again == 0 {
		q.retireLocked(s, it, now)
		return
	}
	it.priority = q.details.At(s).priority
	switch {
	case it.state&timed != 0:
		it.state = waiting | it.state&(backoff|dated)
	case it.state&parked != 0:
		q.wishes--
		q.becomeReadyLocked(s, it)
	default:
		q.wishes--
		q.pushLocked(s, it, now)
	}
}
