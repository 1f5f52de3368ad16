// Package stash keeps memory for the next burst of keys, but only until the garbage collector runs.
package stash

import (
	"slices"
	"weak"
)

// A Stash holds slices that are not needed now, until one of that length is needed or the garbage collector
// runs: it refers to them weakly. So each burst of a busy queue reuses the memory of the last one, and a
// quiet queue loses that memory with the next collection. The zero Stash is empty and ready to use.
type Stash[E any] struct {
	// held is one weak pointer to all of them: a weak pointer takes memory of its own.
	held weak.Pointer[[][]E]
}

// Put takes s over. The caller must not use it afterwards.
func (h *Stash[E]) Put(s []E) {
	held := h.held.Value()
	if held == nil {
		held = new([][]E)
		h.held = weak.Make(held)
	}
	*held = append(*held, s)
}

// Get returns a slice of n elements: one of those put here, with its elements, or a new one.
func (h *Stash[E]) Get(n int) []E {
	if s := h.Take(n); s != nil {
		return s
	}
	return make([]E, n)
}

// Take returns a slice of n elements that was put here, with the elements that it had then, or nil.
func (h *Stash[E]) Take(n int) []E {
	held := h.held.Value()
	if held == nil {
		return nil
	}
	for i, s := range slices.Backward(*held) {
		if len(s) == n {
			last := len(*held) - 1
			(*held)[i], (*held)[last] = (*held)[last], nil
			*held = (*held)[:last]
			return s
		}
	}
	return nil
}
