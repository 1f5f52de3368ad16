// Package sharding divides the keys of a program's queues among its replicas, with Lease objects of the
// Kubernetes API server alone. All replicas work, and each key is with one of them at a time.
//
//	leases := sharding.Leases(client.CoordinationV1(), "my-system")
//	member, err := sharding.Join(ctx, leases, sharding.Config{Group: "website-controller"})
//	inner := workqueue.NewTypedRateLimitingQueue(limiter) // any in-memory queue
//	// allKeys lists the informer's cache.
//	queue, err := sharding.NewQueue(inner, member, sharding.QueueConfig[string]{Keys: allKeys})
//	err = worker.Run(ctx, queue, reconcile, worker.Options[string]{Workers: 8}) // as always
//	err = member.Leave(leave) // hands over what it holds; leave has a deadline and outlives ctx
//
// Every replica still watches all objects and adds all keys; its queue drops the keys of the others. So this
// is for sources that every replica can see and list. A change that only one replica hears of and no list
// contains, such as a webhook's, cannot be divided in this way: use package redisqueue.
//
// A key is handed out by at most one replica at a time, none is forgotten when it moves, and the context of a
// handler ends before another replica can get its key. docs/sharding.md says under which conditions, what it
// costs, and what to do when something goes wrong. docs/project/sharding.md says how it works.
package sharding
