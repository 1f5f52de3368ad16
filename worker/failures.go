package worker

import (
	"container/list"
	"context"
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
	// Err is the text of the last error, at most 1 KiB of it.
	Err string `json:"error"`
	// Time is when the last call ended.
	Time time.Time `json:"time"`
	// NextTry is when the key comes due. It is zero if the key was dropped, is queued or being handled, and if
	// the time is not known: see [Pool.Snapshot].
	NextTry time.Time `json:"next_try,omitzero"`
}

const (
	maxErrorText = 1 << 10
	maxStack     = 8 << 10
	maxCauseText = 512
	// keepErrors is the number of failing keys whose last errors are kept: those that have failed last.
	keepErrors = 10_000
	// keepCalls is the number of calls that are kept of a key, and maxCallBytes bounds the memory of those of all keys.
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
func (p *Pool[T]) failedCall(c *call[T]) FailedCall {
	f := FailedCall{
		Attempt: c.Attempt, Started: c.Started, Duration: c.Duration, Causes: cut(p.causesOf(c.Key).String(), maxCauseText),
		Err: cut(fmt.Sprint(c.Err), maxErrorText), // Not c.Err.Error(), which panics for a nil pointer of an error type.
	}
	if c.panic != nil {
		f.Stack = cut(string(c.panic.Stack), maxStack)
	}
	return f
}

// bytes is about the memory that f takes.
func (f *FailedCall) bytes() int { return 116 + len(f.Causes) + len(f.Err) + len(f.Stack) }

// failures counts, for each key, how many calls in a row have failed, and has records of those that have failed last: of
// keys that are to come again, and of keys that were dropped. Another key takes no memory.
type failures[T comparable] struct {
	// n is the number of keys in counts, recorded that in records. They are written under mu and read without, so that a
	// key costs next to nothing while none fails.
	n, recorded atomic.Int64

	mu sync.Mutex // guards what follows
	// counts has every key whose last call has failed and that is to come again.
	counts keytable.Table[T, failureCount]
	// Each record is in failing or in dropped, and in withCalls while its calls are kept.
	records          map[T]*record[T]
	failing, dropped recent[T]
	withCalls        list.List // of *record[T], the one that failed last at the front
	callBytes        int       // in all of withCalls
}

// recent are the records of the keys that have failed last, and either fail or were dropped.
type recent[T comparable] struct {
	max  int
	list list.List // of *record[T], the one that failed last at the front
}

// record is what is known of a key that has failed.
type record[T comparable] struct {
	FailedKey[T]
	calls []FailedCall // the last ones, at most keepCalls
	// in is the list that has the record, at place. callsPlace is that in withCalls, nil if it is not there.
	in                *recent[T]
	place, callsPlace *list.Element
}

// failureCount is what is known of every failing key.
type failureCount struct {
	calls int // how many have failed in a row
	// limited reports that the queue's limiter counts the key's failures. If its count is zero later, somebody else
	// has called Forget.
	limited bool
}

// of returns how many calls of key have failed in a row.
func (f *failures[T]) of(key T) failureCount {
	if f.n.Load() == 0 {
		return failureCount{}
	}
	h := keytable.HashOf(key)
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, e := f.counts.Find(h, key); e != nil {
		return e.Value
	}
	return failureCount{}
}

// set replaces key's count.
func (f *failures[T]) set(key T, c failureCount) {
	h := keytable.HashOf(key)
	f.mu.Lock()
	defer f.mu.Unlock()
	_, e, _ := f.counts.FindOrInsert(h, key)
	e.Value = c
	f.n.Store(int64(f.counts.Len()))
}

// fail records a call for key, which is to come again.
func (f *failures[T]) fail(key T, call FailedCall) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.putLocked(&f.failing, key, call)
}

// drop records the last call for key.
func (f *failures[T]) drop(key T, call FailedCall) {
	h := keytable.HashOf(key)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.putLocked(&f.dropped, key, call)
	f.removeCountLocked(h, key)
}

// putLocked makes the record of key, whose last call has failed, the first one in to.
func (f *failures[T]) putLocked(to *recent[T], key T, call FailedCall) {
	var calls []FailedCall
	if r := f.records[key]; r != nil {
		if r.in == &f.failing { // If it was dropped before, somebody has added it again, and it begins anew.
			calls = r.calls
		}
		f.removeLocked(r)
	}
	if to.max <= 0 {
		return
	}
	if to.list.Len() == to.max {
		f.removeLocked(to.list.Back().Value.(*record[T]))
	}
	r := &record[T]{FailedKey: FailedKey[T]{Key: key, Attempt: call.Attempt, Err: call.Err, Time: call.Started.Add(call.Duration)}, in: to}
	r.calls = append(slices.Clone(calls[max(0, len(calls)-keepCalls+1):]), call)
	r.place, r.callsPlace = to.list.PushFront(r), f.withCalls.PushFront(r)
	for i := range r.calls {
		f.callBytes += r.calls[i].bytes()
	}
	for f.callBytes > maxCallBytes {
		f.removeCallsLocked(f.withCalls.Back().Value.(*record[T]))
	}
	if f.records == nil {
		f.records = make(map[T]*record[T])
	}
	f.records[key] = r
	f.recorded.Store(int64(len(f.records)))
}

