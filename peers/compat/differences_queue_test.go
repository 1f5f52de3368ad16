package compat

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	peer "k8s.io/client-go/util/workqueue"

	"github.com/keyedqueue/workqueue"
)

// The tests in this and the other files differences_…_test.go show client-go doing one thing and us
// another. Each is a difference that the documentation tells of, and a bug or a gap of client-go that
// somebody may depend on who changes an import path.

// queues returns an empty queue of each package.
func queues() (theirs, ours peer.TypedInterface[string]) {
	return peer.NewTyped[string](), workqueue.NewTyped[string]()
}

// TestSpuriousDone (kubernetes/kubernetes#141079): Done of a queued key queues it once more in client-go,
// and then two workers hold it. Ours counts the call.
func TestSpuriousDone(t *testing.T) {
	theirs, ours := queues()
	for _, q := range []peer.TypedInterface[string]{theirs, ours} {
		q.Add("a")
		q.Done("a")
	}
	if n := theirs.Len(); n != 2 {
		t.Errorf("client-go: %d keys are queued, want 2", n)
	}
	first, _ := theirs.Get()
	second, _ := theirs.Get()
	if first != "a" || second != "a" {
		t.Errorf("client-go: two workers hold %q and %q, want one key twice", first, second)
	}

	if n := ours.Len(); n != 1 {
		t.Errorf("ours: %d keys are queued, want 1", n)
	}
	if n := ours.(workqueue.Extended[string]).Stats().UnmatchedDones; n != 1 {
		t.Errorf("ours: %d unmatched calls of Done, want 1", n)
	}
}

// began runs f in a goroutine and tells whether it has returned. It is used in bubbles.
func began(f func()) (ended *atomic.Bool) {
	ended = new(atomic.Bool)
	go func() {
		f()
		ended.Store(true)
	}()
	synctest.Wait()
	return ended
}

// TestDrainOfQueuedKeys (kubernetes/kubernetes#141079; kubernetes/kubernetes#131200 made it what the
// documentation says): client-go drains until nothing is processed, also if keys are queued. Ours waits
// for those, too.
func TestDrainOfQueuedKeys(t *testing.T) {
	t.Run("queued", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			theirs, ours := queues()
			theirs.Add("a")
			ours.Add("a")
			if ended := began(theirs.ShutDownWithDrain); !ended.Load() || theirs.Len() != 1 {
				t.Errorf("client-go: drained: %t, queued: %d, want true and 1", ended.Load(), theirs.Len())
			}
			ended := began(ours.ShutDownWithDrain)
			if ended.Load() {
				t.Error("ours: drained with a key queued")
			}
			key, _ := ours.Get()
			synctest.Wait()
			if ended.Load() {
				t.Error("ours: drained with a key held")
			}
			ours.Done(key)
			synctest.Wait()
			if !ended.Load() {
				t.Error("ours: the drain does not end")
			}
		})
	})
	t.Run("added while it was held", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			theirs, ours := queues()
			drained := map[peer.TypedInterface[string]]*atomic.Bool{}
			for _, q := range []peer.TypedInterface[string]{theirs, ours} {
				q.Add("a")
				key, _ := q.Get()
				q.Add("a")
				drained[q] = began(q.ShutDownWithDrain)
				q.Done(key)
				synctest.Wait()
			}
			if !drained[theirs].Load() || theirs.Len() != 1 {
				t.Errorf("client-go: drained: %t, queued: %d, want true and 1", drained[theirs].Load(), theirs.Len())
			}
			if drained[ours].Load() || ours.Len() != 1 {
				t.Errorf("ours: drained: %t, queued: %d, want false and 1", drained[ours].Load(), ours.Len())
			}
			key, _ := ours.Get()
			ours.Done(key)
			synctest.Wait()
			if !drained[ours].Load() {
				t.Error("ours: the drain does not end")
			}
		})
	})
}

// TestManyDrains (kubernetes/kubernetes#141079): the last Done wakes one of those who drain a queue of
// client-go, and all of those who drain ours.
func TestManyDrains(t *testing.T) {
	const drains = 3
	synctest.Test(t, func(t *testing.T) {
		theirs, ours := queues()
		count := func(q peer.TypedInterface[string]) (ended int) {
			q.Add("a")
			key, _ := q.Get()
			var all []*atomic.Bool
			for range drains {
				all = append(all, began(q.ShutDownWithDrain))
			}
			q.Done(key)
			synctest.Wait()
			for _, e := range all {
				if e.Load() {
					ended++
				}
			}
			return ended
		}
		if n := count(theirs); n != 1 {
			t.Errorf("client-go: %d drains ended, want 1", n)
		}
		if n := count(ours); n != drains {
			t.Errorf("ours: %d drains ended, want %d", n, drains)
		}
		// This ends those that wait still.
		theirs.ShutDown()
	})
}

// TestNaN: a key that is not equal to itself stays in the sets of client-go's queue for good, so it is
// queued as often as it is added, and a drain never ends. Ours refuses it.
func TestNaN(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		theirs := peer.NewTyped[float64]()
		theirs.Add(math.NaN())
		theirs.Add(math.NaN())
		if n := theirs.Len(); n != 2 {
			t.Errorf("client-go: %d keys are queued, want 2", n)
		}
		for theirs.Len() > 0 {
			key, _ := theirs.Get()
			theirs.Done(key)
		}
		if ended := began(theirs.ShutDownWithDrain); ended.Load() {
			t.Error("client-go: the drain ended")
		}
		theirs.ShutDown()

		ours := workqueue.NewTyped[float64]()
		if !panicks(func() { ours.Add(math.NaN()) }) {
			t.Error("ours: took a key that is not equal to itself")
		}
		if ended := began(ours.ShutDownWithDrain); !ended.Load() {
			t.Error("ours: the drain does not end")
		}
	})
}

