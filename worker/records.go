package worker

import (
	"sync/atomic"
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/slotheap"
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
	since   time.Time
	changed int64     // when the record was last written, in nanoseconds since 1970
	errors  *errorsOf // of a key that fails or was given up; nil if they had to go
	hold    *held[T]  // nil unless the key is on hold, or its Done has not returned
}

// trouble is what is wrong with a key.
type trouble uint8

const (
	noTrouble trouble = iota
	failing           // The last call has failed, and the key is to come again.
	givenUp           // It does not.
)

// records has the records of all keys. The tracker's mu guards it.
//
// Invariants: failingKeys and givenUpKeys have the keys in that trouble whose errors are there, the last
// failure last. unanswered has the keys with a since that no handler has put on hold, the oldest first. bytes
// is the sum of the sizes of all errors.
type records[T comparable] struct {
	table                    keytable.Table[T, record[T]]
	links                    keytable.Lists
	failingKeys, givenUpKeys keytable.List
	unanswered               slotheap.Heap
	limits                   slotheap.Heap // when the keys on hold come at the latest, on the loop's clock
	bytes                    int

	notEmpty               atomic.Bool // whether table has a record; read without mu
	numFailing, numLooping int         // keys that fail, and keys that were interrupted too often
	maxGivenUp             int         // Options.KeepGivenUp
	unlisted               uint64      // given-up keys whose records had to go
}

// The memory of errors is bounded by maxErrors failing keys, and by maxBytes for these and the given-up keys
// together. What has failed longest ago goes first: of a failing key only its errors, a given-up key as a
// whole. The rest of a record is as small as what the queue keeps of the key.
const (
	maxErrors = 10_000
	maxBytes  = 16 << 20
)

// find returns the record of key, or nil.
func (r *records[T]) find(key T) (keytable.Slot, *record[T]) {
	if r.table.Len() == 0 { // Nothing fails: spare the hash.
		return keytable.None, nil
	}
	s, e := r.table.Find(keytable.HashOf(key), key)
	if e == nil {
		return keytable.None, nil
	}
	return s, &e.Value
}

func (r *records[T]) findOrInsert(key T) (keytable.Slot, *record[T]) {
	s, e, _ := r.table.FindOrInsert(keytable.HashOf(key), key)
	r.notEmpty.Store(true)
	return s, &e.Value
}

// recordOutcome writes down how the call has ended.
func (t *Tracker[T]) recordOutcome(c *Tracked[T]) {
	r, all := &c.result, &t.mu.records
	if r.Next.answers() && !all.notEmpty.Load() {
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
		all.end(r.Key)
	case r.Next == NextRetry:
		all.noteFailure(r.Key, failing, call, c.since)
	case r.Next == NextGiveUp:
		all.noteFailure(r.Key, givenUp, call, c.since)
	default:
		all.noteNoAnswer(r.Key, c.since, r.Started.Add(r.Duration).UnixNano(), r.Next == NextInterrupted)
	}
}

// noteFailure notes a call of key that has failed. Now the key fails, or was given up.
func (r *records[T]) noteFailure(key T, to trouble, call FailedCall, since time.Time) {
	s, rec := r.findOrInsert(key)
	r.clearInterruptions(rec)
	if to == givenUp {
		r.clearSince(s, rec)
	} else {
		r.setSince(s, rec, since)
	}
	var before *errorsOf
	if rec.trouble == failing {
		before = rec.errors
	}
	r.clearTrouble(s, rec)
	rec.trouble, rec.errors = to, before.plus(call)
	rec.changed = rec.errors.time.UnixNano()
	r.bytes += rec.errors.size
	if to == failing {
		r.numFailing++
		r.links.Append(&r.failingKeys, s)
	} else {
		r.links.Append(&r.givenUpKeys, s)
	}
	r.makeRoom()
}

// clearTrouble makes the key at s one that does not fail and was not given up.
func (r *records[T]) clearTrouble(s keytable.Slot, rec *record[T]) {
	r.dropErrors(s, rec)
	if rec.trouble == failing {
		r.numFailing--
	}
	rec.trouble = noTrouble
}

