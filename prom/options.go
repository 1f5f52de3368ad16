package prom

import (
	"fmt"
	"maps"

	"github.com/prometheus/client_golang/prometheus"
)

// Options tell how the metrics shall look. The zero Options make them as Kubernetes has them.
type Options struct {
	// Namespace is put before the names of the metrics, with an underscore. It is how these metrics can
	// be in one registry with others of the same names, such as controller-runtime's own.
	Namespace string

	// ConstLabels are labels that every metric has, in addition to name.
	ConstLabels prometheus.Labels

	// ControllerLabel adds the label controller, whose value is the queue's name too, as in
	// controller-runtime.
	ControllerLabel bool

	// Buckets are the upper bounds of the histograms' classic buckets, in seconds, ascending. Nil means
	// Kubernetes' own, powers of ten from 10 ns to 10 s. (Those of controller-runtime go on to 1,000 s:
	// prometheus.ExponentialBuckets(10e-9, 10, 12).) An empty slice that is not nil means none.
	Buckets []float64

	// NativeHistogramBucketFactor, if it is greater than one, makes the histograms native ones as well,
	// in which a bucket's bound is at most so many times the one before; 1.1 is a good choice. Prometheus
	// scrapes them if it is configured to, and then needs no Buckets.
	//
	// All native buckets that a time can fall into are kept in each histogram of each queue. With a factor
	// of 1.1 that takes 4 KiB each, and both twice and half of that for the next finer and coarser ones.
	NativeHistogramBucketFactor float64
}

const (
	nameLabel       = "name"
	controllerLabel = "controller"
	// bucketLabel is what histograms need for themselves.
	bucketLabel = "le"
)

// descs returns descriptors of all families.
func (o Options) descs() (descs [numFamilies + 1]*prometheus.Desc, err error) {
	if _, ok := o.ConstLabels[bucketLabel]; ok {
		return descs, fmt.Errorf("the constant label %q is one that histograms need for themselves", bucketLabel)
	}
	labels := []string{nameLabel}
	if o.ControllerLabel {
		labels = append(labels, controllerLabel)
	}
	for _, own := range append(labels, priorityLabel) {
		if _, ok := o.ConstLabels[own]; ok {
			return descs, fmt.Errorf("the constant label %q is one that the metrics have themselves", own)
		}
	}
	for f := range family(len(descs)) {
		own := labels
		if f == byPriority {
			own = append(labels, priorityLabel)
		}
		descs[f] = prometheus.NewDesc(f.fullName(o.Namespace), families[f].help, own, maps.Clone(o.ConstLabels))
		// A Desc that is wrong reports it only to those who use it.
		if _, err := prometheus.NewConstMetric(descs[f], prometheus.GaugeValue, 0, make([]string, len(own))...); err != nil {
			return descs, err
		}
	}
	return descs, nil
}
