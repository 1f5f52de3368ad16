package worker

import (
	"context"
	"time"
)

// Others may deal with a key that has a record here: another process handles it, an operator removes it. The
// queue knows, and is asked when a record is read, and about all of them once a minute while there are calls
// or somebody reads Stats.

const (
	sweepEvery = time.Minute
	// sweepFor bounds a sweep: if a server is in trouble, very many keys fail, and it must not be asked all
	// the time.
	sweepFor = time.Second
)

// isOver reports whether others have dealt with key. A failing key is over if the queue counts no failure of
// it, any other key if it is not in the queue. (A queue that only ExtendRateLimiting has made Extended does
// not know all its keys.)
func (t *Tracker[T]) isOver(key T, rec record[T]) bool {
	if rec.trouble == failing {
		n, _ := t.queue.Failures(key)
		return n == 0
	}
	// A shutdown drops keys; Left must have them.
	if rec.trouble == givenUp || rec.hold != nil || t.queue.ShuttingDown() {
		return false
	}
	_, found := t.queue.SnapshotKey(key)
	return !found && t.isExtended
}

// sweepKey ends the record of key if others have dealt with the key, and reports whether it did. It does not
// while a call for key is running, which will write the record.
func (t *Tracker[T]) sweepKey(key T) bool {
	t.mu.Lock()
	before := t.idleRecordLocked(key)
	t.mu.Unlock()
	if before == (record[T]{}) || !t.isOver(key, before) {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.idleRecordLocked(key) != before {
		return false // Something has happened to the key meanwhile.
	}
	t.mu.records.end(key)
	return true
}

// idleRecordLocked returns the record of key, or the zero one if there is none or a call for key is running.
func (t *Tracker[T]) idleRecordLocked(key T) (idle record[T]) {
	if _, rec := t.mu.records.find(key); rec != nil && t.findRunningLocked(key) == nil {
		idle = *rec
	}
	return idle
}

// sweepIfDue starts a sweep if the last one began sweepEvery ago. It is for a tracker without a pool: a
// pool's Run starts sweeps.
func (t *Tracker[T]) sweepIfDue() {
	if !t.mu.records.notEmpty.Load() {
		return
	}
	now, last := t.options.Clock.Now().UnixNano(), t.lastSweep.Load()
	if now-last >= int64(sweepEvery) && t.lastSweep.CompareAndSwap(last, now) {
		t.startSweep(context.Background())
	}
}

// startSweep sweeps on a goroutine, because the queue may be slow to answer. It begins where the last sweep
// has stopped. It does nothing while a sweep goes on, or once the queue is shut down.
func (t *Tracker[T]) startSweep(ctx context.Context) {
	if t.queue.ShuttingDown() || !t.sweeping.CompareAndSwap(false, true) {
		return
	}
	t.sweeps.Go(func() {
		defer t.sweeping.Store(false)
		ctx, cancel := context.WithTimeout(ctx, sweepFor)
		defer cancel()
		t.catchPanic(func() { t.sweepFrom = t.sweep(ctx, t.sweepFrom) })
	})
}

// sweep calls sweepKey for all keys until ctx ends. It skips the first from keys, and returns the from with
// which the next sweep goes on.
func (t *Tracker[T]) sweep(ctx context.Context, from int) (next int) {
	for key := range eachRecord(t, func(key T, _ *record[T]) (T, bool) { return key, true }) {
		switch {
		case next < from:
			next++
		case ctx.Err() != nil:
			return next
		case !t.sweepKey(key): // Otherwise the next key has its place.
			next++
		}
	}
	return 0
}
