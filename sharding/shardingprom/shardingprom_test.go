package shardingprom_test

import (
	"context"
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
		queue := sharding.NewQueue(workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[int]()), a,
			sharding.QueueConfig[int]{Keys: func(context.Context) ([]int, error) { return nil, nil }})
		defer queue.ShutDown()
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
			"in_touch": 1, "members": 1, "slots_held": 256, "slots_stopping": 0, "slots_gained_total": 256, "slots_handed_over_total": 0,
			"slots_lost_total": 0, "slots_kept_total": 0, "lost_leases_total": 0, "handover_seconds_total": 0, "longest_handover_seconds": 0,
			"keys_of_others_total": 0,
		})
		b := join("b")
		others := 0
		for key := range 100 {
			if !queue.Holds(key) {
				others++
			}
			queue.Add(key)
		}
		want(map[string]float64{
			"members": 2, "slots_held": 128, "slots_handed_over_total": 128, "keys_of_others_total": float64(others),
		})
		leave(b)
		time.Sleep(5 * time.Second)
		leave(a)
		want(map[string]float64{"in_touch": 0, "slots_held": 0})
	})
}
