package main // want package:"packageFact"

import (
	"github.com/keyedqueue/workqueue/priorityqueue"
	_ "k8s.io/component-base/metrics/prometheus/workqueue"
)

func main() {
	priorityqueue.New(priorityqueue.Config[string]{Name: "files", MetricsProvider: 1})
}
