package worker

import (
	"container/list"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/keyedqueue/workqueue/internal/keytable"
)

// FailedKey is a key whose last call has failed.
type FailedKey[T comparable] struct {
	Key T `json:"key"`
	// Attempt is how many calls have failed in a row.
	Attempt int `json:"attempt"`
	// Since is when the first of these calls ended.
	Since time.Time `json:"since"`
	// Err is the text of the last error, at most 1 KiB of it.
	Err string `json:"error"`
	// Time is when the last call ended.
	Time time.Time `json:"time"`
	// NextTry is when the key comes due. It is zero if the key does not wait or the time is not known: see [Pool.Snapshot].
	NextTry time.Time `json:"next_try,omitzero"`
}

// FailedCall is one call that has failed.
type FailedCall struct {
	// Attempt is 1 for the first call in a row that has failed.
	Attempt int `json:"attempt"`
	// Started is when the call began, and Duration how long it took.
	Started  time.Time     `json:"started"`
	Duration time.Duration `json:"duration_ns"`
	// Causes are why the key came, at most 512 bytes of their text. A retry has none of its own.
	Causes string `json:"causes,omitempty"`
	// Err is the text of the error, at most 1 KiB of it.
	Err string `json:"error"`
	// Stack is that of a panic, at most 8 KiB of it, and otherwise empty.
	Stack string `json:"stack,omitempty"`
}

const (
	maxErrorText = 1 << 10
	maxStack     = 8 << 10
	maxCauseText = 512
	// keepErrors is the number of failing keys whose last errors are kept: those that have failed last.
	keepErrors = 10_000
	// keepCalls is how many calls are kept of a key: the first and the last ones. maxCallBytes bounds their memory, of all keys.
	keepCalls    = 5
	maxCallBytes = 16 << 20
)

// cut returns s, or the beginning of it if it is longer than size. It does not keep the rest in memory.
func cut(s string, size int) string {
	if len(s) <= size {
		return s
	}
	for !utf8.RuneStart(s[size]) {
		size--
	}
	return strings.Clone(s[:size])
}

// failedCall describes a call that has failed.
func (b *Books[T]) failedCall(e *Entry[T]) FailedCall {
	r := &e.result
	f := FailedCall{
		Attempt: r.Attempt, Started: r.Started, Duration: r.Duration,
		Causes: cut(b.causesOf(r.Key).String(), maxCauseText), Err: cut(fmt.Sprint(r.Err), maxErrorText),
	}
	if p, ok := r.Err.(*PanicError); ok {
		f.Stack = cut(string(p.Stack), maxStack)
	}
	return f
}

// bytes is about the memory that f takes.
func (f *FailedCall) bytes() int { return 116 + len(f.Causes) + len(f.Err) + len(f.Stack) }

// failures counts the failures of each failing key, and keeps records of the keys that failed or were given up last.
type failures[T comparable] struct {
	// failing is the number of failing keys, and known that of all in mu.keys. Both are written under mu and read without it, so that a
	// key costs next to nothing while none fails.
	failing, known atomic.Int64
	// unlisted counts the keys that were given up and pushed out of givenUp by later ones.
	unlisted atomic.Uint64

	mu struct {
		sync.Mutex
		// keys has the failing keys, and those in givenUp. A record is in failing or givenUp, and in withCalls while it has calls.
		keys             keytable.Table[T, failure[T]]
		failing, givenUp recent
		withCalls        list.List // of *record[T], the one that failed last at the front
		callBytes        int       // in all of withCalls
	}
}

// failure is what is known of a key.
type failure[T comparable] struct {
	failureCount
	record *record[T] // nil if too many other keys have failed since
	// highest is the highest attempt since the key began to fail. Later attempts may be lower, if the limiter counts fewer failures.
	highest int
}

// failureCount is kept for every failing key, and is zero for one that was given up. (With a fifth field the compiler would not keep it in
// registers, which costs each key 15 ns.)
type failureCount struct {
	calls         int   // how many have failed in a row
	unasked       int   // how many of them the queue's limiter was not asked about
	limiterCounts bool  // the limiter counts the others: if it counts zero later, somebody else has called Forget
	due           int64 // when the delay of the last failure ends, in nanoseconds since 1970, or 0 if that is not known
}

// recent are the records of the keys that have failed last, and either fail or were given up.
type recent struct {
	list.List // of *record[T], the one that failed last at the front
	max       int
}

// record is what is known of a key that has failed lately.
type record[T comparable] struct {
	FailedKey[T]
	calls []FailedCall // the first one and the last ones, at most keepCalls
	bytes int          // of calls
	slot  keytable.Slot
	// list has the record, at place. callsPlace is that in withCalls, nil if it is not there.
	list              *recent
	place, callsPlace *list.Element
}

// unlock unlocks mu, and first updates the numbers that are read without it.
func (f *failures[T]) unlock() {
	f.known.Store(int64(f.mu.keys.Len()))
	f.failing.Store(int64(f.mu.keys.Len() - f.mu.givenUp.Len()))
	f.mu.Unlock()
}

// countOf returns how many calls of key have failed in a row.
func (f *failures[T]) countOf(key T) failureCount {
	if f.failing.Load() == 0 {
		return failureCount{}
	}
	hash := keytable.HashOf(key)
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, entry := f.mu.keys.Find(hash, key); entry != nil {
		return entry.Value.failureCount
	}
	return failureCount{}
}

