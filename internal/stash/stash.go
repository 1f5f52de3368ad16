// Package stash keeps memory for the next burst of keys, but only until the garbage collector runs.
package stash

import "weak"

// A Stash holds slices that are not needed now, until one of that length is needed or the garbage
// collector runs: it refers to them weakly. So each burst of a busy queue reuses the memory of the last
// one, and a quiet queue loses that memory with the next collection. A [sync.Pool] would keep it for
// two collections, and share it with all queues of the process.
//
// The zero Stash is empty and ready to use. It is not safe for concurrent use.
type Stash[E any] struct {
	held []weak.Pointer[[]E]
}

// maxHeld bounds what a Stash itself takes, to 32 KiB.
const maxHeld = 1 << 12

// Put takes s over. The caller must not use it afterwards.
func (h *Stash[E]) Put(s []E) {
	if len(h.held) < maxHeld {
		h.held = append(h.held, weak.Make(&s))
	}
}

// Get returns a slice of n elements: one that was put here, with the elements that it had then, or a
// new one.
func (h *Stash[E]) Get(n int) []E {
	if s := h.Take(n); s != nil {
		return s
	}
	return make([]E, n)
}

// Take returns a slice of n elements that was put here, with the elements that it had then, or nil.
func (h *Stash[E]) Take(n int) []E {
	for i := len(h.held) - 1; i >= 0; i-- {
		s := h.held[i].Value()
		if s != nil && len(*s) != n {
			continue
		}
		last := len(h.held) - 1
		h.held[i] = h.held[last]
		h.held = h.held[:last]
		if s != nil {
			return *s
		}
	}
	return nil
}
