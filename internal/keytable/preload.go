package keytable

import "runtime"

// If the index does not fit into the processor's cache, each look-up waits for memory. Preload reads the
// homes of several keys ahead: a processor waits for several independent readings no longer than for one.

// PreloadLen is a good number of keys to preload at once: as many readings as a processor has under way.
const PreloadLen = 8

// largeIndex is the length (1 MiB) from which this pays.
const largeIndex = 1 << 15

// IsLarge reports whether Preload does anything.
func (t *Table[K, V]) IsLarge() bool { return len(t.index.buckets) >= largeIndex }

// Preload prepares for finding or deleting the keys at slots soon. Some may be None.
func (t *Table[K, V]) Preload(slots []Slot) {
	if !t.IsLarge() {
		return
	}
	var read uint64
	for _, s := range slots {
		read |= t.index.homeBucket(t.slots.at(s).hash).tags
	}
	runtime.KeepAlive(read)
}

type Hashed[K comparable] struct {
	Hash Hash
	Key  K
}

// PreloadKeys prepares for finding or inserting keys soon.
func (t *Table[K, V]) PreloadKeys(keys []Hashed[K]) {
	if !t.IsLarge() {
		return
	}
	var read uint64
	for i := range keys {
		read |= t.index.homeBucket(keys[i].Hash).tags
	}
	runtime.KeepAlive(read)
}
