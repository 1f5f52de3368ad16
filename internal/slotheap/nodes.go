package slotheap

import "github.com/keyedqueue/workqueue/internal/stash"

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

// nodes is an array of families that grows and shrinks without moving what it has, in chunks.
type nodes struct {
	chunks [][]family
	// spare has the chunks that were given back.
	spare stash.Stash[family]
}

const (
	// chunkLen is the number of families of a chunk: 64 KiB.
	chunkLen = 1 << 10
	// firstChunkLen is what the first chunk starts with. It grows by copying, up to chunkLen.
	firstChunkLen = 4
)

func (a *nodes) at(p position) *Entry { return &a.family(p)[p%arity] }

// family returns the family of the entry at p.
func (a *nodes) family(p position) *family {
	n := p / arity
	return &a.chunks[n/chunkLen][n%chunkLen]
}

// provide makes sure that there is memory for an entry at p. There must be for all before.
func (a *nodes) provide(p position) {
	n := int(p / arity)
	switch c := n / chunkLen; {
	case c < len(a.chunks) && n%chunkLen < len(a.chunks[c]):
	case c > 0:
		a.chunks = append(a.chunks, a.spare.Get(chunkLen))
	case len(a.chunks) == 0:
		a.chunks = append(a.chunks, make([]family, firstChunkLen))
	default:
		grown := make([]family, 2*len(a.chunks[0]))
		copy(grown, a.chunks[0])
		a.chunks[0] = grown
	}
}

// trim gives back the chunks behind p, where the entries end. It keeps a chunk until the one before it is less than half
// full, so that entries which come and go at the edge do not allocate.
func (a *nodes) trim(p position) {
	for last := len(a.chunks) - 1; last > 0 && int(p/arity) < last*chunkLen-chunkLen/2; last-- {
		a.spare.Put(a.chunks[last])
		a.chunks[last] = nil
		a.chunks = a.chunks[:last]
	}
}
