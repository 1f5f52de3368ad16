package worker

import (
	"container/list"
	"iter"
)

// recent keeps a value for each of the keys that were put in last. When their sizes together exceed max, the oldest ones go. The zero
// recent keeps nothing. It is not safe for concurrent use.
type recent[T comparable, V any] struct {
	max, size int
	places    map[T]*list.Element
	order     list.List // of recentEntry[T, V], the one that was put in last at the front
}

type recentEntry[T comparable, V any] struct {
	key   T
	value V
	size  int
}

// put puts in key, which must not be in, with its value. It returns the keys that go.
func (r *recent[T, V]) put(key T, value V, size int) (gone []T) {
	if r.places == nil {
		r.places = make(map[T]*list.Element)
	}
	r.places[key] = r.order.PushFront(recentEntry[T, V]{key, value, size})
	r.size += size
	for r.size > r.max {
		oldest := r.order.Back().Value.(recentEntry[T, V]).key
		r.take(oldest)
		gone = append(gone, oldest)
	}
	return gone
}

// all yields the keys with their values, in no order.
func (r *recent[T, V]) all() iter.Seq2[T, V] {
	return func(yield func(T, V) bool) {
		for key, place := range r.places {
			if !yield(key, place.Value.(recentEntry[T, V]).value) {
				return
			}
		}
	}
}

// get returns the value of key, if there is one.
func (r *recent[T, V]) get(key T) (value V, ok bool) {
	if place := r.places[key]; place != nil {
		return place.Value.(recentEntry[T, V]).value, true
	}
	return value, false
}

// take takes key out, and returns its value, if there is one.
func (r *recent[T, V]) take(key T) (value V, ok bool) {
	place := r.places[key]
	if place == nil {
		return value, false
	}
	entry := r.order.Remove(place).(recentEntry[T, V])
	r.size -= entry.size
	if delete(r.places, key); len(r.places) == 0 {
		r.places = nil // Gives its memory back.
	}
	return entry.value, true
}

// first returns up to limit values, the one that was put in last at the front.
func (r *recent[T, V]) first(limit int) []V {
	values := []V{}
	for place := r.order.Front(); place != nil && len(values) < limit; place = place.Next() {
		values = append(values, place.Value.(recentEntry[T, V]).value)
	}
	return values
}
