package worker

import (
	"cmp"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
)

// record is what a tracker knows of a key that is not at rest: its call has failed, was interrupted, was no
// answer to the change that brought the key, or has put it on hold. A key at rest has none.
//
// A record ends with the call that answers the key (nil, or asking for it again), when the key is forgotten,
// and when others have dealt with it: see isOver. That of a key that was given up stays until the next call,
// as long as there is room.
//
// How often a key has failed is not here: the queue counts that.
//
// A record shrinks by steps: dropCalls takes the failed calls from it, clearTrouble also the trouble, and
// noteAtRest all but a hold. deleteIfEmpty deletes it if nothing is left.
type record[T comparable] struct {
	trouble     trouble
	atOnce      uint32       // calls in a row that wanted the key at once: see Call.AtOnce
	changeSince time.Time    // when the change began that no call has answered; zero without one
	calls       *failedCalls // of a key in trouble; nil if makeRoom has dropped those of a failing key
}

// trouble is what is wrong with a key.
type trouble uint8

const (
	noTrouble trouble = iota // Its list in keysIn stays empty.
	failing                  // The last call has failed, and the key is to come again.
	givenUp                  // It has failed, and the key is not to come again.
)

// records has the records of all keys. The tracker's mu guards it.
type records[T comparable] struct {
	table    keytable.Table[T, record[T]]
	notEmpty atomic.Bool // whether table has a record; read without mu

	keysIn [givenUp + 1]keytable.List // by trouble: the keys that have calls, the last failure last
	links  keytable.Lists             // the neighbours of keys in these lists
	bytes  int                        // the size of all calls

	numFailing int    // keys that fail, whether or not their calls are kept
	numLooping int    // keys that came at once more than maxAtOnce times in a row
	maxGivenUp int    // Options.KeepGivenUp
	unlisted   uint64 // given-up keys whose records makeRoom has dropped
}

// The memory of calls is bounded: see FailedCalls of KeySnapshot.
const (
	maxKeysWithCalls = 10_000
	maxBytes         = 16 << 20
)

