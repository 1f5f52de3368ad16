package keys

import (
	"net/netip"
	"unique"

	"github.com/keyedqueue/workqueue/priorityqueue"
	"k8s.io/client-go/util/workqueue"
)

type pod struct{ name string }

func (*pod) DeepCopyObject() any { return nil }

type event struct{ what string }

type request struct {
	namespace, name string
	owner           *pod
}

type nested struct {
	n     [2]int
	inner struct{ done chan int }
}

func wrong(legacy workqueue.RateLimitingInterface, p *pod) {
	_ = workqueue.NewTyped[*pod]()                                                                 // want `keys of this queue are pointers \(\*pod\), which are compared by address`
	_ = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[*event]()) // want `keys of this queue are pointers \(\*event\)`
	_ = workqueue.NewTyped[chan int]()                                                             // want `keys of this queue are channels`
	_ = priorityqueue.New(priorityqueue.Config[request]{})                                         // want `keys of this queue are structs whose field owner is a pointer \(\*pod\)`
	_ = workqueue.NewTyped[nested]()                                                               // want `structs whose field inner.done is a channel`
	legacy.Add(p)                                                                                  // want `this key is pointers \(\*pod\)`
	legacy.AddRateLimited(request{})                                                               // want `this key is structs whose field owner`
	_ = workqueue.NewTyped[*node]()
	pods := map[string]*pod{}
	_ = pods
}

// There is one node for each name.
type node struct{ name string }

var nodes map[string]*node

func right(legacy workqueue.RateLimitingInterface, v any) {
	_ = workqueue.NewTyped[string]()
	_ = workqueue.NewTyped[any]()
	_ = workqueue.NewTyped[struct{ namespace, name string }]()
	_ = workqueue.NewTyped[netip.Addr]()
	_ = workqueue.NewTyped[unique.Handle[string]]()
	legacy.Add("key")
	legacy.Add(v)
	//queuevet:ignore one pointer for each event, on purpose
	_ = workqueue.NewTyped[*event]()
}

func generic[T comparable]() workqueue.TypedInterface[T] { return workqueue.NewTyped[T]() }

type change struct{ old, new any }

type retried struct{ labels map[string]string }

type name struct{ namespace, name string }

func events(object any) {
	changes := workqueue.NewTyped[*change]() // every change counts
	changes.Add(&change{new: object})
	c := &change{old: object}
	changes.Add(c)
	if got, quit := changes.Get(); !quit {
		changes.Done(got)
	}

	retries := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[*retried]()) // want `keys of this queue are pointers \(\*retried\)`
	r := &retried{}
	retries.Add(r)
	retries.Forget(r)

	names := workqueue.NewTyped[*name]() // want `keys of this queue are pointers \(\*name\)`
	names.Add(&name{"namespace", "name"})
}
