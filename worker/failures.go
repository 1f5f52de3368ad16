package worker

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// failures counts how many times in a row keys have failed. A key that has not failed takes no memory. Keys
// that were to come again at once when the queue was shut down already are there too, with a count of 0.
type failures[T comparable] struct {
	keys   atomic.Int64 // in counts
	mu     sync.Mutex
	counts map[T]int // guarded by mu; nil if there are none, so that a map that was large is not kept
}

// of returns how many times in a row key has failed.
func (f *failures[T]) of(key T) int {
	if f.keys.Load() == 0 {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[key]
}

// count notes one more failure of key.
func (f *failures[T]) count(key T) { f.add(key, 1) }

// refuse notes that the queue, which is shut down, has not taken key back. It may come again nevertheless, if
// it was added before, and is then forgotten.
func (f *failures[T]) refuse(key T) { f.add(key, 0) }

func (f *failures[T]) add(key T, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.counts == nil {
		f.counts = make(map[T]int)
	}
	f.counts[key] += n
	f.keys.Store(int64(len(f.counts)))
}

func (f *failures[T]) forget(key T) {
	if f.keys.Load() == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.counts, key)
	if len(f.counts) == 0 {
		f.counts = nil
	}
	f.keys.Store(int64(len(f.counts)))
}

// all returns the keys that have failed, and those that were refused, each sorted by their text so that
// reports are the same every time.
func (f *failures[T]) all() (failing, refused []T) {
	f.mu.Lock()
	for key, n := range f.counts {
		if n > 0 {
			failing = append(failing, key)
		} else {
			refused = append(refused, key)
		}
	}
	f.mu.Unlock()
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
