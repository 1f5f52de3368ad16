package keytable

import "sync/atomic"

// Latest knows which key of a table was handed out last, because that is mostly the one of which Done is called
// next, and then needs no hash.
//
// The zero Latest knows none. Its methods are called under the table's lock, but for Several and Hash.
type Latest[K comparable] struct {
	slot Slot
	// several is read without the lock.
	several atomic.Bool
}

// Slot returns the slot of that key, or None if it is held no more.
func (l *Latest[K]) Slot() Slot { return l.slot }

// Took tells that the key at s was handed out, and how many are held now.
func (l *Latest[K]) Took(s Slot, held int) {
	l.slot = s
	if several := held > 1; several != l.several.Load() {
		l.several.Store(several)
	}
}

// Several reports whether more than one key is held, so that several workers are about.
func (l *Latest[K]) Several() bool { return l.several.Load() }

// Ended tells that the key at s is not held any more. It must be told of each key that was handed out, because
// its slot may get another one.
func (l *Latest[K]) Ended(s Slot) {
	if s == l.slot {
		l.slot = None
	}
}

// Hash hashes key, of which Done will be called, unless the lock is likely to show that it was the last one.
func (l *Latest[K]) Hash(key K) (h Hash, hashed bool) {
	if l.several.Load() {
		return HashOf(key), true
	}
	return 0, false
}

// FindHeld is Find of a key of which Done is called, with what l.Hash returned.
func FindHeld[K comparable, V any](t *Table[K, V], l *Latest[K], key K, h Hash, hashed bool) (Slot, *Entry[K, V]) {
	if l.slot != None {
		if e := t.slots.at(l.slot); e.Key == key {
			return l.slot, e
		}
	}
	if !hashed {
		h = HashOf(key)
	}
	return t.Find(h, key)
}
