package keytable

import (
	"iter"
	"slices"
)

// InSteps yields what add appends for the slots of t in which keys live, a value or two for each. It locks t
// for one slab at a time, and nothing is locked while values are yielded.
func InSteps[K comparable, V, E any](t *Table[K, V], lock, unlock func(), add func(all []E, s Slot) []E) iter.Seq[E] {
	return func(yield func(E) bool) {
		var found []E
		scan := func(n int) (more bool) {
			lock()
			defer unlock()
			for s := range t.LiveSlots(n) {
				found = add(found, s)
			}
			return n+1 < t.Slabs()
		}
		for n, more := 0, true; more; n++ {
			found = slices.Grow(found[:0], slabLen) // Without the lock: to get memory takes long.
			more = scan(n)
			for _, e := range found {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// Map returns what f makes of each value of all.
func Map[From, To any](all iter.Seq[From], f func(From) To) iter.Seq[To] {
	return func(yield func(To) bool) {
		all(func(from From) bool { return yield(f(from)) })
	}
}

// Take returns the first n values of all.
func Take[E any](n int, all iter.Seq[E]) iter.Seq[E] {
	return func(yield func(E) bool) {
		if n <= 0 {
			return // All looks for its first value, which may take long.
		}
		left := n
		for e := range all {
			if left--; !yield(e) || left == 0 {
				return
			}
		}
	}
}

// Typed returns key as a T. It panics if key is of another type.
func Typed[T comparable](key any) (k T) {
	if key == nil && any(k) == nil {
		return k // T is an interface type, and a nil has no type to assert.
	}
	return key.(T)
}
