package main // want package:"program"

import (
	"metricslib"

	_ "github.com/keyedqueue/workqueue/prom"
	_ "k8s.io/component-base/metrics/prometheus/workqueue"
)

func main() { metricslib.New() }
