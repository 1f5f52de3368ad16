package keytable

import "runtime"

// PreloadLen is a good number of keys to preload at once: as many readings as a processor has under way.
const PreloadLen = 8

// largeIndex is the length (1 MiB) from which preloading pays.
const largeIndex = 1 << 15

// Preload prepares for deleting the keys at slots soon. Some may be None. If the index does not fit into the
// processor's cache, each look-up waits for memory. Preload reads the homes of all these keys ahead: a
// processor waits for several independent readings no longer than for one.
func (t *Table[K, V]) Preload(slots []Slot) {
	if len(t.index.buckets) < largeIndex {
		return
	}
	var read uint64
	for _, s := range slots {
		read |= t.index.homeBucket(t.slots.at(s).hash).tags
	}
	runtime.KeepAlive(read)
}
