package main

import (
	"fmt"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/workqueue"
)

func main() {
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[int]{Name: "prom"})
	queue.Add(1)
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		panic(err)
	}
	for _, family := range families {
		if family.GetName() == "workqueue_adds_total" {
			fmt.Println(family.GetMetric()[0].GetLabel()[0].GetValue())
		}
	}
}
