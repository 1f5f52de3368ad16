package main

import (
	"fmt"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/prom"
	"github.com/prometheus/client_golang/prometheus"
)

func main() {
	registry := prometheus.NewRegistry()
	workqueue.SetProvider(prom.NewProvider(registry, prom.Options{}))
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[int]{Name: "prom"})
	queue.Add(1)
	families, err := registry.Gather()
	if err != nil {
		panic(err)
	}
	for _, family := range families {
		if family.GetName() == "workqueue_adds_total" {
			fmt.Println(family.GetMetric()[0].GetLabel()[0].GetValue())
		}
	}
}
