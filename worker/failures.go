package worker

import (
	"cmp"
	"container/list"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
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
	// NextTry is when the key comes due. It is zero if the key was dropped, is queued or being handled, and if it
	// is not known: if the queue is not Extended, or 10,000 other keys come due before.
	NextTry time.Time `json:"next_try,omitzero"`
}

const (
	maxErrorText = 1 << 10
	// keepErrors is the number of failing keys whose last errors are kept: those that have failed last.
	keepErrors = 10_000
)

// errorText returns the text of err, cut where it is too long. It does not keep the rest in memory.
func errorText(err error) string {
	s := fmt.Sprint(err) // Not err.Error(), which panics for a nil pointer of an error type.
	if len(s) <= maxErrorText {
		return s
	}
	end := maxErrorText
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return strings.Clone(s[:end])
}

// failures counts, for each key, how many calls in a row have failed, and keeps the last errors of the keys that
// have failed last. A key that has not failed takes no memory.
//
// The counts are divided into many small maps. So none is locked for long, and a map that was large is replaced
// soon: a Go map does not shrink.
type failures[T comparable] struct {
	keys    atomic.Int64 // in counts
	failing atomic.Int64 // those of them that have failed
	seed    maphash.Seed
	shards  [64]failureShard[T]
	errors  recent[T]
}

type failureShard[T comparable] struct {
	mu     sync.Mutex         // guards what follows
	counts map[T]failureCount // nil if empty
	peak   int                // how many keys counts had at most
}

// failureCount is what is known of every failing key.
type failureCount struct {
	// calls is how many calls in a row have failed. It is 0 for a key that was refused: its handler wanted it again
	// at once, but the queue was shut down already.
	calls int
	// limited reports that the queue's limiter counts the key's failures. If its count is zero later, somebody else
	// has called Forget.
	limited bool
}

// failing returns 1 for a key that has failed, and 0 otherwise.
func (c failureCount) failing() int64 { return int64(min(c.calls, 1)) }

func newFailures[T comparable]() *failures[T] {
	f := &failures[T]{seed: maphash.MakeSeed()}
	f.errors.max = keepErrors
	return f
}

func (f *failures[T]) shard(key T) *failureShard[T] {
	return &f.shards[maphash.Comparable(f.seed, key)%uint64(len(f.shards))]
}

// of returns how many calls of key have failed in a row.
func (f *failures[T]) of(key T) failureCount {
	if f.keys.Load() == 0 {
		return failureCount{}
	}
	s := f.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[key]
}

// set replaces key's count.
func (f *failures[T]) set(key T, c failureCount) {
	s := f.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts == nil {
		s.counts = make(map[T]failureCount)
	}
	before, known := s.counts[key]
	if !known {
		f.keys.Add(1)
	}
	f.failing.Add(c.failing() - before.failing())
	s.counts[key] = c
	s.peak = max(s.peak, len(s.counts))
}

// forget removes key.
func (f *failures[T]) forget(key T) {
	if f.keys.Load() > 0 {
		f.forgetIf(key, f.of(key))
	}
}

// forgetIf removes key unless its count has changed since it was c.
func (f *failures[T]) forgetIf(key T, c failureCount) {
	s := f.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if now, known := s.counts[key]; !known || now != c {
		return
	}
	delete(s.counts, key)
	f.keys.Add(-1)
	f.failing.Add(-c.failing())
	f.errors.forget(key)
	if len(s.counts) == 0 || len(s.counts) < s.peak/4 {
		s.shrink()
	}
}

// shrink gives back the memory of keys that were removed.
func (s *failureShard[T]) shrink() {
	old := s.counts
	s.counts, s.peak = nil, len(old)
	if len(old) > 0 {
		s.counts = make(map[T]failureCount, len(old))
		for key, c := range old {
			s.counts[key] = c
		}
	}
}

// sweep removes the keys that are stale, until enough returns true. It asks that before each key.
func (f *failures[T]) sweep(stale func(key T, c failureCount) bool, enough func() bool) {
	for i := range f.shards {
		for key, c := range f.shards[i].copy() {
			if enough() {
				return
			}
			if stale(key, c) {
				f.forgetIf(key, c)
			}
		}
	}
}

func (s *failureShard[T]) copy() map[T]failureCount {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.counts)
}

// all returns the keys that have failed, and those that were refused, each sorted by their text so that
// reports are the same every time.
func (f *failures[T]) all() (failing, refused []T) {
	for i := range f.shards {
		for key, c := range f.shards[i].copy() {
			if c.calls > 0 {
				failing = append(failing, key)
			} else {
				refused = append(refused, key)
			}
		}
	}
	sortByText(failing)
	sortByText(refused)
	return failing, refused
}

func sortByText[T comparable](keys []T) {
	texts := make(map[T]string, len(keys))
	for _, key := range keys {
		texts[key] = fmt.Sprint(key)
	}
	slices.SortFunc(keys, func(a, b T) int { return cmp.Compare(texts[a], texts[b]) })
}

// recent keeps the failures that were put in last, at most max of them, each key once.
type recent[T comparable] struct {
	max int

	mu    sync.Mutex // guards what follows
	byKey map[T]*list.Element
	order list.List // of FailedKey[T], the last one first
}

func (r *recent[T]) put(f FailedKey[T]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removeLocked(f.Key)
	if r.max <= 0 {
		return
	}
	if r.order.Len() == r.max {
		r.removeLocked(r.order.Back().Value.(FailedKey[T]).Key)
	}
	if r.byKey == nil {
		r.byKey = make(map[T]*list.Element)
	}
	r.byKey[f.Key] = r.order.PushFront(f)
}

func (r *recent[T]) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.order.Len()
}

func (r *recent[T]) forget(key T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removeLocked(key)
}

func (r *recent[T]) removeLocked(key T) {
	if e, ok := r.byKey[key]; ok {
		r.order.Remove(e)
		delete(r.byKey, key)
	}
}

// newest returns up to limit failures, the last one first.
func (r *recent[T]) newest(limit int) []FailedKey[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	keys := []FailedKey[T]{}
	for e := r.order.Front(); e != nil && len(keys) < limit; e = e.Next() {
		keys = append(keys, e.Value.(FailedKey[T]))
	}
	return keys
}
