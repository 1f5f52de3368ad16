// Package notes keeps what a queue knows of few keys: why they were added, and who waits for the next add.
package notes

import (
	"maps"

	"github.com/keyedqueue/workqueue/internal/keytable"
)

// Notes are kept by the slots of a queue's table. The queue marks, beside a key's state, that there is a
// note, so that other keys cost nothing. The zero Notes is ready to use.
type Notes[C any] struct {
	bySlot map[keytable.Slot]*note[C]
	most   int // how many there have been since the map was made
}

// note is about a key. Its fields are nil if there is nothing to keep.
type note[C any] struct {
	// next are the causes for the next hand-out, current those of the last one. Both are immutable.
	next, current *C
	// added is closed when a key that is held is added again, and then nil.
	added chan struct{}
}

// Closed is a closed channel, for a key that was added again already.
var Closed = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Len returns the number of keys with a note.
func (n *Notes[C]) Len() int { return len(n.bySlot) }

// Has reports whether there is a note of the key at s.
func (n *Notes[C]) Has(s keytable.Slot) bool { return n.bySlot[s] != nil }

// of returns the note of the key at s, new if the key has no note.
func (n *Notes[C]) of(s keytable.Slot) *note[C] {
	if n.bySlot == nil {
		n.bySlot = make(map[keytable.Slot]*note[C])
	}
	if n.bySlot[s] == nil {
		n.bySlot[s] = new(note[C])
		n.most = max(n.most, len(n.bySlot))
	}
	return n.bySlot[s]
}

// AddCause sets the causes for the next hand-out of the key at s to what merge makes of those so far.
func (n *Notes[C]) AddCause(s keytable.Slot, merge func(C) C) {
	k := n.of(s)
	if k.next == nil {
		k.next = new(C)
	}
	after := merge(*k.next)
	k.next = &after
}

// Causes returns the causes of the key at s: those with which it was handed out, and those for its next
// hand-out. Nil means none. They must not be changed.
func (n *Notes[C]) Causes(s keytable.Slot) (current, next *C) {
	if k := n.bySlot[s]; k != nil {
		return k.current, k.next
	}
	return nil, nil
}

// Await returns the channel that Added closes for the key at s, which is held.
func (n *Notes[C]) Await(s keytable.Slot) <-chan struct{} {
	k := n.of(s)
	if k.added == nil {
		k.added = make(chan struct{})
	}
	return k.added
}

// Added notes that the key at s, which is held, was added again.
func (n *Notes[C]) Added(s keytable.Slot) {
	if k := n.bySlot[s]; k != nil && k.added != nil {
		close(k.added)
		k.added = nil
	}
}

// Taken notes that the key at s is handed out. It reports whether there still is a note.
func (n *Notes[C]) Taken(s keytable.Slot) bool {
	if k := n.bySlot[s]; k != nil {
		k.current, k.next = k.next, nil
	}
	return n.tidy(s)
}

// Done ends the worker's part of the note of the key at s, which stays. It reports whether there is a note.
func (n *Notes[C]) Done(s keytable.Slot) bool {
	if k := n.bySlot[s]; k != nil {
		k.current, k.added = nil, nil
	}
	return n.tidy(s)
}

// Canceled notes that the held key at s is not to be queued again.
func (n *Notes[C]) Canceled(s keytable.Slot) {
	if k := n.bySlot[s]; k != nil {
		k.next = nil
	}
}

// tidy removes an empty note, and reports whether one stays.
func (n *Notes[C]) tidy(s keytable.Slot) bool {
	if k := n.bySlot[s]; k == nil || k.next == nil && k.current == nil {
		n.Remove(s)
		return false
	}
	return true
}

// Remove removes the note of the key at s, if there is one. Another key must not have the slot yet.
func (n *Notes[C]) Remove(s keytable.Slot) {
	delete(n.bySlot, s)
	// A map does not shrink, so it is copied.
	switch left := len(n.bySlot); {
	case left == 0:
		n.bySlot, n.most = nil, 0
	case left <= n.most/maxEmptiness:
		smaller := make(map[keytable.Slot]*note[C], left)
		maps.Copy(smaller, n.bySlot)
		n.bySlot, n.most = smaller, left
	}
}

// maxEmptiness is by how much a map may have shrunk before it is copied.
const maxEmptiness = 32
