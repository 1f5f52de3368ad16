package slotheap

import "github.com/keyedqueue/workqueue/internal/keytable"

// position is where in the heap an entry is. The first one is not 0 but [root], so that all entries with one
// parent are a [family]: those of 3 are 4 to 7, those of 4 are 8 to 11, those of p begin at 4(p-2).
type position uint

const (
	arity          = 4
	root  position = arity - 1
)

func (p position) parent() position { return p/arity + 2 }

// children returns the first of the positions of p's children, which are arity in a row.
func (p position) children() position { return arity * (p - 2) }

// family has the entries of one parent. The root is the last of the first family, whose other places stay empty.
type family [arity]Entry

// first returns the place of the least of the first n entries, or of all if n is more than there are.
func (f *family) first(n position) (first position) {
	if n < arity {
		for i := range n {
			if f[i].before(f[first]) {
				first = i
			}
		}
		return first
	}
	// There are nearly always four. This is a fifth faster for them than the loop.
	if f[1].before(f[0]) {
		first = 1
	}
	if f[2].before(f[first]) {
		first = 2
	}
	if f[3].before(f[first]) {
		first = 3
	}
	return first
}

func (h *Heap) at(p position) *Entry { return &h.family(p)[p%arity] }

// family returns the family of the entry at p.
func (h *Heap) family(p position) *family { return h.families.Existing(p.slot()) }

// slot returns the place of the family of the entry at p among all families.
func (p position) slot() keytable.Slot { return keytable.Slot(p / arity) }
