package metricslib // want package:"packageFact"

import "github.com/keyedqueue/workqueue/priorityqueue"

func New() *priorityqueue.Queue[string] {
	return priorityqueue.New(priorityqueue.Config[string]{Name: "files"})
}
