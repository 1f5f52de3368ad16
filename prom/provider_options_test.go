package prom_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/keyedqueue/workqueue/internal/testkit"
	"github.com/keyedqueue/workqueue/prom"
)

func TestLint(t *testing.T) {
	for name, opts := range map[string]prom.Options{
		"default":    {},
		"native":     {NativeHistogramBucketFactor: 1.1},
		"controller": {ControllerRuntime: true, ConstLabels: prometheus.Labels{"zone": "a"}, Namespace: "example"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(opts)
			defer b.queue("q").ShutDown()
			lint(t, b)
			if n, err := testutil.GatherAndCount(b); n != 11 || err != nil {
				t.Errorf("%d metrics, %v, want 11", n, err)
			}
		})
	}
}

func TestBadOptions(t *testing.T) {
	nan := math.NaN()
	for name, tt := range map[string]struct {
		opts prom.Options
		want string
	}{
		"descending buckets": {prom.Options{Buckets: []float64{1, 0.5}}, "in Buckets must ascend"},
		"equal buckets":      {prom.Options{Buckets: []float64{1, 1}}, "the one at 1 is 1"},
		"NaN bucket":         {prom.Options{Buckets: []float64{nan, 1}}, "the one at 0 is NaN"},
		"infinite bucket":    {prom.Options{Buckets: []float64{math.Inf(-1), 1}}, "finite"},
		"factor 1": {prom.Options{NativeHistogramBucketFactor: 1},
			"NativeHistogramBucketFactor must be greater than 1"},
		"factor NaN": {prom.Options{NativeHistogramBucketFactor: nan},
			"NativeHistogramBucketFactor must be greater than 1"},
		"label name": {prom.Options{ConstLabels: prometheus.Labels{"__x": ""}},
			`"__x" is not a valid label name`},
		"label value": {prom.Options{ConstLabels: prometheus.Labels{"x": "\xff"}}, "not valid UTF-8"},
		"label le":    {prom.Options{ConstLabels: prometheus.Labels{"le": ""}}, `"le"`},
		"label name twice": {prom.Options{ConstLabels: prometheus.Labels{"name": ""}},
			`"name" is a label of the metrics themselves`},
		"label controller twice": {
			prom.Options{ConstLabels: prometheus.Labels{"controller": ""}, ControllerRuntime: true},
			`"controller" is a label of the metrics themselves`,
		},
		"namespace": {prom.Options{Namespace: "\xff"}, "is not a valid metric name"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := prom.Join(prometheus.NewRegistry(), tt.opts)
			if p != nil || err == nil || !strings.HasPrefix(err.Error(), "prom: ") ||
				!strings.Contains(err.Error(), tt.want) {
				t.Errorf("Join() = %v, %v, want %q", p, err, tt.want)
			}
			testkit.WantPanic(t, "NewProvider", func() { prom.NewProvider(nil, tt.opts) }, "prom: ", tt.want)
		})
	}
	// Nothing else needs that label.
	prom.NewProvider(nil, prom.Options{ConstLabels: prometheus.Labels{"controller": "x"}})
}

func TestRegistration(t *testing.T) {
	registry := prometheus.NewRegistry()
	prom.NewProvider(registry, prom.Options{})
	testkit.WantPanic(t, "NewProvider", func() { prom.NewProvider(registry, prom.Options{}) }, "prom: ",
		"already", "Namespace")
	testkit.WantPanic(t, "NewProvider", func() {
		prom.NewProvider(registry, prom.Options{ControllerRuntime: true})
	}, "prom: ", "label names")
	prom.NewProvider(registry, prom.Options{ConstLabels: prometheus.Labels{"x": "1"}, Namespace: "other"})

	var already prometheus.AlreadyRegisteredError
	func() {
		defer func() { _ = errors.As(recover().(error), &already) }()
		prom.NewProvider(registry, prom.Options{})
	}()
	if _, ok := already.ExistingCollector.(*prom.Provider); !ok {
		t.Errorf("the panic does not contain the registered provider: %v", already)
	}

	p := prom.NewProvider(nil, prom.Options{ConstLabels: prometheus.Labels{"x": "2"}, Namespace: "other"})
	if registry.Register(p) != nil || !registry.Unregister(p) {
		t.Error("without a registerer nothing can be registered or unregistered")
	}
}

// ControllerRuntime brings controller-runtime's buckets, if the program does not choose its own.
func TestBucketsOfControllerRuntime(t *testing.T) {
	for _, c := range []struct {
		opts    prom.Options
		buckets int
		schema  int32
	}{
		{prom.Options{}, 12, 3},
		{prom.Options{Buckets: []float64{1, 2}}, 2, 3},
		{prom.Options{NativeHistogramBucketFactor: 2}, 12, 0},
	} {
		c.opts.ControllerRuntime = true
		b := newBench(c.opts)
		q := b.queue("q")
		q.Add("a")
		process(t, q, 1)
		h := b.get(t, "queue_duration_seconds", "q").Histogram
		if len(h.Bucket) != c.buckets || h.GetSchema() != c.schema || h.Schema == nil {
			t.Errorf("%+v: %d buckets, schema %v", c.opts, len(h.Bucket), h.Schema)
		}
		q.ShutDown()
	}
}
