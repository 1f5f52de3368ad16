package observe

import (
	"sync"
	"sync/atomic"
	"time"
)

// Global is the provider of metrics of all queues that have a name and no provider of their own, or nil. It
// is a workqueue.MetricsProvider, which this package cannot name.
var Global atomic.Pointer[any]

// Push has the metrics of one queue to which every change is pushed. None of them is nil; see [OrNoop].
type Push struct {
	Depth interface {
		Inc()
		Dec()
	}
	Adds                  interface{ Inc() }
	Latency, WorkDuration interface{ Observe(float64) }
	// UnfinishedWork and LongestRunning depend on the time. [Observer.Refresh] sets them.
	UnfinishedWork, LongestRunning interface{ Set(float64) }
}

// Refresh pushes the metrics that depend on the time.
func (o *Observer) Refresh() {
	micros, longest := o.unfinished(o.Now())
	o.pushed = micros != 0 || longest != 0
	o.push.UnfinishedWork.Set(float64(micros) / 1e6)
	o.push.LongestRunning.Set(longest.Seconds())
}

// RefreshLast is Refresh, unless the metrics are zero already and stay so. After shutdown there are no ticks:
// without RefreshLast the metrics would keep their last values forever.
func (o *Observer) RefreshLast() {
	if o.push != nil && (o.pushed || o.running.Len() > 0) {
		o.Refresh()
	}
}

// Ticker calls a function periodically, on its own goroutine.
type Ticker struct {
	stop    chan struct{}
	running sync.WaitGroup
}

// Start calls f every period of the observer's clock, until Stop. Without push metrics it does nothing.
func (t *Ticker) Start(o *Observer, period time.Duration, f func()) {
	if o == nil || o.push == nil {
		return
	}
	t.stop = make(chan struct{})
	ticker := o.clock.NewTicker(period)
	t.running.Go(func() {
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C():
				f()
			case <-t.stop:
				return
			}
		}
	})
}

// Stop lets the goroutine end, if there is one, and does not wait for it. It must not be called twice.
func (t *Ticker) Stop() {
	if t.stop != nil {
		close(t.stop)
	}
}

func (t *Ticker) Wait() { t.running.Wait() }

// noop stands for each metric that a provider left out.
type noop struct{}

func (noop) Inc()            {}
func (noop) Dec()            {}
func (noop) Set(float64)     {}
func (noop) Observe(float64) {}

// OrNoop returns metric, or a metric that does nothing instead of nil.
func OrNoop[M any](metric M) M {
	if any(metric) == nil {
		return any(noop{}).(M)
	}
	return metric
}
