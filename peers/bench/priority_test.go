package bench

import (
	"fmt"
	"slices"
	"testing"

	"github.com/keyedqueue/workqueue/priorityqueue"
	controllerruntime "sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// prioritized is a queue with priorities.
type prioritized[T comparable] interface {
	queue[T]
	addWithPriority(priority int, key T)
	GetWithPriority() (key T, priority int, shutdown bool)
}

type ours[T comparable] struct{ *priorityqueue.Queue[T] }

func (q ours[T]) addWithPriority(priority int, key T) {
	q.AddWithOpts(priorityqueue.AddOpts{Priority: priority}, key)
}

type theirs[T comparable] struct {
	controllerruntime.PriorityQueue[T]
}

func (q theirs[T]) addWithPriority(priority int, key T) {
	q.AddWithOpts(controllerruntime.AddOpts{Priority: &priority}, key)
}

// everyPrioritized runs f with each implementation that has priorities.
func everyPrioritized[T comparable](b *testing.B, f func(b *testing.B, q prioritized[T])) {
	withPriorities := func(q queue[T]) prioritized[T] {
		switch q := q.(type) {
		case *priorityqueue.Queue[T]:
			return ours[T]{q}
		case controllerruntime.PriorityQueue[T]:
			return theirs[T]{q}
		}
		return nil
	}
	all := slices.DeleteFunc(impls[T](), func(i impl[T]) bool {
		return i.name != "keyedqueue-priority" && i.name != "controller-runtime"
	})
	everyImpl(b, all, func(b *testing.B, q queue[T]) { f(b, withPriorities(q)) })
}

// BenchmarkPriorities is BenchmarkCycle with keys of ten priorities.
func BenchmarkPriorities(b *testing.B) {
	const levels = 10
	for _, n := range sizes(1000, 100_000, 1_000_000) {
		keys := keysOf(n, structKey)
		b.Run(fmt.Sprintf("key=struct/keys=%d", n), func(b *testing.B) {
			everyPrioritized(b, func(b *testing.B, q prioritized[objectKey]) {
				measureWarm(b, n, func() {
					for i, key := range keys {
						q.addWithPriority(i%levels, key)
					}
					last := levels - 1
					for range keys {
						key, priority, _ := q.GetWithPriority()
						if priority > last {
							b.Fatalf("a key of priority %d came after one of %d", priority, last)
						}
						last = priority
						q.Done(key)
					}
				})
			})
		})
	}
}
