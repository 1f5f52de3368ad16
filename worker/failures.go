package worker

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// failures counts how many times in a row keys have failed. A key that has not failed takes no memory.
type failures[T comparable] struct {
	keys   atomic.Int64 // that have failed
	mu     sync.Mutex
	counts map[T]int // guarded by mu; nil if there are none, so that a map that was large is not kept
}

// any reports whether any key has failed.
func (f *failures[T]) any() bool { return f.keys.Load() != 0 }

func (f *failures[T]) of(key T) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[key]
}

func (f *failures[T]) count(key T) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.counts == nil {
		f.counts = make(map[T]int)
	}
	f.counts[key]++
	f.keys.Store(int64(len(f.counts)))
}

func (f *failures[T]) forget(key T) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.counts, key)
	if len(f.counts) == 0 {
		f.counts = nil
	}
	f.keys.Store(int64(len(f.counts)))
}

// all returns the keys that have failed, sorted by their text so that reports are the same every time.
func (f *failures[T]) all() []T {
	f.mu.Lock()
	defer f.mu.Unlock()
	keys := slices.Collect(maps.Keys(f.counts))
	texts := make(map[T]string, len(keys))
	for _, key := range keys {
		texts[key] = fmt.Sprint(key)
	}
	slices.SortFunc(keys, func(a, b T) int { return cmp.Compare(texts[a], texts[b]) })
	return keys
}
