package prom

import (
	"fmt"
	"reflect"
)

// Adapter is a [Provider] whose methods return interfaces of another package. [For] makes it.
type Adapter[G, C, H, S any] struct{ provider *Provider }

// For returns p for a package that has metrics interfaces of its own, whose queues push: gauges G with
// Inc and Dec, counters C with Inc, histograms H with Observe, and settable gauges S with Set. So client-go's
// queues have the same metrics:
//
//	clientgo.SetProvider(prom.For[clientgo.GaugeMetric, clientgo.CounterMetric,
//		clientgo.HistogramMetric, clientgo.SettableGaugeMetric](p))
//
// It panics if what p returns does not implement these interfaces.
func For[G, C, H, S any](p *Provider) Adapter[G, C, H, S] {
	convert[G](&gauge{})
	convert[C](&counter{})
	convert[H](&observations{})
	convert[S](&gauge{})
	return Adapter[G, C, H, S]{p}
}

func convert[I any](metric any) I {
	i, ok := metric.(I)
	if !ok {
		panic(fmt.Sprintf("prom: %T does not implement %v", metric, reflect.TypeFor[I]()))
	}
	return i
}

// NewDepthMetric is that of [Provider].
func (a Adapter[G, C, H, S]) NewDepthMetric(name string) G {
	return convert[G](a.provider.NewDepthMetric(name))
}

// NewAddsMetric is that of [Provider].
func (a Adapter[G, C, H, S]) NewAddsMetric(name string) C {
	return convert[C](a.provider.NewAddsMetric(name))
}

// NewLatencyMetric is that of [Provider].
func (a Adapter[G, C, H, S]) NewLatencyMetric(name string) H {
	return convert[H](a.provider.NewLatencyMetric(name))
}

// NewWorkDurationMetric is that of [Provider].
func (a Adapter[G, C, H, S]) NewWorkDurationMetric(name string) H {
	return convert[H](a.provider.NewWorkDurationMetric(name))
}

// NewUnfinishedWorkSecondsMetric is that of [Provider].
func (a Adapter[G, C, H, S]) NewUnfinishedWorkSecondsMetric(name string) S {
	return convert[S](a.provider.NewUnfinishedWorkSecondsMetric(name))
}

// NewLongestRunningProcessorSecondsMetric is that of [Provider].
func (a Adapter[G, C, H, S]) NewLongestRunningProcessorSecondsMetric(name string) S {
	return convert[S](a.provider.NewLongestRunningProcessorSecondsMetric(name))
}

// NewRetriesMetric is that of [Provider].
func (a Adapter[G, C, H, S]) NewRetriesMetric(name string) C {
	return convert[C](a.provider.NewRetriesMetric(name))
}
