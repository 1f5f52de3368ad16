// Package shardingprom shows the numbers of a member of package sharding as metrics of Prometheus:
//
//	registry.MustRegister(shardingprom.NewCollector(member, map[string]shardingprom.Queue{"websites": queue}))
//
// All metrics have the label group. They are read when they are scraped.
package shardingprom

import (
	"errors"
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyedqueue/workqueue/sharding"
)

// Queue is a [sharding.Queue] of keys of any type.
type Queue interface {
	KeysOfOthers() uint64
	Unlisted() (slots int, age time.Duration)
}

// metric is one of the member's numbers.
type metric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(s stats) float64
}

type stats = *sharding.Stats

type collector struct {
	member  *sharding.Member
	queues  map[string]Queue
	metrics []metric
	// Those of each queue.
	ofOthers, unlisted, unlistedAge *prometheus.Desc
}

// NewCollector returns a collector of the member's metrics, and of those of its queues, whose names it gives
// to the label name. The queues may be nil. It keeps the member and the queues. It panics if member is nil.
func NewCollector(member *sharding.Member, queues map[string]Queue) prometheus.Collector {
	if member == nil {
		panic("shardingprom: the member is nil: make the collector after sharding.Join has returned one")
	}
	c := &collector{member: member, queues: maps.Clone(queues)}
	group := prometheus.Labels{"group": member.Stats().Group}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("workqueue_sharding_"+name, help, labels, group)
	}
	c.ofOthers = desc("keys_of_others_total",
		"Total number of adds and queued keys that were dropped because another member has their slots", "name")
	c.unlisted = desc("unlisted_slots", "Slots of this member whose keys are not listed yet", "name")
	c.unlistedAge = desc("unlisted_seconds",
		"How long the first of these slots has been waiting: a listing hangs or fails if that grows", "name")
	const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue
	add := func(kind prometheus.ValueType, name, help string, value func(s stats) float64) {
		c.metrics = append(c.metrics, metric{desc(name, help), kind, value})
	}
	add(gauge, "in_touch", "1 if this member is in touch with its group, so that it may hold slots, otherwise 0",
		func(s stats) float64 { return number(s.InTouch) })
	add(gauge, "table_refused", "1 if slots cannot move, as this member cannot write the table for a lease, "+
		"or mark the record of a dead member, otherwise 0",
		func(s stats) float64 {
			return number(s.InTouch && s.Err != nil && !errors.Is(s.Err, sharding.ErrNoQueue))
		})
	add(gauge, "queues", "Queues of this member; if others have more, it leaves keys of its slots unhandled",
		func(s stats) float64 { return float64(s.Queues) })
	add(gauge, "slots", "Slots of the group: all members together should hold that many",
		func(s stats) float64 { return float64(s.Slots) })
	add(gauge, "members", "Members of the group that are alive, as this one sees it",
		func(s stats) float64 { return float64(s.Members) })
	add(gauge, "slots_held", "Slots that this member holds", func(s stats) float64 { return float64(s.Held) })
	add(gauge, "slots_stopping", "Slots that this member holds and that are about to move to another one",
		func(s stats) float64 { return float64(s.Stopping) })
	add(counter, "slots_gained_total", "Total number of slots that this member has got",
		func(s stats) float64 { return float64(s.Gained) })
	add(counter, "slots_handed_over_total", "Total number of slots that this member has handed over",
		func(s stats) float64 { return float64(s.HandedOver) })
	add(counter, "slots_lost_total", "Total number of slots that were lost because this member was not valid",
		func(s stats) float64 { return float64(s.Lost) })
	add(counter, "slots_kept_total", "Total number of slots that were kept because a handler did not return",
		func(s stats) float64 { return float64(s.Kept) })
	add(counter, "lost_leases_total", "Total number of times that others took this member for dead",
		func(s stats) float64 { return float64(s.LostLeases) })
	add(counter, "handover_seconds_total", "Total time that handovers took until the last handler had returned",
		func(s stats) float64 { return s.HandoverTime.Seconds() })
	add(gauge, "longest_handover_seconds", "Longest time of a handover until the last handler had returned",
		func(s stats) float64 { return s.LongestHandover.Seconds() })
	return c
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(descs chan<- *prometheus.Desc) {
	for _, m := range c.metrics {
		descs <- m.desc
	}
	for _, d := range []*prometheus.Desc{c.ofOthers, c.unlisted, c.unlistedAge} {
		descs <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(metrics chan<- prometheus.Metric) {
	s := c.member.Stats()
	for _, m := range c.metrics {
		metrics <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(&s))
	}
	for name, queue := range c.queues {
		slots, age := queue.Unlisted()
		ofOthers := float64(queue.KeysOfOthers())
		metrics <- prometheus.MustNewConstMetric(c.ofOthers, prometheus.CounterValue, ofOthers, name)
		metrics <- prometheus.MustNewConstMetric(c.unlisted, prometheus.GaugeValue, float64(slots), name)
		metrics <- prometheus.MustNewConstMetric(c.unlistedAge, prometheus.GaugeValue, age.Seconds(), name)
	}
}
