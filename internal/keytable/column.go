package keytable

import "github.com/keyedqueue/workqueue/internal/stash"

// Column is one more value for each slot of a table, apart from the table so that it takes no memory where it
// is not used. It does not notice when a key is deleted: the next key at that slot finds what an earlier one
// has left, or the zero V. V must not have pointers: they would keep alive what they lead to. The zero Column
// is ready to use.
type Column[V any] struct {
	slabs [][]V
	spare stash.Stash[V] // slabs that were given back
}

// At returns the value at s. The pointer is valid until the next At of another slot, or Release.
func (c *Column[V]) At(s Slot) *V {
	if n := s / slabLen; int(n) < len(c.slabs) {
		if slab := c.slabs[n]; int(s%slabLen) < len(slab) {
			return &slab[s%slabLen]
		}
	}
	return c.provide(s)
}

// Existing is At of a slot for which At was called since the last Release. The compiler inlines it.
func (c *Column[V]) Existing(s Slot) *V { return &c.slabs[s/slabLen][s%slabLen] }

// provide is At where there is no memory for s yet. As in a table, only the first slab starts small.
func (c *Column[V]) provide(s Slot) *V {
	n, place := int(s/slabLen), int(s%slabLen)
	for n >= len(c.slabs) {
		c.slabs = append(c.slabs, nil)
	}
	if n > 0 {
		c.slabs[n] = c.spare.Get(slabLen)
	} else {
		grown := make([]V, max(firstSlabLen, 1<<(log2(place)+1)))
		copy(grown, c.slabs[0])
		c.slabs[0] = grown
	}
	return &c.slabs[n][place]
}

// Release gives back the memory that s shares with its neighbours. It is for slots whose memory the table has
// given back too.
func (c *Column[V]) Release(s Slot) {
	n := int(s / slabLen)
	if n >= len(c.slabs) || c.slabs[n] == nil {
		return
	}
	if n > 0 {
		c.spare.Put(c.slabs[n])
	}
	c.slabs[n] = nil
	for n = len(c.slabs); n > 0 && c.slabs[n-1] == nil; n-- {
	}
	c.slabs = shortened(c.slabs, n)
}

// Trim gives back memory behind s of a column that has values up to there, as an array that becomes shorter
// by one. It keeps a slab until the one before is half empty: values that come and go at the edge do not
// allocate.
func (c *Column[V]) Trim(s Slot) { c.Release(s + slabLen + slabLen/2) }
