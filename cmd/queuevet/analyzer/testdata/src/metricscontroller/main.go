package main // want package:"packageFact"

import (
	"github.com/keyedqueue/workqueue/controllerruntime"
	"github.com/keyedqueue/workqueue/priorityqueue"
	_ "k8s.io/component-base/metrics/prometheus/workqueue"
)

func main() {
	config := priorityqueue.Config[string]{Name: "files"}
	controllerruntime.With(config)
	controllerruntime.With(priorityqueue.Config[string]{Name: "files"})
	controllerruntime.With[string](priorityqueue.Config[string]{Name: "files"})
	new(controllerruntime.Reconciler[string]).With(priorityqueue.Config[string]{Name: "files"})
}
