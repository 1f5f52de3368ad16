package main // want package:"packageFact"

import (
	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/priorityqueue"
	_ "k8s.io/component-base/metrics/prometheus/workqueue"
)

// A queue without a name has no metrics. What has a name and is no config makes no queue.
func main() {
	priorityqueue.New(priorityqueue.Config[string]{Name: ""})
	_ = operate.Fact{Name: "Slots held"}
}
