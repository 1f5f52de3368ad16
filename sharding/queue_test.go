package sharding

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/keyedqueue/workqueue/priorityqueue"
)

// optsOnly is a queue with the interface of controller-runtime's PriorityQueue and no other method.
type optsOnly struct {
	OptsQueue[string, priorityqueue.AddOpts]
}

// A key that was kept aside comes back with its priority, whichever method had handed it out.
func TestParkedKeysKeepTheirPriority(t *testing.T) {
	for name, get := range map[string]func(q Queue[string]){
		"GetWithPriority": func(q Queue[string]) { q.(OptsQueue[string, priorityqueue.AddOpts]).GetWithPriority() },
		"Get":             func(q Queue[string]) { q.Get() },
		"GetContext":      func(q Queue[string]) { _, _ = q.GetContext(context.Background()) },
	} {
		synctest.Test(t, func(t *testing.T) {
			m := holdingAll(1)
			inner := optsOnly{priorityqueue.New(priorityqueue.Config[string]{})}
			q := NewOptsQueue(inner, m, QueueConfig[string]{Keys: noKeys[string]}, func(p int) (o priorityqueue.AddOpts) {
				o.Priority = p
				return o
			})
			q.AddWithOpts(priorityqueue.AddOpts{Priority: -100}, "low")
			q.AddWithOpts(priorityqueue.AddOpts{Priority: 7}, "high")
			m.setState(0, stopping)
			ended := make(chan struct{})
			go func() { get(q); close(ended) }() // It parks both, waits, and gets the first of them.
			synctest.Wait()
			m.setState(0, held)
			q.AddWithOpts(priorityqueue.AddOpts{}, "middle")
			<-ended
			q.Done("middle")
			(*m.queues.Load())[0].settled([]int{0})
			for _, want := range []string{"high 7", "low -100"} {
				key, priority, _ := q.GetWithPriority()
				if got := fmt.Sprint(key, " ", priority); got != want {
					t.Errorf("%s: %s, want %s", name, got, want)
				}
				q.Done(key)
			}
			q.ShutDown()
		})
	}
}
