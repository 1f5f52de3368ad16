package workqueuetest

import (
	"time"

	"github.com/keyedqueue/workqueue"
)

// onlyReads is a provider for which queues keep times and make no metrics.
type onlyReads struct{ workqueue.MetricsProvider }

func (onlyReads) HistogramBounds() []float64 { return nil }

func (onlyReads) WatchQueue(string, func() workqueue.Stats) {}

// scriptedLimiter returns delays, and records its calls. It panics if no delay is left.
type scriptedLimiter struct {
	asked  []string
	delays []time.Duration
}

const (
	limiterPanic    = "no delay is left"
	limiterRequeues = 42
)

func (l *scriptedLimiter) note(what string) { l.asked = append(l.asked, what) }

func (l *scriptedLimiter) When(item string) time.Duration {
	if len(l.delays) == 0 {
		panic(limiterPanic)
	}
	l.note("When " + item)
	d := l.delays[0]
	l.delays = l.delays[1:]
	return d
}

func (l *scriptedLimiter) Forget(item string) { l.note("Forget " + item) }

func (l *scriptedLimiter) NumRequeues(item string) int {
	l.note("NumRequeues " + item)
	return limiterRequeues
}
