package main // want package:"program"

import (
	"github.com/keyedqueue/workqueue/priorityqueue"
	_ "k8s.io/component-base/metrics/prometheus/workqueue"
)

// A queue without a name has no metrics.
func main() { priorityqueue.New(priorityqueue.Config[string]{Name: ""}) }
