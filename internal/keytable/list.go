package keytable

import "iter"

// List is a doubly linked list of slots of one table, for keys that have an order. Each slot has [Links]: in
// the table's values or, with [Lists], in a column beside the table. The zero List is empty.
type List struct {
	first, last Slot
	n           uint32
}

// Links are the neighbours of a slot in its list, or None. A slot is in at most one list at a time.
type Links struct{ prev, next Slot }

func (k *Links) Prev() Slot { return k.prev }
func (k *Links) Next() Slot { return k.next }

// First and Last return the slots at the ends, or None if l is empty.
func (l *List) First() Slot { return l.first }
func (l *List) Last() Slot  { return l.last }

func (l *List) Len() int { return int(l.n) }

// Append puts s, whose links are at, at the end of l. Last are the links of l.Last(), unused if l is empty.
func (l *List) Append(s Slot, at, last *Links) {
	*at = Links{prev: l.last}
	if l.last == None {
		l.first = s
	} else {
		last.next = s
	}
	l.last = s
	l.n++
}

// Remove takes out the slot with the links at. Prev and next are its neighbours' links, if it has them.
func (l *List) Remove(at, prev, next *Links) {
	if at.prev == None {
		l.first = at.next
	} else {
		prev.next = at.next
	}
	if at.next == None {
		l.last = at.prev
	} else {
		next.prev = at.prev
	}
	l.n--
}

// Lists has the links of slots that do not have them in the table's values. The zero Lists is ready to use.
type Lists struct{ links Column[Links] }

// Append puts s, which is in no list, at the end of l.
func (ls *Lists) Append(l *List, s Slot) {
	at := ls.links.At(s) // First: it may move the others.
	l.Append(s, at, ls.existing(l.last))
}

// Remove takes s out of l.
func (ls *Lists) Remove(l *List, s Slot) {
	at := ls.links.Existing(s)
	l.Remove(at, ls.existing(at.prev), ls.existing(at.next))
}

// existing returns the links of s, which is in a list, or nil if s is None.
func (ls *Lists) existing(s Slot) *Links {
	if s == None {
		return nil
	}
	return ls.links.Existing(s)
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

// Prev returns the slot before s in its list, or None.
func (ls *Lists) Prev(s Slot) Slot { return ls.links.Existing(s).prev }
