package keysgood

import (
	"context"
	"unique"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/priorityqueue"
	clientgo "k8s.io/client-go/util/workqueue"
)

type job struct{ namespace, name string }

var (
	typed   = workqueue.NewTyped[job]()
	handles = workqueue.NewTyped[unique.Handle[job]]()
	strings = priorityqueue.New(priorityqueue.Config[string]{})
	untyped = clientgo.New()
)

// What a generic function makes is not reported.
func generic[T comparable]() workqueue.TypedInterface[T] {
	return workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[T]())
}

// A set of other things may have pointers.
type set struct{}

func (set) Add(item any) {}

func add(q workqueue.TypedInterface[any], item any) {
	untyped.Add(job{"default", "db"})
	q.Add("a")
	q.Add(item)
	set{}.Add(&job{})
	generic[*job]()
}

type requestContext struct{ context.Context }

func addContext(q *priorityqueue.Queue[string], of *priorityqueue.Queue[any], c *requestContext) {
	q.AddContext(c, "a")
	of.AddContext(c, "a")
	of.AddWithOpts(priorityqueue.AddOpts{}, []any{"a", "b"}...)
}
