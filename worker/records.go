package worker

import (
	"iter"
	"sync/atomic"
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
)

// record is what a tracker knows of a key that is not at rest: its call has failed, was interrupted, or was
// no answer to the change that brought the key. A key that is at rest and has never failed has none.
//
// A record ends with the call that answers the key (nil, or asking for it again), when the key is forgotten,
// and when others have dealt with it: see isOver. That of a key that was given up stays until the next call,
// as long as there is room.
//
// How often a key has failed is not here: the queue counts that.
type record[T comparable] struct {
	trouble       trouble
	interruptions uint32 // calls in a row that were interrupted, or whose hold was released at once
	// when the change began that no call has answered, zero if there is none or that is unknown
	since  time.Time
	errors *errorsOf // of a key that fails or was given up; nil if they had to go
	hold   *held[T]  // nil unless the key is on hold, or its Done has not returned
}

// trouble is what is wrong with a key.
type trouble uint8

const (
	noTrouble trouble = iota
	failing           // The last call has failed, and the key is to come again.
	givenUp           // It does not.
)

// records has the records of all keys. The tracker's mu guards it.
type records[T comparable] struct {
	table    keytable.Table[T, record[T]]
	notEmpty atomic.Bool // whether table has a record; read without mu

	// inTrouble has for each trouble the keys whose errors are there, the last failure last.
	inTrouble [givenUp + 1]keytable.List
	links     keytable.Lists // of these lists
	bytes     int            // the size of all errors

	holds holds // what all keys on hold have in common

	numFailing int    // keys that fail, whether or not their errors are there
	numLooping int    // keys that were interrupted more than maxInterruptions times in a row
	maxGivenUp int    // Options.KeepGivenUp
	unlisted   uint64 // given-up keys whose records had to go
}

// The memory of errors is bounded by maxErrors failing keys, and by maxBytes for these and the given-up keys
// together. The errors of failing keys go first, those that failed longest ago before the others, and then
// given-up keys as a whole.
const (
	maxErrors = 10_000
	maxBytes  = 16 << 20
)

// find returns the record of key, or nil.
func (rs *records[T]) find(key T) (keytable.Slot, *record[T]) {
	if rs.table.Len() == 0 { // Nothing fails: spare the hash.
		return keytable.None, nil
	}
	s, e := rs.table.Find(keytable.HashOf(key), key)
	if e == nil {
		return keytable.None, nil
	}
	return s, &e.Value
}

func (rs *records[T]) findOrInsert(key T) (keytable.Slot, *record[T]) {
	s, e, _ := rs.table.FindOrInsert(keytable.HashOf(key), key)
	rs.notEmpty.Store(true)
	return s, &e.Value
}

// eachRecord yields what read returns for each record, unless that is false. read runs under mu, and nothing
// is locked while values are yielded. A few hundred are copied at a time.
func eachRecord[T comparable, E any](t *Tracker[T], read func(key T, rec *record[T]) (E, bool)) iter.Seq[E] {
	table := &t.mu.records.table
	return keytable.InSteps(table, t.mu.Lock, t.mu.Unlock, func(all []E, s keytable.Slot) []E {
		e := table.At(s)
		if value, ok := read(e.Key, &e.Value); ok {
			all = append(all, value)
		}
		return all
	})
}

// recordOutcome writes down how the call has ended.
func (t *Tracker[T]) recordOutcome(c *Tracked[T]) {
	r, rs := &c.result, &t.mu.records
	if r.Next.answers() && !rs.notEmpty.Load() {
		return
	}
	var call FailedCall
	if r.Next == NextRetry || r.Next == NextGiveUp {
		call = c.failedCall() // Not under mu: foreign code.
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case r.Next.answers():
		rs.end(r.Key)
	case r.Next == NextRetry:
		rs.noteFailure(r.Key, failing, call, c.since)
	case r.Next == NextGiveUp:
		rs.noteFailure(r.Key, givenUp, call, c.since)
	default:
		rs.noteNoAnswer(r.Key, c.since, r.Next == NextInterrupted)
	}
}