func panicks(f func()) (panicked bool) {
	defer func() { panicked = recover() != nil }()
	f()
	return false
}

// TestGaugesAfterShutDown: client-go updates two of its metrics from time to time until shutdown, and
// whatever they are then they remain. Ours are zero when the last key is Done.
func TestGaugesAfterShutDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup{Named: true}
		theirs, ours := newTheirs(s, stringKeys()), newOurs(s, stringKeys())
		for _, q := range []*subject[string]{theirs, ours} {
			synctest.Wait() // until the clock ticks for client-go
			q.queue.Add("key0")
			key, _ := q.queue.Get()
			q.clock.Step(2 * time.Second)
			synctest.Wait()
			q.queue.ShutDown()
			q.queue.Done(key)
		}
		if m := theirs.metrics; m.unfinished != 2 || m.longest != 2 {
			t.Errorf("client-go: unfinished work is %v, longest running %v, want 2", m.unfinished, m.longest)
		}
		if m := ours.metrics; m.unfinished != 0 || m.longest != 0 {
			t.Errorf("ours: unfinished work is %v, longest running %v, want 0", m.unfinished, m.longest)
		}
	})
}

// TestLongestRunningAfterJump: when the clock was set back while keys were held, client-go looks for the
// key with the longest time by the new clock. Ours takes the one that was handed out first, which it
// knows without looking. No clock of the standard library goes back while a process runs.
func TestLongestRunningAfterJump(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup{Named: true}
		theirs, ours := newTheirs(s, stringKeys()), newOurs(s, stringKeys())
		for _, q := range []*subject[string]{theirs, ours} {
			synctest.Wait() // until the clock ticks for client-go
			q.queue.Add("key0")
			q.queue.Add("key1")
			q.queue.Get()
			q.clock.SetTime(epoch.Add(-time.Minute))
			q.queue.Get()
			q.clock.SetTime(epoch.Add(time.Hour))
			synctest.Wait()
			q.queue.ShutDown()
		}
		if got, want := theirs.metrics.longest, (time.Hour + time.Minute).Seconds(); got != want {
			t.Errorf("client-go: longest running is %v, want %v", got, want)
		}
		if got, want := ours.metrics.longest, time.Hour.Seconds(); got != want {
			t.Errorf("ours: longest running is %v, want %v", got, want)
		}
		if theirs.metrics.unfinished != ours.metrics.unfinished {
			t.Errorf("unfinished work: client-go %v, ours %v", theirs.metrics.unfinished, ours.metrics.unfinished)
		}
	})
}

// faultyProvider has a latency that panics, and lacks the other metrics, or some of them.
type faultyProvider struct {
	peer.MetricsProvider
	panics bool
}

func (faultyProvider) NewDepthMetric(string) peer.GaugeMetric { return nil }

func (p faultyProvider) NewLatencyMetric(name string) peer.HistogramMetric {
	if p.panics {
		return recorded{&recorder{}, func(float64) { panic("no latency today") }}
	}
	return p.MetricsProvider.NewLatencyMetric(name)
}

// TestMetricIsMissing: a provider that leaves a metric out makes every Add to client-go's queue panic.
func TestMetricIsMissing(t *testing.T) {
	provider := faultyProvider{MetricsProvider: &recorder{}}
	theirs := peer.NewTypedWithConfig(peer.TypedQueueConfig[string]{Name: "faulty", MetricsProvider: provider})
	defer theirs.ShutDown()
	if !panicks(func() { theirs.Add("a") }) {
		t.Error("client-go: Add did not panic")
	}
	ours := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: "faulty", MetricsProvider: ourProvider{provider}})
	defer ours.ShutDown()
	if panicks(func() { ours.Add("a") }) || ours.Len() != 1 {
		t.Errorf("ours: queued: %d, want 1", ours.Len())
	}
}

// noDepth is faultyProvider with a depth, so that it is the latency that panics.
type noDepth struct{ faultyProvider }

func (p noDepth) NewDepthMetric(name string) peer.GaugeMetric {
	return p.MetricsProvider.NewDepthMetric(name)
}

// TestMetricPanics: when a metric panics during Get, client-go has taken the key from the line and given
// it to nobody; as it counts as queued still, it can never be added again. Ours is queued again.
func TestMetricPanics(t *testing.T) {
	provider := noDepth{faultyProvider{MetricsProvider: &recorder{}, panics: true}}
	theirs := peer.NewTypedWithConfig(peer.TypedQueueConfig[string]{Name: "faulty", MetricsProvider: provider})
	ours := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: "faulty", MetricsProvider: ourProvider{provider}})
	for _, q := range []peer.TypedInterface[string]{theirs, ours} {
		defer q.ShutDown()
		q.Add("a")
		if !panicks(func() { q.Get() }) {
			t.Error("Get did not panic")
		}
		q.Add("a")
	}
	if n := theirs.Len(); n != 0 {
		t.Errorf("client-go: %d keys are queued, want none", n)
	}
	if n := ours.Len(); n != 1 {
		t.Errorf("ours: %d keys are queued, want 1", n)
	}
}

// TestGetIsInterrupted: a Get of client-go's queue returns when there is a key or a shutdown
// (kubernetes/kubernetes#131185). Ours can be told to give up.
func TestGetIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		theirs, ours := queues()
		if _, ok := theirs.(workqueue.Extended[string]); ok {
			t.Error("client-go: has GetContext")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := ours.(workqueue.Extended[string]).GetContext(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("ours: %v, want %v", err, context.DeadlineExceeded)
		}
	})
}
