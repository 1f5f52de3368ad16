package worker

import (
	"cmp"
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/slotheap"
)

// This file has what a tracker knows of a key between calls: that it came at once again and again, which
// slows it down, and how long users have been waiting for it. (The queue knows how often a key has failed.)
//
// A change of a key begins when the key is added or comes due. Later adds belong to it until the key is
// handed out; an add during the call begins the key's next change. It ends with the first call that answers
// it: that returns nil or asks for the key again. After a failure or an interruption it continues, in the
// key's record. It ends unanswered, and is not counted, if the key is given up, forgotten, or removed from
// the queue.

// record is what is known of a key whose last call was no answer, or wanted the key at once. A key at rest
// has none. Others may deal with the key: another process handles it, or an operator removes it. So a record
// expires recordLife after the time when the key was due.
type record struct {
	atOnce      int       // calls in a row that wanted the key at once: see Call.AtOnce
	changeSince time.Time // when the change began that no call has answered; zero without one
	failing     bool      // the queue counted a failure of the key when the record was written
}

const recordLife = 10 * time.Minute

// records has the records of all keys. The tracker's mu guards it.
type records[T comparable] struct {
	table  keytable.Table[T, record]
	expiry slotheap.Heap // when each record expires, in Unix milliseconds
}

// readRecordLocked gives a call that begins what is known of its key.
func (c *Tracked[T]) readRecordLocked() {
	rs, key := &c.tracker.mu.records, c.result.Key
	rec := rs.find(key)
	if rec.failing && c.handOut.Failures.Count == 0 {
		rec.changeSince = time.Time{} // Others have dealt with it.
	}
	c.atOnce = max(c.atOnce, rec.atOnce)
	if !c.changeSince.IsZero() {
		c.changeSince = cmp.Or(rec.changeSince, c.changeSince) // The change before has no answer yet.
	}
}

// recordOutcome writes the outcome of the call into the record of its key, and slows down a key that comes at
// once again and again.
func (t *Tracker[T]) recordOutcome(c *Tracked[T]) {
	r := &c.result
	if r.Next == NextLost {
		return
	}
	gaveUp := c.newGivenUp() // Not under mu: foreign code.
	now := t.options.Clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.mu.givenUp.keys, r.Key)
	var rec record
	if r.Next == NextInterrupted || r.Next == NextRequeue && r.After <= 0 {
		rec.atOnce = c.atOnce + 1
		r.AtOnce = rec.atOnce
		c.slowDownLocked()
	}
	switch {
	case r.Next == NextGiveUp:
		t.mu.givenUp.add(gaveUp)
	case !r.Next.endsChange():
		rec.changeSince = c.changeSince
		rec.failing = r.Next == NextRetry || c.handOut.Failures.Count > 0
	}
	untilDue := max(c.retry.Delay, r.After, c.slowDown, 0)
	if c.hold != nil {
		untilDue = max(untilDue, c.hold.limit)
	}
	t.mu.records.write(r.Key, rec, now.Add(untilDue).Add(recordLife).UnixMilli())
}

// What comes at once again and again is slowed down: see Call.AtOnce.
const (
	// maxAtOnce is how many calls in a row may want their key at once.
	maxAtOnce = 5
	// After that it is slowed down by firstDelay, and then each time by twice as much, up to lastDelay.
	firstDelay = 5 * time.Millisecond
	lastDelay  = 10 * time.Second
	// shortestHold is how long a hold must last to end the row.
	shortestHold = time.Millisecond
)

// slowDownLocked sets After of a requeue, or slowDown of an interrupted key: that one is queued already, so
// only a hold can delay it, see holdBeforeDone. A key that the end of the pool has interrupted is handed back
// at once.
func (c *Tracked[T]) slowDownLocked() {
	r := &c.result
	if r.AtOnce <= maxAtOnce || c.base.Err() != nil {
		return
	}
	delay := min(firstDelay<<min(r.AtOnce-maxAtOnce-1, 20), lastDelay)
	if r.Next == NextRequeue {
		r.After = delay
	} else {
		c.slowDown = delay
	}
}

// find returns the record of key, which is zero without one.
func (rs *records[T]) find(key T) (rec record) {
	if _, e := rs.table.Lookup(key); e != nil {
		rec = e.Value
	}
	return rec
}

// write replaces the record of key by rec, which expires then. A rec with nothing in it deletes the record.
func (rs *records[T]) write(key T, rec record, expires int64) {
	if rec.atOnce == 0 && rec.changeSince.IsZero() {
		rs.delete(key)
		return
	}
	s, e, _ := rs.table.FindOrInsert(keytable.HashOf(key), key)
	e.Value = rec
	rs.expiry.Set(slotheap.Entry{Rank: expires, Slot: s})
}

// resetAtOnce forgets how often key came at once in a row.
func (rs *records[T]) resetAtOnce(key T) {
	if s, e := rs.table.Lookup(key); e != nil {
		rec := e.Value
		rec.atOnce = 0
		rs.write(key, rec, rs.expiry.At(s).Rank)
	}
}

func (rs *records[T]) delete(key T) {
	if s, e := rs.table.Lookup(key); e != nil {
		slotheap.Drop(&rs.expiry, &rs.table, s)
	}
}

// mostExpired bounds for how many records dropExpiredRecords keeps the lock. Later calls drop the others.
const mostExpired = 64

// dropExpiredRecords deletes records that have expired.
func (t *Tracker[T]) dropExpiredRecords() {
	now := t.options.Clock.Now().UnixMilli() // Not under mu: foreign code.
	t.mu.Lock()
	defer t.mu.Unlock()
	rs := &t.mu.records
	for n := 0; n < mostExpired && rs.expiry.Len() > 0 && rs.expiry.First().Rank <= now; n++ {
		slotheap.Drop(&rs.expiry, &rs.table, rs.expiry.First().Slot)
	}
}

// readRecords returns how many keys are slowed down, and the age of the oldest change that no call has
// answered and that is not queued. Keys that a handler holds do not count; keys that are slowed down do.
func (t *Tracker[T]) readRecords(now time.Time) (looping int, oldest time.Duration) {
	note := func(since time.Time) {
		if !since.IsZero() {
			oldest = max(oldest, now.Sub(since))
		}
	}
	t.mu.Lock()
	for _, c := range t.mu.running {
		note(c.changeSince)
	}
	t.mu.Unlock()
	table := &t.mu.records.table
	add := func(all []time.Time, s keytable.Slot) []time.Time {
		e := table.At(s)
		if e.Value.atOnce > maxAtOnce {
			looping++
		}
		if h := t.holdOfLocked(e.Key); h == nil || !h.byHandler {
			all = append(all, e.Value.changeSince)
		}
		return all
	}
	for since := range keytable.InSteps(table, t.mu.Lock, t.mu.Unlock, add) {
		note(since)
	}
	return looping, oldest
}
