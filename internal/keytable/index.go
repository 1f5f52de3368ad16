package keytable

// index leads from hashes to slots. What the package comment says of its shape is here.
type index struct {
	// groups is empty or has a power of two of them.
	groups []group
	// shift takes a hash to its home: 32 - log2(len(groups)).
	shift uint8
}

// indexOf makes an index of groups that are empty.
func indexOf(groups []group) index {
	return index{groups: groups, shift: 32 - uint8(log2(len(groups)))}
}

// home returns the number of the first group in which a key of hash h may be.
func (x *index) home(h Hash) int { return int(h >> (x.shift & 31)) }

// homeGroup returns that group.
func (x *index) homeGroup(h Hash) *group { return &x.groups[x.home(h)] }

// group returns group n, taken round at the end.
func (x *index) group(n int) *group { return &x.groups[n&(len(x.groups)-1)] }

// insert puts s, whose key has hash h, into the first group from its home on that has a place.
func (x *index) insert(h Hash, s Slot) {
	for n := x.home(h); ; n++ {
		g := x.group(n)
		if g.put(h, s) {
			return
		}
		g.pass(1)
	}
}

// remove takes out s, which is in the index, and whose key has hash h.
func (x *index) remove(h Hash, s Slot) {
	for n := x.home(h); ; n++ {
		g := x.group(n)
		if place := g.find(h, s); place >= 0 {
			g.free(place)
			return
		}
		g.pass(-1)
	}
}

// has reports whether s, whose key has hash h, is in the index.
func (x *index) has(h Hash, s Slot) bool {
	home := x.home(h)
	for n := home; n < home+len(x.groups); n++ {
		g := x.group(n)
		if g.find(h, s) >= 0 {
			return true
		}
		if g.passed() == 0 {
			break
		}
	}
	return false
}

// probe returns the slot and the entry of key, whose hash is h, or None and nil. The index must not be empty,
// as old is when no keys are moving.
func (t *Table[K, V]) probe(x *index, h Hash, key K) (Slot, *Entry[K, V]) {
	// The search ends at the first group that no key has passed. There may be no such group, if each was full at
	// some time and the keys that passed it are still there. Then the search ends after one round.
	home := x.home(h)
	for n, last := home, home+len(x.groups)-1; ; n++ {
		g := x.group(n)
		for set := g.match(h); set != 0; set &= set - 1 {
			s := g.slots[placeOf(set)]
			if e := t.slots.at(s); e.Key == key {
				return s, e
			}
		}
		if n == last || g.passed() == 0 {
			return None, nil
		}
	}
}
