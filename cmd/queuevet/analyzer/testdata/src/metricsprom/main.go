package main // want package:"packageFact"

import (
	"metricslib"

	_ "github.com/keyedqueue/workqueue/prom"
	_ "k8s.io/component-base/metrics/prometheus/workqueue"
)

func main() { metricslib.New() }
