package worker

import (
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
	// Since is when the first of these calls ended, or the first since the pool remembers the key's errors: see Failing of [Snapshot].
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

// failures counts how often each failing key has failed, and remembers the errors of the keys that failed or were given up last.
type failures[T comparable] struct {
	// numFailing counts the failing keys, and numKnown all in mu.keys. Both are written under mu and read without it, so that a key costs
	// next to nothing while none fails.
	numFailing, numKnown atomic.Int64
	// unlisted counts the keys that were given up and pushed out of mu.givenUp by later ones.
	unlisted atomic.Uint64

	mu struct {
		sync.Mutex
		keys             keytable.Table[T, failureCount] // all failing keys, and those in givenUp
		failing, givenUp recent[T, FailedKey[T]]         // the last errors, of keepErrors and Options.KeepGivenUp keys
		calls            recent[T, []FailedCall]         // the first call and the last ones, of keys in failing and givenUp
	}
}

// failureCount is what is known of a key: it fails if calls > 0, and was given up if calls == 0. It has no fifth field: the compiler would
// not keep it in registers, which costs each key 15 ns.
type failureCount struct {
	calls         int   // how many have failed in a row
	unasked       int   // those of calls that a RetryAfter delayed, so that the limiter has not counted them
	limiterCounts bool  // the limiter counts the others: if it counts zero later, somebody else has called Forget
	due           int64 // when the delay of the last failure ends, in nanoseconds since 1970, or 0 if that is not known
}

// unlock unlocks mu, and first updates the numbers that are read without it.
func (f *failures[T]) unlock() {
	f.numKnown.Store(int64(f.mu.keys.Len()))
	f.numFailing.Store(int64(f.mu.keys.Len() - f.mu.givenUp.order.Len()))
	f.mu.Unlock()
}

// counts returns how many keys fail, and how many are in givenUp, at one moment.
func (f *failures[T]) counts() (failing, givenUp int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	givenUp = f.mu.givenUp.order.Len()
	return f.mu.keys.Len() - givenUp, givenUp
}

// countOf returns how many calls of key have failed in a row.
func (f *failures[T]) countOf(key T) failureCount {
	if f.numFailing.Load() == 0 {
		return failureCount{}
	}
	hash := keytable.HashOf(key)
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, entry := f.mu.keys.Find(hash, key); entry != nil {
		return entry.Value
	}
	return failureCount{}
}

// add records a failed call of key, with its new count c. It reports whether the call's number was reached before: it comes again within
// the delay of a failure, and when the limiter counts fewer.
func (f *failures[T]) add(key T, call FailedCall, c failureCount) (again bool) {
	hash := keytable.HashOf(key)
	f.mu.Lock()
	defer f.unlock()
	_, entry, _ := f.mu.keys.FindOrInsert(hash, key)
	again = call.Attempt <= entry.Value.calls
	f.rememberLocked(key, call, &f.mu.failing)
	entry.Value = c
	return again
}

// giveUp records the last failed call of key. If somebody adds the key again, it begins anew.
func (f *failures[T]) giveUp(key T, call FailedCall) {
	hash := keytable.HashOf(key)
	f.mu.Lock()
	defer f.unlock()
	s, entry, _ := f.mu.keys.FindOrInsert(hash, key)
	if f.mu.givenUp.max <= 0 {
		f.forgetLocked(s)
		return
	}
	entry.Value = failureCount{}
	for _, oldest := range f.rememberLocked(key, call, &f.mu.givenUp) {
		s, _ := f.mu.keys.Find(keytable.HashOf(oldest), oldest)
		f.mu.keys.Delete(s) // From here on entry must not be used.
		f.unlisted.Add(1)
	}
}

// rememberLocked puts key into to, which is failing or givenUp, with one more call. It returns the keys pushed out of to.
func (f *failures[T]) rememberLocked(key T, call FailedCall, to *recent[T, FailedKey[T]]) (gone []T) {
	ended := call.Started.Add(call.Duration)
	now := FailedKey[T]{Key: key, Attempt: call.Attempt, Since: ended, Err: call.Err, Time: ended}
	since, calls := f.takeLocked(key)
	if !since.IsZero() {
		now.Since = since
	}
	gone = to.put(key, now, 1)
	for _, oldest := range gone {
		f.mu.calls.take(oldest)
	}
	calls, size := withCall(calls, call)
	f.mu.calls.put(key, calls, size)
	return gone
}

// takeLocked takes key out of its list. If that is failing, it returns since when the key fails, and its calls.
func (f *failures[T]) takeLocked(key T) (since time.Time, calls []FailedCall) {
	calls, _ = f.mu.calls.take(key)
	if before, fails := f.mu.failing.take(key); fails {
		return before.Since, calls
	}
	f.mu.givenUp.take(key) // If it is in neither list, it is new, or too many others have failed since.
	return time.Time{}, nil
}

// withCall returns a copy of calls with one more, and about the memory that they take. If these are too many, the second one is dropped.
func withCall(calls []FailedCall, call FailedCall) (all []FailedCall, bytes int) {
	if last := len(calls) - 1; last > 0 && calls[last].Attempt == call.Attempt { // The same failure.
		calls = calls[:last]
	}
	all = append(slices.Clone(calls), call)
	if len(all) > keepCalls {
		all = slices.Delete(all, 1, 2)
	}
	for _, c := range all {
		bytes += 116 + len(c.Causes) + len(c.Err) + len(c.Stack)
	}
	return all, bytes
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

// forget forgets that key has failed or was given up.
func (f *failures[T]) forget(key T) { f.forgetIf(key, func(failureCount) bool { return true }) }

// forgetIf forgets key if condition is true of its count, and reports whether it did.
func (f *failures[T]) forgetIf(key T, condition func(failureCount) bool) bool {
	hash := keytable.HashOf(key)
	f.mu.Lock()
	defer f.unlock()
	s, entry := f.mu.keys.Find(hash, key)
	if entry == nil || !condition(entry.Value) {
		return false
	}
	f.forgetLocked(s)
	return true
}

// forgetLocked forgets the key at s.
func (f *failures[T]) forgetLocked(s keytable.Slot) {
	key := f.mu.keys.At(s).Key
	f.mu.keys.Delete(s)
	f.takeLocked(key)
}

// newest returns up to limit of the keys in r, the one that failed last at the front.
func (f *failures[T]) newest(r *recent[T, FailedKey[T]], limit int) []FailedKey[T] {
	f.mu.Lock()
	defer f.mu.Unlock()
	return r.first(limit)
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
	if failed, ok := f.mu.givenUp.get(key); ok {
		k.GivenUp = &failed
	} else if failed, ok := f.mu.failing.get(key); ok {
		k.Failing = &failed
	} else { // Too many other keys have failed since.
		k.Failing = &FailedKey[T]{Key: key, Attempt: entry.Value.calls}
	}
	calls, _ := f.mu.calls.get(key)
	k.FailedCalls = slices.Clone(calls)
	return k
}

// allFailing yields the failing keys, without a lock. It copies a few hundred at a time.
func (f *failures[T]) allFailing() iter.Seq[T] {
	return keytable.InSteps(&f.mu.keys, f.mu.Lock, f.mu.Unlock, func(keys []T, s keytable.Slot) []T {
		if entry := f.mu.keys.At(s); entry.Value.calls > 0 {
			keys = append(keys, entry.Key)
		}
		return keys
	})
}
