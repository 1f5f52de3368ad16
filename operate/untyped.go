package operate

import (
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/keytable"
)

// Untyped is [workqueue.Untyped] that returns an [Operable] if q is one, and a rate-limiting queue.
func Untyped[T comparable](q workqueue.Extended[T]) workqueue.Extended[any] {
	all := workqueue.Untyped(q)
	operable, isOperable := q.(Operable[T])
	if limited, ok := all.(workqueue.ExtendedRateLimiting[any]); ok && isOperable {
		return untyped[T]{limited, operable}
	}
	return all
}

// untyped has the methods of Operable that T stands in. The others are those of the queue.
type untyped[T comparable] struct {
	workqueue.ExtendedRateLimiting[any]
	Operable[T]
}

//lint:ignore U1000 the interface asks for it
func (q untyped[T]) mustEmbed(any) {}

func (q untyped[T]) PriorityOf(key any) int { return q.Operable.PriorityOf(keytable.Typed[T](key)) }
func (q untyped[T]) Remove(key any) bool    { return q.Operable.Remove(keytable.Typed[T](key)) }
func (q untyped[T]) RetryGivenUp(key any) bool {
	return q.Operable.RetryGivenUp(keytable.Typed[T](key))
}
func (q untyped[T]) ForgetGivenUp(key any) bool {
	return q.Operable.ForgetGivenUp(keytable.Typed[T](key))
}

func (q untyped[T]) AddWithPriority(key any, priority int, after time.Duration) {
	q.Operable.AddWithPriority(keytable.Typed[T](key), priority, after)
}

func (q untyped[T]) GivenUpKeys(limit int) (keys []GivenUpKey[any]) {
	for _, k := range q.Operable.GivenUpKeys(limit) {
		keys = append(keys, GivenUpKey[any]{k.Key, k.Attempts, k.Err, k.Time})
	}
	return keys
}
