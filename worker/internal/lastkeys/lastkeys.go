// Package lastkeys keeps something for each of the last keys that were added.
package lastkeys

import (
	"iter"

	"github.com/keyedqueue/workqueue/internal/keytable"
)

// List has a value for each of the last Max keys. When it is full the oldest one leaves it. All methods take
// constant time. It is not safe for concurrent use.
type List[K comparable, V any] struct {
	Max   int
	table keytable.Table[K, V]
	order keytable.List // the last one last
	links keytable.Lists
}

// Add puts key at the end. The key must not be in the list.
func (l *List[K, V]) Add(key K, v V) {
	s, e, _ := l.table.FindOrInsert(keytable.HashOf(key), key)
	e.Value = v
	l.links.Append(&l.order, s)
	if l.order.Len() > l.Max {
		l.removeAt(l.order.First())
	}
}

// Find returns the value of key, or nil. It is valid until the next change.
func (l *List[K, V]) Find(key K) *V {
	if _, e := l.table.Lookup(key); e != nil {
		return &e.Value
	}
	return nil
}

// Remove removes key, if it is there.
func (l *List[K, V]) Remove(key K) {
	if s, e := l.table.Lookup(key); e != nil {
		l.removeAt(s)
	}
}

func (l *List[K, V]) removeAt(s keytable.Slot) {
	l.links.Remove(&l.order, s)
	l.table.Delete(s)
	if !l.table.HasMemory(s) { // The links have their memory by blocks of slots, as the table.
		l.links.Release(s)
	}
}

func (l *List[K, V]) Len() int { return l.order.Len() }

// Newest yields the values, that of the key that was added last at the front. The list must not change
// meanwhile.
func (l *List[K, V]) Newest() iter.Seq[V] {
	return func(yield func(V) bool) {
		for s := l.order.Last(); s != keytable.None && yield(l.table.At(s).Value); s = l.links.Prev(s) {
		}
	}
}
