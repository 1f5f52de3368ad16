package compat

import (
	"testing"
	"time"

	peer "k8s.io/client-go/util/workqueue"
	"pgregory.net/rapid"

	"github.com/keyedqueue/workqueue"
)

// faulty is a queue with something wrong in it.
type faulty struct {
	peer.TypedRateLimitingInterface[string]
	addAfter func(peer.TypedRateLimitingInterface[string], string, time.Duration)
	done     func(peer.TypedRateLimitingInterface[string], string)
	forget   func(peer.TypedRateLimitingInterface[string], string)
	shutDown func(peer.TypedRateLimitingInterface[string])
}

func (q faulty) AddAfter(key string, d time.Duration) {
	if q.addAfter != nil {
		q.addAfter(q.TypedRateLimitingInterface, key, d)
		return
	}
	q.TypedRateLimitingInterface.AddAfter(key, d)
}

func (q faulty) Done(key string) {
	if q.done != nil {
		q.done(q.TypedRateLimitingInterface, key)
		return
	}
	q.TypedRateLimitingInterface.Done(key)
}

func (q faulty) Forget(key string) {
	if q.forget != nil {
		q.forget(q.TypedRateLimitingInterface, key)
		return
	}
	q.TypedRateLimitingInterface.Forget(key)
}

func (q faulty) ShutDown() {
	if q.shutDown != nil {
		q.shutDown(q.TypedRateLimitingInterface)
		return
	}
	q.TypedRateLimitingInterface.ShutDown()
}

// swapped is a provider that mistakes one duration for the other.
type swapped struct{ workqueue.MetricsProvider }

func (s swapped) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return s.MetricsProvider.NewWorkDurationMetric(name)
}

func (s swapped) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return s.MetricsProvider.NewLatencyMetric(name)
}

// halved is a provider whose gauge of unfinished work shows half of it.
type halved struct{ workqueue.MetricsProvider }

type half struct{ workqueue.SettableGaugeMetric }

func (h half) Set(v float64) { h.SettableGaugeMetric.Set(v / 2) }

func (h halved) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return half{h.MetricsProvider.NewUnfinishedWorkSecondsMetric(name)}
}

// TestDifferentialNotices makes something wrong with our queue, and has the differential runs find it.
func TestDifferentialNotices(t *testing.T) {
	type queue = peer.TypedRateLimitingInterface[string]
	named := setup{Named: true}
	other := func(s setup) func() *subject[string] {
		return func() *subject[string] { return newOurs(s, stringKeys()) }
	}
	wrap := func(f faulty) func() *subject[string] {
		return func() *subject[string] {
			q := newOurs(named, stringKeys())
			f.TypedRateLimitingInterface = q.queue
			q.queue = f
			return q
		}
	}
	spoil := func(provider func(workqueue.MetricsProvider) workqueue.MetricsProvider) func() *subject[string] {
		return other(setup{Named: true, Provider: provider})
	}
	for _, tt := range []struct {
		name string
		// setup is that of client-go's queue.
		setup setup
		ours  func() *subject[string]
	}{
		{"order", named, func() *subject[string] {
			q := newOurs(setup{Named: true, Custom: true}, stringKeys())
			q.order = nil
			return q
		}},
		{"late by a millisecond", named, wrap(faulty{addAfter: func(q queue, key string, d time.Duration) {
			if d > 0 {
				d += time.Millisecond
			}
			q.AddAfter(key, d)
		}})},
		{"a delay is lost", named, wrap(faulty{addAfter: func(q queue, key string, d time.Duration) {
			if d < 10*time.Second {
				q.AddAfter(key, d)
			}
		}})},
		{"another Add", named, wrap(faulty{done: func(q queue, key string) {
			q.Add(key)
			q.Done(key)
		}})},
		{"Done too early", named, wrap(faulty{done: func(q queue, key string) {
			q.Done(key)
			q.Add(key)
		}})},
		{"failures are kept", named, wrap(faulty{forget: func(queue, string) {}})},
		{"ShutDown does nothing", named, func() *subject[string] {
			calls := 0
			return wrap(faulty{shutDown: func(q queue) {
				// The call at the end of the bubble has to have its effect.
				if calls++; calls > 1 {
					q.ShutDown()
				}
			}})()
		}},
		{"limiter", named, other(setup{Named: true, Limiter: cut})},
		{"no metrics", named, other(setup{})},
		{"metrics for a queue without a name", setup{}, other(named)},
		{"Touch", setup{Custom: true}, func() *subject[string] {
			q := newOurs(setup{Custom: true}, stringKeys())
			q.order.deaf = true
			return q
		}},
		{"durations", named, spoil(func(p workqueue.MetricsProvider) workqueue.MetricsProvider { return swapped{p} })},
		{"unfinished work", named, spoil(func(p workqueue.MetricsProvider) workqueue.MetricsProvider { return halved{p} })},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sequences := rapid.Custom(drawOps)
			for seed := range 300 {
				theirs := func() *subject[string] { return newTheirs(tt.setup, stringKeys()) }
				if err := compare(t, theirs, tt.ours, sequences.Example(seed)); err != nil {
					return
				}
			}
			t.Error("no sequence of calls shows it")
		})
	}
}
