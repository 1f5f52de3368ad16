package keysbad

import (
	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/priorityqueue"
	clientgo "k8s.io/client-go/util/workqueue"
)

type job struct{ name string }

type jobPointer *job

type alias = *job

type config = priorityqueue.Config[*job]

var (
	typed    = workqueue.NewTyped[*job]()              // want `keys of type \*job do not merge: two pointers to equal values are two keys; use what names the value`
	named    = workqueue.NewTyped[jobPointer]()        // want `keys of type jobPointer do not merge`
	aliased  = workqueue.NewTyped[alias]()             // want `do not merge`
	inferred = priorityqueue.New(config{Name: "jobs"}) // want `do not merge`
	untyped  = clientgo.New()
	limiting = workqueue.NewTypedRateLimitingQueue( // want `do not merge`
		workqueue.DefaultTypedControllerRateLimiter[*job]())
)

func add(q *workqueue.Typed[any]) {
	untyped.Add(&job{}) // want `do not merge`
	q.Add(&job{})       // want `do not merge`
}

func addSeveral(q *priorityqueue.Queue[any]) {
	q.AddWithOpts(priorityqueue.AddOpts{}, "a", &job{}) // want `do not merge`
}
