package shardingprom_test

import (
	"context"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/sharding"
	"github.com/keyedqueue/workqueue/sharding/shardingprom"
)

// values gathers all metrics. It fails the test if one lacks the label group.
func values(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]float64)
	for _, f := range families {
		m := f.GetMetric()[0]
		if l := m.GetLabel()[0]; l.GetName() != "group" || l.GetValue() != "test" {
			t.Errorf("%s has the labels %v", f.GetName(), m.GetLabel())
		}
		found[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
	}
	return found
}

func TestCollector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := sharding.Memory()
		join := func(name string) *sharding.Member {
			m, err := sharding.Join(t.Context(), store, sharding.Config{Group: "test", Name: name})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
			return m
		}
		leave := func(m *sharding.Member) {
			if err := m.Leave(context.Background()); err != nil {
				t.Error(err)
			}
		}
		a := join("a")
		queue := newQueue(t, a, noKeys)
		defer queue.ShutDown()
		time.Sleep(2 * time.Second) // until the slots are here and the keys are listed
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(shardingprom.NewCollector(a, map[string]shardingprom.Queue{"numbers": queue}))
		want := func(want map[string]float64) {
			t.Helper()
			got := values(t, registry)
			for name, value := range want {
				if v, ok := got["workqueue_sharding_"+name]; !ok || v != value {
					t.Errorf("workqueue_sharding_%s is %v (%t), want %v", name, v, ok, value)
				}
			}
		}
		want(map[string]float64{
			"in_touch": 1, "table_refused": 0, "members": 1, "queues": 1, "slots": 256, "unlisted_slots": 0, "unlisted_seconds": 0, "slots_held": 256, "slots_stopping": 0,
			"slots_lost_total": 0, "slots_kept_total": 0, "lost_leases_total": 0,
		})
		b := join("b")
		queueOfB := newQueue(t, b, noKeys)
		defer queueOfB.ShutDown()
		time.Sleep(5 * time.Second)
		want(map[string]float64{"members": 2, "slots_held": 128})
		leave(b)
		time.Sleep(5 * time.Second)
		leave(a)
		want(map[string]float64{"in_touch": 0, "slots_held": 0})
	})
}

func noKeys(context.Context) (iter.Seq[int], error) { return nil, nil }

func newQueue(t *testing.T, m *sharding.Member,
	keys func(context.Context) (iter.Seq[int], error)) sharding.Queue[int] {
	t.Helper()
	inner := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[int]())
	q, err := sharding.NewQueue(inner, m, sharding.QueueConfig[int]{Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// A listing that hangs, and a member that has no queue, and so no slots, are in the metrics. Such a member is in touch.
func TestTroubleIsVisible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := sharding.Join(t.Context(), sharding.Memory(), sharding.Config{Group: "test"})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		queues := make(map[string]shardingprom.Queue)
		gather := func() map[string]float64 {
			registry := prometheus.NewPedanticRegistry()
			registry.MustRegister(shardingprom.NewCollector(m, queues))
			return values(t, registry)
		}
		got := gather()
		if got["workqueue_sharding_queues"] != 0 || got["workqueue_sharding_slots_held"] != 0 || got["workqueue_sharding_in_touch"] != 1 {
			t.Error(got)
		}
		queues["numbers"] = newQueue(t, m, func(ctx context.Context) (iter.Seq[int], error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		time.Sleep(time.Minute)
		got = gather()
		if got["workqueue_sharding_queues"] != 1 || got["workqueue_sharding_unlisted_slots"] != 256 || got["workqueue_sharding_unlisted_seconds"] < 55 {
			t.Error(got)
		}
		if err := m.Leave(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func TestCollectorNeedsMember(t *testing.T) {
	err := prometheus.NewRegistry().Register(shardingprom.NewCollector(nil, nil))
	if err == nil || !strings.Contains(err.Error(), "the member is nil") {
		t.Error(err)
	}
}
