package main // want package:"packageFact" `metrics of the queues that metricslib makes are not registered: k8s.io/component-base/metrics/prometheus/workqueue sets client-go's provider alone`

import (
	"metricslib"

	_ "k8s.io/component-base/metrics/prometheus/workqueue"
)

func main() { metricslib.New() }