func (r *records[T]) dropErrors(s keytable.Slot, rec *record[T]) {
	if rec.errors == nil {
		return
	}
	r.bytes -= rec.errors.size
	rec.errors = nil
	if rec.trouble == failing {
		r.links.Remove(&r.failingKeys, s)
	} else {
		r.links.Remove(&r.givenUpKeys, s)
	}
}

// makeRoom drops errors until the bounds hold.
func (r *records[T]) makeRoom() {
	for r.failingKeys.Len() > maxErrors || r.bytes > maxBytes && r.failingKeys.Len() > 0 {
		s := r.failingKeys.First()
		r.dropErrors(s, &r.table.At(s).Value)
	}
	for r.givenUpKeys.Len() > max(0, r.maxGivenUp) || r.bytes > maxBytes {
		s := r.givenUpKeys.First()
		r.clearTrouble(s, &r.table.At(s).Value)
		r.endIfAtRest(s)
		if r.maxGivenUp > 0 {
			r.unlisted++
		}
	}
}

// noteNoAnswer notes a call that was neither a failure nor an answer, and when the change began that brought
// the key.
func (r *records[T]) noteNoAnswer(key T, since time.Time, now int64, interrupted bool) {
	s, rec := r.find(key)
	if rec == nil {
		if since.IsZero() && !interrupted {
			return
		}
		s, rec = r.findOrInsert(key)
	}
	if rec.changed = now; rec.trouble == givenUp {
		r.clearTrouble(s, rec)
	}
	r.setSince(s, rec, since)
	if interrupted {
		r.countInterruption(rec)
	}
	r.endIfAtRest(s)
}

// setSince notes when the change of the key at s began, unless that is known.
func (r *records[T]) setSince(s keytable.Slot, rec *record[T], since time.Time) {
	if rec.since.IsZero() {
		rec.since = since
		r.syncUnanswered(s, rec)
	}
}

func (r *records[T]) clearSince(s keytable.Slot, rec *record[T]) {
	rec.since = time.Time{}
	r.syncUnanswered(s, rec)
}

// syncUnanswered must be called when since or hold of the key at s has changed. A key that a handler has put
// on hold waits for the world: its age is no trouble.
func (r *records[T]) syncUnanswered(s keytable.Slot, rec *record[T]) {
	held := rec.hold != nil && rec.hold.state == heldForReasons
	switch wanted := !rec.since.IsZero() && !held; {
	case wanted == r.unanswered.Has(s):
	case wanted:
		r.unanswered.Push(slotheap.Entry{Rank: rec.since.UnixNano(), Slot: s})
	default:
		r.unanswered.Remove(s)
	}
}

func (r *records[T]) countInterruption(rec *record[T]) (inARow int) {
	if rec.interruptions++; rec.interruptions == maxInterruptions+1 {
		r.numLooping++
	}
	return int(rec.interruptions)
}

func (r *records[T]) clearInterruptions(rec *record[T]) {
	if rec.interruptions > maxInterruptions {
		r.numLooping--
	}
	rec.interruptions = 0
}

// end ends the record of key, if there is one, but for a hold.
func (r *records[T]) end(key T) {
	s, rec := r.find(key)
	if rec == nil {
		return
	}
	r.clearTrouble(s, rec)
	r.clearSince(s, rec)
	r.clearInterruptions(rec)
	r.endIfAtRest(s)
}

// endIfAtRest deletes the record at s if nothing is in it.
func (r *records[T]) endIfAtRest(s keytable.Slot) {
	rec := &r.table.At(s).Value
	if rec.trouble != noTrouble || !rec.since.IsZero() || rec.interruptions > 0 || rec.hold != nil {
		return
	}
	r.table.Delete(s)
	r.notEmpty.Store(r.table.Len() > 0)
	if !r.table.HasMemory(s) {
		r.unanswered.Release(s)
		r.limits.Release(s)
		r.links.Release(s)
	}
}

// listed returns up to limit keys of a list with their errors, the last failure first.
func (r *records[T]) listed(list *keytable.List, limit int) []FailedKey[T] {
	keys := []FailedKey[T]{}
	for s := list.Last(); s != keytable.None && len(keys) < limit; s = r.links.Prev(s) {
		e := r.table.At(s)
		keys = append(keys, newFailedKey(e.Key, e.Value.errors))
	}
	return keys
}
