package keytable

import "iter"

// List is a doubly linked list of slots of one table, whose [Lists] has the links. The zero List is empty.
type List struct {
	first, last Slot
	n           uint32
}

// links are the neighbours of a slot in its list, or None. A slot is in at most one list at a time.
type links struct{ prev, next Slot }

// First returns the first slot, or None if l is empty.
func (l *List) First() Slot { return l.first }

func (l *List) Len() int { return int(l.n) }

// Lists has the links of slots in a column beside their table. The zero Lists is ready to use.
type Lists struct{ links Column[links] }

// Append puts s, which is in no list, at the end of l.
func (ls *Lists) Append(l *List, s Slot) {
	*ls.links.At(s) = links{prev: l.last}
	if l.last == None {
		l.first = s
	} else {
		ls.links.Existing(l.last).next = s
	}
	l.last = s
	l.n++
}

// Remove takes s out of l.
func (ls *Lists) Remove(l *List, s Slot) {
	at := *ls.links.Existing(s)
	if at.prev == None {
		l.first = at.next
	} else {
		ls.links.Existing(at.prev).next = at.next
	}
	if at.next == None {
		l.last = at.prev
	} else {
		ls.links.Existing(at.next).prev = at.prev
	}
	l.n--
}

// Next returns the slot behind s in its list, or None.
func (ls *Lists) Next(s Slot) Slot { return ls.links.Existing(s).next }

// All returns the slots of l in their order. The list must not change meanwhile.
func (ls *Lists) All(l *List) iter.Seq[Slot] {
	return func(yield func(Slot) bool) {
		for s := l.first; s != None && yield(s); s = ls.Next(s) {
		}
	}
}

// Release gives back the memory that s, which is in no list, shares with others: see [Column].
func (ls *Lists) Release(s Slot) { ls.links.Release(s) }
