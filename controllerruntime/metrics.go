package controllerruntime

import (
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/prom"
)

// registryMetrics returns the provider of the queues that have no provider of their own. Its metrics are in
// controller-runtime's registry, beside those of the controllers on the default queue: the first call joins it. It
// returns nil if that fails, which is logged once.
var registryMetrics = sync.OnceValue(func() workqueue.StatsProvider {
	p, err := prom.Join(metrics.Registry, prom.Options{ControllerRuntime: true})
	if err != nil {
		// A controller without metrics is better than none.
		log.Log.WithName("workqueue").Error(err, "The queues of package controllerruntime have no metrics")
		return nil
	}
	return p
})