// noteFailure notes a call of key that has failed. Now the key fails, or was given up.
func (rs *records[T]) noteFailure(key T, to trouble, call FailedCall, since time.Time) {
	s, rec := rs.findOrInsert(key)
	rs.clearInterruptions(rec)
	if to == givenUp {
		rec.since = time.Time{}
	} else {
		rec.setSince(since)
	}
	var before *errorsOf
	if rec.trouble == failing {
		before = rec.errors
	}
	rs.clearTrouble(s, rec)
	rec.trouble, rec.errors = to, before.plus(call)
	rs.bytes += rec.errors.size
	rs.links.Append(&rs.inTrouble[to], s)
	if to == failing {
		rs.numFailing++
	}
	rs.makeRoom()
}

// clearTrouble makes the key at s one that does not fail and was not given up.
func (rs *records[T]) clearTrouble(s keytable.Slot, rec *record[T]) {
	rs.dropErrors(s, rec)
	if rec.trouble == failing {
		rs.numFailing--
	}
	rec.trouble = noTrouble
}

func (rs *records[T]) dropErrors(s keytable.Slot, rec *record[T]) {
	if rec.errors == nil {
		return
	}
	rs.bytes -= rec.errors.size
	rec.errors = nil
	rs.links.Remove(&rs.inTrouble[rec.trouble], s)
}

// makeRoom drops errors until the bounds hold.
func (rs *records[T]) makeRoom() {
	fail, gaveUp := &rs.inTrouble[failing], &rs.inTrouble[givenUp]
	for fail.Len() > maxErrors || rs.bytes > maxBytes && fail.Len() > 0 {
		s := fail.First()
		rs.dropErrors(s, &rs.table.At(s).Value)
	}
	for gaveUp.Len() > max(0, rs.maxGivenUp) || rs.bytes > maxBytes {
		s := gaveUp.First()
		rs.clearTrouble(s, &rs.table.At(s).Value)
		rs.endIfAtRest(s)
		if rs.maxGivenUp > 0 {
			rs.unlisted++
		}
	}
}

// noteNoAnswer notes a call that was neither a failure nor an answer, and when the change began that brought
// the key.
func (rs *records[T]) noteNoAnswer(key T, since time.Time, interrupted bool) {
	s, rec := rs.find(key)
	if rec == nil {
		if since.IsZero() && !interrupted {
			return
		}
		s, rec = rs.findOrInsert(key)
	}
	if rec.trouble == givenUp {
		rs.clearTrouble(s, rec)
	}
	rec.setSince(since)
	if interrupted {
		rs.countInterruption(rec)
	}
	rs.endIfAtRest(s)
}

// setSince notes when the change of the key began, unless that is known.
func (rec *record[T]) setSince(since time.Time) {
	if rec.since.IsZero() {
		rec.since = since
	}
}

func (rs *records[T]) countInterruption(rec *record[T]) (inARow int) {
	if rec.interruptions++; rec.interruptions == maxInterruptions+1 {
		rs.numLooping++
	}
	return int(rec.interruptions)
}

func (rs *records[T]) clearInterruptions(rec *record[T]) {
	if rec.interruptions > maxInterruptions {
		rs.numLooping--
	}
	rec.interruptions = 0
}

// end ends the record of key, if there is one, but for a hold.
func (rs *records[T]) end(key T) {
	s, rec := rs.find(key)
	if rec == nil {
		return
	}
	rs.clearTrouble(s, rec)
	rec.since = time.Time{}
	rs.clearInterruptions(rec)
	rs.endIfAtRest(s)
}

// endIfAtRest deletes the record at s if nothing is in it.
func (rs *records[T]) endIfAtRest(s keytable.Slot) {
	rec := &rs.table.At(s).Value
	if rec.trouble != noTrouble || !rec.since.IsZero() || rec.interruptions > 0 || rec.hold != nil {
		return
	}
	rs.table.Delete(s)
	rs.notEmpty.Store(rs.table.Len() > 0)
	if !rs.table.HasMemory(s) {
		rs.holds.limits.Release(s)
		rs.links.Release(s)
	}
}
