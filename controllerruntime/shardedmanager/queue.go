package shardedmanager

import (
	"context"

	clientgo "k8s.io/client-go/util/workqueue"
	crpriority "sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keyedqueue/workqueue/controllerruntime"
	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/sharding"
)

type request = reconcile.Request

// listPriority is what controller-runtime gives to what it lists at the start: changes come first.
const listPriority = -100

// shardedController gives each call a context that ends when another replica may get the key.
type shardedController struct {
	Controller
	group *Group
	queue sharding.Queue[request]
	made  chan struct{} // closed when queue is set, or could not be made
}

// newQueue makes the controller's queue when the member has joined. The manager starts the controllers at the
// same time as the joiner.
func (c *shardedController) newQueue(name string,
	limiter clientgo.TypedRateLimiter[request]) clientgo.TypedRateLimitingInterface[request] {
	defer close(c.made)
	inner := controllerruntime.NewQueue(name, limiter).(*controllerruntime.Queue[request])
	select {
	case <-c.group.joined:
	case <-c.group.ended: // The manager ends.
		inner.ShutDown()
		return inner
	}
	q, err := sharding.NewQueue(inner, c.group.Member(),
		sharding.QueueConfig[request]{Name: c.Name, Keys: c.keys, ListPriority: listPriority})
	c.group.mu.Lock()
	defer c.group.mu.Unlock()
	if err != nil {
		c.group.err = err
		inner.ShutDown()
		return inner
	}
	c.queue, c.group.queues[c.Name] = q, q
	return &queue{q, inner, q.(operate.Operable[request])}
}

// Reconcile makes no call if the key's slot is elsewhere already. Once the lease is lost the result counts no
// more: another replica reconciles the key, and a failure here would be counted at every handover.
func (c *shardedController) Reconcile(ctx context.Context, key request) (reconcile.Result, error) {
	<-c.made
	leased, release := c.queue.Lease(ctx, key)
	defer release()
	if leased.Err() != nil {
		return reconcile.Result{}, nil
	}
	result, err := c.Reconciler.Reconcile(leased, key)
	if leased.Err() != nil && ctx.Err() == nil {
		return reconcile.Result{}, nil
	}
	return result, err
}

// queue is a sharded queue with the interface of controller-runtime's PriorityQueue.
type queue struct {
	sharding.Queue[request]
	inner    *controllerruntime.Queue[request]
	operable operate.Operable[request]
}

var _ crpriority.PriorityQueue[request] = (*queue)(nil)

// AddWithOpts adds those keys whose slots are here. A rate-limited add is a failure of a key that this
// replica has handled: its slot is checked when its time has come.
func (q *queue) AddWithOpts(o crpriority.AddOpts, keys ...request) {
	if o.RateLimited {
		q.inner.AddWithOpts(o, keys...)
		return
	}
	priority := 0
	if o.Priority != nil {
		priority = *o.Priority
	}
	for _, key := range keys {
		q.operable.AddWithPriority(key, priority, o.After)
	}
}

func (q *queue) GetWithPriority() (key request, priority int, shutdown bool) {
	h, err := q.Next(context.Background())
	return h.Key, h.Priority, err != nil
}

func (q *queue) Below() any { return q.Queue }
