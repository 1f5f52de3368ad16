package sharding

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/priorityqueue"
)

// readsStats is a provider whose queues keep times, and which makes no metrics.
type readsStats struct{ workqueue.MetricsProvider }

func (readsStats) HistogramBounds() []float64                { return nil }
func (readsStats) WatchQueue(string, func() workqueue.Stats) {}

// A worker over a sharded queue learns when its keys were added.
func TestAddedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, provider := range []workqueue.MetricsProvider{readsStats{}, nil} {
			inner := priorityqueue.New(priorityqueue.Config[string]{Name: "q", MetricsProvider: provider})
			q := mustQueue[string](inner, holdingAll(1), QueueConfig[string]{Keys: noKeys[string]})
			q.Add("a")
			time.Sleep(time.Second)
			q.Get()
			q.Add("a")
			at := q.AddedAt("a")
			if provider != nil && time.Since(at) != time.Second || provider == nil && !at.IsZero() {
				t.Errorf("with %T: added %v ago", provider, time.Since(at))
			}
			q.Done("a")
			q.ShutDown()
		}
	})
}

// The contexts of handlers end before their slot is kept, however late the member looks.
func TestContextsEndBeforeTheSlotIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mustJoin(t, Memory(), Config{Name: "a", Slots: 1, HandoverTimeout: time.Second})
		time.Sleep(5 * time.Second)
		q := newQueueOf(m, QueueConfig[string]{})
		defer q.ShutDown()
		synctest.Wait()
		q.Add("a")
		key, _ := q.Get()
		ctx, release := q.Lease(t.Context(), key)
		defer release()
		m.mu.Lock()
		m.setState(0, stopping)
		now := m.now()
		m.slots[0].stoppingSince = now - 2*time.Second // It was busy all that time.
		m.endTimedOutLocked(now)
		for _, e := range m.mu.effects.toEnd {
			e.tenure.end(e.cause)
		}
		m.mu.effects = effects{}
		keep := m.slots[0].keepUntil
		m.setState(0, serving)
		m.mu.Unlock()
		if ctx.Err() == nil || keep != 0 {
			t.Errorf("the context: %v, the slot is kept until %v", ctx.Err(), keep)
		}
		q.Done(key)
	})
}

// A cycle allocates nothing, and a handler's context only itself.
func TestFewAllocations(t *testing.T) {
	q := newQueueOf(holdingAll(256), QueueConfig[namespacedName]{})
	key := namespacedName{"namespace", "name"}
	cycle := func(withLease bool) float64 {
		return testing.AllocsPerRun(1000, func() {
			q.Add(key)
			got, _ := q.Get()
			if withLease {
				_, release := q.Lease(t.Context(), got)
				defer release()
			}
			q.Done(got)
		})
	}
	if n := cycle(false); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if n := cycle(true); n > 12 {
		t.Errorf("%v allocations with Lease", n)
	}
}