// add records a failed call of key, and its new count c: zero if the key is given up. It reports whether an attempt as high failed before.
func (f *failures[T]) add(key T, call FailedCall, c failureCount) (again bool) {
	hash := keytable.HashOf(key)
	f.mu.Lock()
	defer f.unlock()
	s, entry, _ := f.mu.keys.FindOrInsert(hash, key)
	again = call.Attempt <= entry.Value.highest
	entry.Value.failureCount, entry.Value.highest = c, max(entry.Value.highest, call.Attempt)
	if c.calls > 0 {
		f.recordLocked(&f.mu.failing, s, call)
		return again
	}
	entry.Value.highest = 0 // If somebody adds the key again, it begins anew.
	if f.mu.givenUp.max <= 0 {
		f.forgetLocked(s)
	} else if oldest := f.recordLocked(&f.mu.givenUp, s, call); oldest != nil {
		f.mu.keys.Delete(oldest.slot)
		f.unlisted.Add(1)
	}
	return again
}

// recordLocked puts a new record of the key at s, with one more call, at the front of to. It returns the one pushed out of to, or nil.
func (f *failures[T]) recordLocked(to *recent, s keytable.Slot, call FailedCall) (oldest *record[T]) {
	entry := f.mu.keys.At(s)
	ended := call.Started.Add(call.Duration)
	failed := FailedKey[T]{Key: entry.Key, Attempt: call.Attempt, Since: ended, Err: call.Err, Time: ended}
	var calls []FailedCall
	if old := entry.Value.record; old != nil {
		if old.list == &f.mu.failing { // Otherwise the key was given up and begins anew.
			calls, failed.Since = old.calls, old.Since
		}
		f.removeRecordLocked(old)
	}
	if to.Len() == to.max {
		oldest = to.Back().Value.(*record[T])
		f.removeRecordLocked(oldest)
	}
	r := &record[T]{FailedKey: failed, calls: withCall(calls, call), slot: s, list: to}
	r.place, r.callsPlace = to.PushFront(r), f.mu.withCalls.PushFront(r)
	entry.Value.record = r
	for i := range r.calls {
		r.bytes += r.calls[i].bytes()
	}
	f.mu.callBytes += r.bytes
	for f.mu.callBytes > maxCallBytes {
		f.removeCallsLocked(f.mu.withCalls.Back().Value.(*record[T]))
	}
	return oldest
}

// withCall returns a copy of calls with one more. If these are too many, the second one is dropped.
func withCall(calls []FailedCall, call FailedCall) []FailedCall {
	if last := len(calls) - 1; last > 0 && calls[last].Attempt == call.Attempt { // The same failure.
		calls = calls[:last]
	}
	calls = append(slices.Clone(calls), call)
	if len(calls) > keepCalls {
		calls = slices.Delete(calls, 1, 2)
	}
	return calls
}

func (f *failures[T]) removeRecordLocked(r *record[T]) {
	f.removeCallsLocked(r)
	r.list.Remove(r.place)
	f.mu.keys.At(r.slot).Value.record = nil
}

func (f *failures[T]) removeCallsLocked(r *record[T]) {
	if r.callsPlace == nil {
		return
	}
	f.mu.callBytes -= r.bytes
	f.mu.withCalls.Remove(r.callsPlace)
	r.calls, r.callsPlace = nil, nil
}

// noteRetry records what the queue's limiter has answered for key.
func (f *failures[T]) noteRetry(key T, limiterCounts bool, due int64, unasked int) {
	hash := keytable.HashOf(key)
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, entry := f.mu.keys.Find(hash, key); entry != nil {
		entry.Value.limiterCounts, entry.Value.due, entry.Value.unasked = limiterCounts, due, unasked
	}
}

// forgetIf removes key if condition is true of its count.
func (f *failures[T]) forgetIf(key T, condition func(failureCount) bool) {
	hash := keytable.HashOf(key)
	f.mu.Lock()
	defer f.unlock()
	s, entry := f.mu.keys.Find(hash, key)
	if entry != nil && condition(entry.Value.failureCount) {
		f.forgetLocked(s)
	}
}

// forgetLocked removes the key at s.
func (f *failures[T]) forgetLocked(s keytable.Slot) {
	if r := f.mu.keys.At(s).Value.record; r != nil {
		f.removeRecordLocked(r)
	}
	f.mu.keys.Delete(s)
}

// newest returns up to limit of the keys in r, the one that failed last at the front.
func (f *failures[T]) newest(r *recent, limit int) []FailedKey[T] {
	f.mu.Lock()
	defer f.mu.Unlock()
	keys := []FailedKey[T]{}
	for e := r.Front(); e != nil && len(keys) < limit; e = e.Next() {
		keys = append(keys, e.Value.(*record[T]).FailedKey)
	}
	return keys
}

// read returns what is known of key.
func (f *failures[T]) read(key T) KeySnapshot[T] {
	hash := keytable.HashOf(key)
	f.mu.Lock()
	defer f.mu.Unlock()
	k := KeySnapshot[T]{Key: key}
	_, entry := f.mu.keys.Find(hash, key)
	if entry == nil {
		return k
	}
	failed := &FailedKey[T]{Key: key, Attempt: entry.Value.calls}
	if r := entry.Value.record; r != nil {
		*failed = r.FailedKey
		k.FailedCalls = slices.Clone(r.calls)
	}
	if entry.Value.calls > 0 {
		k.Failing = failed
	} else {
		k.GivenUp = failed
	}
	return k
}

// all yields the failing keys, without a lock. It copies a few hundred at a time.
func (f *failures[T]) all() iter.Seq[T] {
	return keytable.InSteps(&f.mu.keys, f.mu.Lock, f.mu.Unlock, func(keys []T, s keytable.Slot) []T {
		if entry := f.mu.keys.At(s); entry.Value.calls > 0 {
			keys = append(keys, entry.Key)
		}
		return keys
	})
}
