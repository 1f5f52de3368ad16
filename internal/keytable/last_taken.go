package keytable

import "sync/atomic"

// LastTaken is the key of a table that was handed out last. It saves a hash: a single worker calls Done of that
// key next, and to compare two keys is cheaper than to hash one.
//
// The zero LastTaken has no key. Its methods are called under the table's lock, apart from Hash.
type LastTaken[K comparable] struct {
	slot Slot // None if the key is held no more
	// several reports whether more than one key is held. It is read without the lock.
	several atomic.Bool
}

// Slot returns the slot of that key, or None if it is held no more.
func (l *LastTaken[K]) Slot() Slot { return l.slot }

// Took notes that the key at s was handed out, and how many are held now.
func (l *LastTaken[K]) Took(s Slot, held int) {
	l.slot = s
	if several := held > 1; several != l.several.Load() {
		l.several.Store(several)
	}
}

// Ended notes that the key at s is held no more. It must be called for each key that was handed out, because
// another key may get the slot.
func (l *LastTaken[K]) Ended(s Slot) {
	if s == l.slot {
		l.slot = None
	}
}

// Hash returns key's hash and true, unless at most one key is held: then comparing keys under the lock is
// cheaper, and it returns false. It needs no lock.
func (l *LastTaken[K]) Hash(key K) (h Hash, hashed bool) {
	if l.several.Load() {
		return HashOf(key), true
	}
	return 0, false
}

// FindTaken is Find of a key that may have been handed out last, with what l.Hash has returned.
func FindTaken[K comparable, V any](t *Table[K, V], l *LastTaken[K], key K, h Hash, hashed bool) (Slot, *Entry[K, V]) {
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
