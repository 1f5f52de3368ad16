package main // want package:"packageFact" `metrics of the queues that metricsnamed makes are not registered: metricsnamed sets client-go's provider alone`

import (
	ours "github.com/keyedqueue/workqueue"
	"k8s.io/client-go/util/workqueue"
)

func main() {
	workqueue.SetProvider(nil)
	ours.NewNamedRateLimitingQueue(nil, "files")
}
