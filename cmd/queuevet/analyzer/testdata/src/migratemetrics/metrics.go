package migratemetrics

import "k8s.io/client-go/util/workqueue"

func init() {
	workqueue.SetProvider(nil) // want `this must keep client-go's import: it sets up the metrics of client-go's queues`
}
