package prom

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/keyedqueue/workqueue"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Queues with priorities have one metric more than others, with a label more. A queue tells few priorities
// by themselves, and so do all queues of a name together.

const (
	priorityLabel = "priority"
	// otherPriorities is the value of the label for keys of all other priorities.
	otherPriorities = "other"
	// maxPriorities is how many values the label has for one name, besides.
	maxPriorities = 10
)

// priorities counts the queued keys of one name by priority.
type priorities struct {
	queued map[int]int
	others int
}

func (p *priorities) add(d *workqueue.PriorityDepths) {
	if d == nil {
		return
	}
	if p.queued == nil {
		p.queued = map[int]int{}
	}
	p.others += d.Others
	for _, depth := range d.Depths {
		if _, known := p.queued[depth.Priority]; known || len(p.queued) < maxPriorities {
			p.queued[depth.Priority] += depth.Queued
		} else {
			p.others += depth.Queued
		}
	}
}

// samples returns the metrics in the order of their labels. They are none if no queue of the name has
// priorities.
func (p *priorities) samples(desc *prometheus.Desc, labels []*dto.LabelPair) []sample {
	if p.queued == nil {
		return nil
	}
	queued := map[string]int{otherPriorities: p.others}
	for priority, n := range p.queued {
		queued[strconv.Itoa(priority)] = n
	}
	var samples []sample
	for _, priority := range slices.Sorted(maps.Keys(queued)) {
		n := float64(queued[priority])
		samples = append(samples, sample{
			desc: desc, labels: withPriority(labels, priority), gauge: &dto.Gauge{Value: &n},
		})
	}
	return samples
}

// withPriority returns labels and one more, sorted by name as a registry wants them.
func withPriority(labels []*dto.LabelPair, priority string) []*dto.LabelPair {
	name := priorityLabel
	all := append(slices.Clone(labels), &dto.LabelPair{Name: &name, Value: &priority})
	slices.SortFunc(all, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
	return all
}
