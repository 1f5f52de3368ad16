package main // want package:"packageFact"

import (
	"metricslib"

	"github.com/keyedqueue/workqueue"
	_ "k8s.io/component-base/metrics/prometheus/workqueue"
)

func main() {
	workqueue.SetProvider(nil)
	metricslib.New()
}