func (f *failures[T]) removeLocked(r *record[T]) {
	f.removeCallsLocked(r)
	r.in.list.Remove(r.place)
	delete(f.records, r.Key)
	if len(f.records) == 0 {
		f.records = nil // A map does not shrink.
	}
	f.recorded.Store(int64(len(f.records)))
}

func (f *failures[T]) removeCallsLocked(r *record[T]) {
	if r.callsPlace == nil {
		return
	}
	for i := range r.calls {
		f.callBytes -= r.calls[i].bytes()
	}
	f.withCalls.Remove(r.callsPlace)
	r.calls, r.callsPlace = nil, nil
}

// forget removes key.
func (f *failures[T]) forget(key T) {
	if f.n.Load() == 0 && f.recorded.Load() == 0 {
		return
	}
	h := keytable.HashOf(key)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgetLocked(h, key)
}

// forgetIf removes key unless its count has changed since it was c.
func (f *failures[T]) forgetIf(key T, c failureCount) {
	h := keytable.HashOf(key)
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, e := f.counts.Find(h, key); e != nil && e.Value == c {
		f.forgetLocked(h, key)
	}
}

func (f *failures[T]) forgetLocked(h keytable.Hash, key T) {
	f.removeCountLocked(h, key)
	if r := f.records[key]; r != nil {
		f.removeLocked(r)
	}
}

func (f *failures[T]) removeCountLocked(h keytable.Hash, key T) {
	if s, e := f.counts.Find(h, key); e != nil {
		f.counts.Delete(s)
		f.n.Store(int64(f.counts.Len()))
	}
}

// newest returns up to limit of the keys in r, the one that failed last at the front, and how many there are.
func (f *failures[T]) newest(r *recent[T], limit int) (keys []FailedKey[T], all int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	keys = []FailedKey[T]{}
	for e := r.list.Front(); e != nil && len(keys) < limit; e = e.Next() {
		keys = append(keys, e.Value.(*record[T]).FailedKey)
	}
	return keys, r.list.Len()
}

// read returns what is known of key.
func (f *failures[T]) read(key T) KeySnapshot[T] {
	h := keytable.HashOf(key)
	f.mu.Lock()
	defer f.mu.Unlock()
	s := KeySnapshot[T]{Key: key}
	if _, e := f.counts.Find(h, key); e != nil { // It may have no record any more.
		s.Failing = &FailedKey[T]{Key: key, Attempt: e.Value.calls}
	}
	if r := f.records[key]; r != nil {
		k := r.FailedKey
		if r.in == &f.dropped {
			s.Dropped = &k
		} else {
			s.Failing = &k
		}
		s.FailedCalls = slices.Clone(r.calls)
	}
	return s
}

// all yields the failing keys. It copies a few hundred at a time, and holds no lock while it yields them.
func (f *failures[T]) all() iter.Seq2[T, failureCount] {
	type failing struct {
		key   T
		count failureCount
	}
	slab := func(n int) (keys []failing, more bool) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for s := range f.counts.LiveSlots(n) {
			e := f.counts.At(s)
			keys = append(keys, failing{e.Key, e.Value})
		}
		return keys, n < f.counts.Slabs()
	}
	return func(yield func(T, failureCount) bool) {
		for n, more := 0, true; more; n++ {
			var keys []failing
			keys, more = slab(n)
			for _, k := range keys {
				if !yield(k.key, k.count) {
					return
				}
			}
		}
	}
}

// Forget makes the pool forget that key has failed or was dropped: for a program that removes a key from the queue, or
// handles it, by itself. (If the key was failing, the pool finds out within a minute; see [Pool.Snapshot].) It
// does not touch the queue.
func (p *Pool[T]) Forget(key T) { p.failures.forget(key) }

// sweepFailures forgets what is stale, until enough returns true: the queue may be slow to answer.
func (p *Pool[T]) sweepFailures(enough func() bool) {
	for key, c := range p.failures.all() {
		if enough() {
			return
		}
		if p.isStale(context.Background(), key, c) {
			p.failures.forgetIf(key, c)
		}
	}
}

// isStale reports whether a key that has failed so often was removed from the queue since, or forgotten by
// somebody else. A key counts as failing as long as the queue cannot answer. isStale waits for the answer until ctx ends.
func (p *Pool[T]) isStale(ctx context.Context, key T, c failureCount) bool {
	if c.limited && p.isForgotten(ctx, key) {
		return true
	}
	if c.calls == 0 || p.finder == nil || p.queue.ShuttingDown() { // A shutdown drops keys that are to be reported.
		return false
	}
	return !p.finder.Has(key)
}

// isForgotten reports whether the queue's limiter counts no failures of key.
func (p *Pool[T]) isForgotten(ctx context.Context, key T) bool {
	if p.requeues == nil {
		return p.queue.NumRequeues(key) == 0
	}
	n, err := p.requeues.NumRequeuesContext(ctx, key)
	return n == 0 && err == nil
}
