package sharding

import "sync/atomic"

// cells are the keys of one slot that are being handled, as tokens: numbers that differ for different keys, and are not
// zero. They fill a cache line. More keys than that have a chain of cells.
//
// Keys are put and taken out without a lock. A key is put before the slot's state is read, and the state is set before
// cells are looked at, so a member that has made a slot stop sees each key that was handed out before.
type cells struct {
	tokens [7]atomic.Uint64
	next   atomic.Pointer[cells]
}

func (c *cells) put(token uint64) *atomic.Uint64 {
	for ; ; c = c.orNext() {
		for i := range c.tokens {
			if t := &c.tokens[i]; t.Load() == 0 && t.CompareAndSwap(0, token) {
				return t
			}
		}
	}
}

func (c *cells) orNext() *cells {
	if c.next.Load() == nil {
		c.next.CompareAndSwap(nil, new(cells))
	}
	return c.next.Load()
}

// remove takes one of the tokens out. It does nothing if there is none.
func (c *cells) remove(token uint64) {
	for ; c != nil; c = c.next.Load() {
		for i := range c.tokens {
			if t := &c.tokens[i]; t.Load() == token && t.CompareAndSwap(token, 0) {
				return
			}
		}
	}
}

func (c *cells) has(token uint64) bool {
	for ; c != nil; c = c.next.Load() {
		for i := range c.tokens {
			if c.tokens[i].Load() == token {
				return true
			}
		}
	}
	return false
}

func (c *cells) len() (n int) {
	for ; c != nil; c = c.next.Load() {
		for i := range c.tokens {
			if c.tokens[i].Load() != 0 {
				n++
			}
		}
	}
	return n
}