// recordOutcome writes the outcome of the call into the record of its key, and slows down a key that comes at
// once again and again.
func (t *Tracker[T]) recordOutcome(c *Tracked[T]) {
	r, rs := &c.result, &t.mu.records
	isAtOnce := r.Next == NextInterrupted || r.Next == NextRequeue && r.After <= 0
	if r.Next == NextLost || r.Next.answers() && !isAtOnce && !rs.notEmpty.Load() {
		return
	}
	var call FailedCall
	if r.Next.failed() {
		call = c.failedCall() // Not under mu: foreign code.
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !isAtOnce {
		rs.endRow(r.Key)
	}
	switch {
	case r.Next.answers():
		rs.noteAtRest(r.Key)
	case r.Next == NextRetry:
		rs.noteFailure(r.Key, failing, call, c.changeSince)
	case r.Next == NextGiveUp:
		rs.noteFailure(r.Key, givenUp, call, c.changeSince)
	default:
		rs.noteNoAnswer(r.Key, c.changeSince)
	}
	if isAtOnce {
		r.AtOnce = c.atOnce + 1
		rs.noteAtOnce(r.Key, uint32(r.AtOnce))
		c.slowDownLocked()
	}
}

// noteFailure notes a call of key that has failed. The trouble of the key becomes failing or givenUp.
func (rs *records[T]) noteFailure(key T, becomes trouble, call FailedCall, since time.Time) {
	s, rec := rs.findOrInsert(key)
	var inARow *failedCalls // The calls before a give-up do not count, and those that the queue has forgotten.
	if rec.trouble == failing && rec.calls.isFollowedBy(call) {
		inARow = rec.calls
	}
	rs.clearTrouble(s, rec)
	rec.trouble, rec.calls = becomes, withCall(inARow, call)
	rs.bytes += rec.calls.size
	rs.links.Append(&rs.keysIn[becomes], s)
	if becomes == failing {
		rs.numFailing++
		rec.changeSince = cmp.Or(rec.changeSince, since)
	} else {
		rec.changeSince = time.Time{} // The change ends unanswered.
	}
	rs.makeRoom()
}

// noteNoAnswer notes a call that was interrupted, and when the change began that brought the key.
func (rs *records[T]) noteNoAnswer(key T, since time.Time) {
	s, rec := rs.findOrInsert(key)
	if rec.trouble == givenUp { // It has come again. (A failing key stays one: no answer is no success.)
		rs.clearTrouble(s, rec)
	}
	rec.changeSince = cmp.Or(rec.changeSince, since)
}

// noteAtRest notes that no failure and no change of key is known any more.
func (rs *records[T]) noteAtRest(key T) {
	s, rec := rs.find(key)
	if rec == nil {
		return
	}
	rs.clearTrouble(s, rec)
	rec.changeSince = time.Time{}
	rs.deleteIfEmpty(s)
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

// slowDownLocked delays the add that the call asks for, or, because an interrupted key was added already, its
// Done. A key that the end of the pool has interrupted is handed back at once.
func (c *Tracked[T]) slowDownLocked() {
	r := &c.result
	if r.AtOnce <= maxAtOnce || c.base.Err() != nil {
		return
	}
	delay := min(firstDelay<<min(r.AtOnce-maxAtOnce-1, 20), lastDelay)
	switch {
	case r.Next == NextRequeue:
		r.After = delay
	case c.hold == nil:
		c.hold = &hold[T]{tracker: c.tracker, key: r.Key, limit: delay, slow: true, unreleased: 1,
			reason: fmt.Sprintf("it was interrupted %d times in a row, so it is slowed down", r.AtOnce)}
	}
}

// noteAtOnce notes how often key came at once in a row.
func (rs *records[T]) noteAtOnce(key T, inARow uint32) {
	_, rec := rs.findOrInsert(key)
	if inARow > maxAtOnce && rec.atOnce <= maxAtOnce {
		rs.numLooping++
	}
	rec.atOnce = inARow
}

// endRow forgets how often key came at once in a row.
func (rs *records[T]) endRow(key T) {
	s, rec := rs.find(key)
	if rec == nil || rec.atOnce == 0 {
		return
	}
	if rec.atOnce > maxAtOnce {
		rs.numLooping--
	}
	rec.atOnce = 0
	rs.deleteIfEmpty(s)
}

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

// clearTrouble makes the key at s one that does not fail and was not given up.
func (rs *records[T]) clearTrouble(s keytable.Slot, rec *record[T]) {
	rs.dropCalls(s, rec)
	if rec.trouble == failing {
		rs.numFailing--
	}
	rec.trouble = noTrouble
}

func (rs *records[T]) dropCalls(s keytable.Slot, rec *record[T]) {
	if rec.calls == nil {
		return
	}
	rs.bytes -= rec.calls.size
	rec.calls = nil
	rs.links.Remove(&rs.keysIn[rec.trouble], s)
}

// makeRoom drops calls until the bounds hold.
func (rs *records[T]) makeRoom() {
	failingKeys, givenUpKeys := &rs.keysIn[failing], &rs.keysIn[givenUp]
	for failingKeys.Len() > maxKeysWithCalls || rs.bytes > maxBytes && failingKeys.Len() > 0 {
		s := failingKeys.First()
		rs.dropCalls(s, &rs.table.At(s).Value)
	}
	for givenUpKeys.Len() > rs.maxGivenUp || rs.bytes > maxBytes {
		s := givenUpKeys.First()
		rs.clearTrouble(s, &rs.table.At(s).Value)
		rs.deleteIfEmpty(s)
		rs.unlisted++
	}
}

// deleteIfEmpty deletes the record at s if nothing is in it.
func (rs *records[T]) deleteIfEmpty(s keytable.Slot) {
	rec := &rs.table.At(s).Value
	if rec.trouble != noTrouble || !rec.changeSince.IsZero() || rec.atOnce > 0 {
		return
	}
	rs.table.Delete(s)
	rs.notEmpty.Store(rs.table.Len() > 0)
	if !rs.table.HasMemory(s) { // The lists have their memory by blocks of slots, as the table.
		rs.links.Release(s)
	}
}
