package migratelib

import "k8s.io/client-go/util/workqueue"

func Enqueue(queue workqueue.TypedInterface[string]) {} // want `exported, with client-go's queue in its type`

type Options struct {
	Limiter workqueue.TypedRateLimiter[string] // want `exported, with client-go's queue in its type`
}
