package testkit

import "slices"

// ListQueue is a user's workqueue.Queue, as simple as possible.
type ListQueue[T comparable] struct {
	// Keys are the queued keys, and Touched those that were added again meanwhile.
	Keys, Touched []T
	// On, unless nil, is called at the start of every method, with the method's name.
	On func(method string)
}

func (l *ListQueue[T]) call(method string) {
	if l.On != nil {
		l.On(method)
	}
}

func (l *ListQueue[T]) Touch(item T) { l.call("Touch"); l.Touched = append(l.Touched, item) }
func (l *ListQueue[T]) Push(item T)  { l.call("Push"); l.Keys = append(l.Keys, item) }
func (l *ListQueue[T]) Len() int     { l.call("Len"); return len(l.Keys) }

func (l *ListQueue[T]) Pop() T {
	l.call("Pop")
	item := l.Keys[0]
	l.Keys = slices.Delete(l.Keys, 0, 1)
	return item
}
