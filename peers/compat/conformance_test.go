package compat

import (
	"flag"
	"testing"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	peer "k8s.io/client-go/util/workqueue"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/workqueuetest"
)

// theirProvider makes a provider of client-go's metrics from one of ours.
type theirProvider struct{ workqueue.MetricsProvider }

func (p theirProvider) NewDepthMetric(name string) peer.GaugeMetric {
	return p.MetricsProvider.NewDepthMetric(name)
}

func (p theirProvider) NewAddsMetric(name string) peer.CounterMetric {
	return p.MetricsProvider.NewAddsMetric(name)
}

func (p theirProvider) NewLatencyMetric(name string) peer.HistogramMetric {
	return p.MetricsProvider.NewLatencyMetric(name)
}

func (p theirProvider) NewWorkDurationMetric(name string) peer.HistogramMetric {
	return p.MetricsProvider.NewWorkDurationMetric(name)
}

func (p theirProvider) NewUnfinishedWorkSecondsMetric(name string) peer.SettableGaugeMetric {
	return p.MetricsProvider.NewUnfinishedWorkSecondsMetric(name)
}

func (p theirProvider) NewLongestRunningProcessorSecondsMetric(name string) peer.SettableGaugeMetric {
	return p.MetricsProvider.NewLongestRunningProcessorSecondsMetric(name)
}

func (p theirProvider) NewRetriesMetric(name string) peer.CounterMetric {
	return p.MetricsProvider.NewRetriesMetric(name)
}

// newPeer builds client-go's rate-limiting queue.
func newPeer[T comparable](c workqueuetest.Config[T]) workqueue.TypedInterface[T] {
	config := peer.TypedRateLimitingQueueConfig[T]{Name: c.Name, Clock: c.Clock}
	if c.MetricsProvider != nil {
		config.MetricsProvider = theirProvider{c.MetricsProvider}
	}
	var limiter peer.TypedRateLimiter[T] = c.RateLimiter
	if limiter == nil {
		limiter = peer.DefaultTypedControllerRateLimiter[T]()
	}
	return peer.NewTypedRateLimitingQueueWithConfig(limiter, config)
}

// knownOfClientGo are the cases that client-go's queue fails, every time.
var knownOfClientGo = map[string]string{
	"DoneOfUnheldKey":        "a queued key is queued twice (kubernetes/kubernetes#141079, an open pull request, proposes to ignore such a Done)",
	"ModelWithUnmatchedDone": "the same",

	"DrainWaitsForQueuedKeys":         "a drain waits for held keys only (kubernetes/kubernetes#141079, an open pull request, proposes to wait for queued ones)",
	"DrainWaitsForKeysAddedWhileHeld": "the same",
	"EveryDrainEnds":                  "one of the drains is woken",
	"ShutDownEndsDrain":               "only the first ShutDown of a delaying queue reaches the queue below",

	"AddAfterTies":  "keys due at the same time come in any order",
	"ModelWithTies": "the same",

	"UnhashableKey":      "AddAfter finds out on a goroutine of its own",
	"KeyUnequalToItself": "such a key gets in, and never out",

	"MetricsAfterShutDown": "no tick sets the gauges any more",

	"NoGoroutineWhileIdle":     "the waiting loop always runs (kubernetes/kubernetes#94811)",
	"NoTimerWhileIdle":         "and has a ticker",
	"NoGoroutineAfterShutDown": "the waiting loop ends some time later, after a drain up to 10 s (kubernetes/kubernetes#134323)",
	"IdleQueueIsGarbage":       "the waiting loop refers to the queue",
	"MemoryIsGivenBack":        "the maps keep theirs",
}

// TestConformanceOfClientGo runs client-go's queue through the suite that ours passes.
func TestConformanceOfClientGo(t *testing.T) {
	// A key that cannot be hashed makes the queue's own goroutine panic, which ends the process otherwise.
	crash, handlers := utilruntime.ReallyCrash, utilruntime.PanicHandlers
	utilruntime.ReallyCrash, utilruntime.PanicHandlers = false, nil
	t.Cleanup(func() { utilruntime.ReallyCrash, utilruntime.PanicHandlers = crash, handlers })
	// What is known to fail leaves no file behind to try again, and need not be the shortest there is.
	setFlag(t, "rapid.nofailfile", "true")
	setFlag(t, "rapid.shrinktime", "1s")
	workqueuetest.Suite{
		New:    newPeer[string],
		NewAny: newPeer[any],
		Known:  knownOfClientGo,
		Lacks: map[string]string{
			workqueuetest.Extended: "it has client-go's methods alone",
			workqueuetest.Failures: "the same",
		},
		Skip: map[string]string{
			"StressDrain":                   "a drain that returns early need not be seen doing so",
			"LinearizableWithUnmatchedDone": "two workers that hold one key need not be seen doing so",
			"ProcessedKeysAreGarbage":       "its maps may keep a few deleted keys until they grow",
			"StressClock":                   "a step of the clock while the timer is being started makes a key late, now and then",
		},
	}.Run(t)
}

func setFlag(t *testing.T, name, value string) {
	f := flag.Lookup(name)
	old := f.Value.String()
	t.Cleanup(func() { _ = f.Value.Set(old) })
	if err := f.Value.Set(value); err != nil {
		t.Fatal(err)
	}
}
