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
	Unlisted() (slots int, age time.Duration)
}

// Collector collects the metrics of a member and its queues.
type Collector struct {
	member *sharding.Member
	queues map[string]Queue
}

// NewCollector returns a collector of the member's metrics, and of those of its queues, whose names it gives
// to the label name. The queues may be nil. It keeps the member and the queues. If member is nil, a registry
// does not take the collector, and its Register returns an error.
func NewCollector(member *sharding.Member, queues map[string]Queue) *Collector {
	return &Collector{member, maps.Clone(queues)}
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(descs chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, descs) }

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(metrics chan<- prometheus.Metric) {
	if c.member == nil {
		err := errors.New("shardingprom: the member is nil: make the collector after sharding.Join")
		metrics <- prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(err), err)
		return
	}
	const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue
	s := c.member.Stats()
	send := func(kind prometheus.ValueType, value float64, name, help string, queue ...string) {
		labels := []string{"name"}[:len(queue)]
		desc := prometheus.NewDesc("workqueue_sharding_"+name, help, labels, prometheus.Labels{"group": s.Group})
		metrics <- prometheus.MustNewConstMetric(desc, kind, value, queue...)
	}
	send(gauge, number(s.InTouch), "in_touch",
		"1 if this member is in touch with its group, so that it may hold slots, otherwise 0")
	send(gauge, number(s.InTouch && s.Err != nil && !errors.Is(s.Err, sharding.ErrNoQueue)), "table_refused",
		"1 if this member cannot write the table, or mark the record of a dead one, for a lease, otherwise 0")
	send(gauge, float64(s.Queues), "queues",
		"Queues of this member; with fewer than others have, it leaves keys of its slots unhandled")
	send(gauge, float64(s.Slots), "slots", "Slots of the group: all members together should hold that many")
	send(gauge, float64(s.Members), "members", "Members of the group that are alive, as this one sees it")
	send(gauge, float64(s.Held), "slots_held", "Slots that this member holds")
	send(gauge, float64(s.Stopping), "slots_stopping", "Slots that this member holds and that are about to move")
	send(counter, float64(s.Lost), "slots_lost_total",
		"Total number of slots that this member lost without a handover: out of touch, or given to others")
	send(counter, float64(s.Kept), "slots_kept_total",
		"Total number of times that a slot was not handed over because a handler did not return")
	send(counter, float64(s.LostLeases), "lost_leases_total",
		"Total number of times that this member lost its record: others took it for dead, or it was deleted")
	for name, queue := range c.queues {
		slots, age := queue.Unlisted()
		send(gauge, float64(slots), "unlisted_slots",
			"Slots that this member has got and whose keys are not listed yet", name)
		send(gauge, age.Seconds(), "unlisted_seconds",
			"How long the first of these slots has been waiting: a listing hangs or fails if that grows", name)
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
