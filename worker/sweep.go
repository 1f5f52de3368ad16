package worker

import (
	"context"
	"time"

	"github.com/keyedqueue/workqueue/leasing"
)

// Others may deal with a key that has a record here: another process handles it, an operator removes it. The
// queue knows. It is asked when a record is read, and about all of them once a minute: by a sweep. (A tracker
// without a pool has no timer: Begin and Stats start a sweep that is due.)

const (
	sweepEvery = time.Minute
	// askFor bounds a sweep, Stats and Snapshot: a server in trouble must not be asked all the time.
	askFor = time.Second
)

// isOver reports whether others have dealt with key:
//
//	a failing key, also on hold           if the queue counts no failure of it
//	given up, or on hold and not failing  never
//	any other                             if it is not in the queue, which must know all its keys
//	the queue is shut down                never: it has dropped keys, and redisqueue's knows no failures then
//	its server does not answer            never: the queue has returned zero, which says nothing
func (t *Tracker[T]) isOver(key T, rec record[T]) (over bool) {
	begun := time.Now()
	switch {
	case rec.trouble == failing:
		over = t.queue.Failures(key).Count == 0
	case rec.trouble == noTrouble:
		_, found := t.queue.SnapshotKey(key)
		over = !found
	}
	if !over || time.Since(begun) >= askFor { // A queue that has waited for a second has got no answer.
		return false
	}
	stats := t.queue.Stats() // Last: the server may fail, or the queue be shut down, meanwhile.
	shared := leasing.StatsOf(stats)
	return !stats.ShuttingDown && (shared == nil || !shared.Outage)
}

// sweepKey ends the record of key if others have dealt with the key, and reports whether it did. It does not
// while a call for key is running, which will write the record.
func (t *Tracker[T]) sweepKey(key T) bool {
	before := t.idleRecord(key)
	if before == (record[T]{}) || !t.isOver(key, before) {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.idleRecordLocked(key) != before { // Something has happened to the key meanwhile.
		return false
	}
	t.mu.records.endRow(key)
	t.mu.records.noteAtRest(key)
	return true
}

// idleRecord returns the record of key. Without one, and while a call for key is running, it is zero.
func (t *Tracker[T]) idleRecord(key T) record[T] {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.idleRecordLocked(key)
}

func (t *Tracker[T]) idleRecordLocked(key T) (idle record[T]) {
	if _, rec := t.mu.records.find(key); rec != nil && t.findRunningLocked(key) == nil {
		idle = *rec
	}
	return idle
}

// sweepIfDue starts a sweep if the last one began sweepEvery ago. Only trackers without a pool need it.
func (t *Tracker[T]) sweepIfDue() {
	if !t.mu.records.notEmpty.Load() {
		return
	}
	now, last := int64(t.loop.Now()), t.lastSweep.Load()
	if now-last >= int64(sweepEvery) && t.lastSweep.CompareAndSwap(last, now) {
		t.startSweep(context.Background())
	}
}

// startSweep starts a goroutine that sweeps on from where the last sweep stopped. It does nothing while a
// sweep is running, or once the queue is shut down.
func (t *Tracker[T]) startSweep(ctx context.Context) {
	if t.queue.ShuttingDown() || !t.sweeping.CompareAndSwap(false, true) {
		return
	}
	t.sweeps.Go(func() {
		defer t.sweeping.Store(false)
		ctx, cancel := context.WithTimeout(ctx, askFor)
		defer cancel()
		t.sweepSkip = t.sweep(ctx, t.sweepSkip)
	})
}

// sweep calls sweepKey for all keys but the first skip ones, until ctx ends. It returns skip for the next
// sweep: how many keys it has passed whose records stay, or 0 after the last key.
func (t *Tracker[T]) sweep(ctx context.Context, skip int) (kept int) {
	for key := range eachRecord(t, func(key T, _ *record[T]) (T, bool) { return key, true }) {
		switch {
		case kept < skip:
			kept++
		case ctx.Err() != nil:
			return kept
		case !t.sweepKey(key):
			kept++
		}
	}
	return 0
}
