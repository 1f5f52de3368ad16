package totals

import (
	"slices"

	"github.com/keyedqueue/workqueue"
)

// Queues returns an empty set of queues.
func Queues() *Set[workqueue.Stats] {
	return &Set[workqueue.Stats]{add: addQueue, ended: queueEnded, late: lateDones}
}

// queueEnded reports whether a queue was shut down and has no key left.
func queueEnded(st *workqueue.Stats) bool {
	if !st.ShuttingDown || st.Queued > 0 || st.Processing > 0 || st.Waiting > 0 {
		return false
	}
	st.ByPriority, st.Paused = nil, false
	return true
}

// lateDones returns how many unmatched Dones were called between two readings of a queue that has ended. Nothing else
// can change then.
func lateDones(before, now workqueue.Stats) workqueue.Stats {
	return workqueue.Stats{UnmatchedDones: now.UnmatchedDones - before.UnmatchedDones}
}

func addQueue(sum *workqueue.Stats, part workqueue.Stats) {
	sum.Queued += part.Queued
	sum.Blocked += part.Blocked
	sum.Paused = sum.Paused || part.Paused
	sum.Processing += part.Processing
	sum.Again += part.Again
	sum.Waiting += part.Waiting
	sum.Adds += part.Adds
	sum.Retries += part.Retries
	sum.Dropped += part.Dropped
	sum.UnmatchedDones += part.UnmatchedDones
	sum.OldestQueued = max(sum.OldestQueued, part.OldestQueued)
	sum.LongestRunning = max(sum.LongestRunning, part.LongestRunning)
	sum.UnfinishedWork += part.UnfinishedWork
	sum.Latency = AddHistograms(sum.Latency, part.Latency)
	sum.WorkDuration = AddHistograms(sum.WorkDuration, part.WorkDuration)
	sum.ByPriority = addPriorities(sum.ByPriority, part.ByPriority)
}

// AddHistograms returns the sum of two histograms with the same bounds. Each may be nil.
func AddHistograms(a, b *workqueue.Histogram) *workqueue.Histogram {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	counts := slices.Clone(a.Counts)
	for i, n := range b.Counts {
		counts[i] += n
	}
	return &workqueue.Histogram{Bounds: a.Bounds, Counts: counts, Sum: a.Sum + b.Sum}
}

// MaxPriorities is the number of priorities for which a sum has a number of their own, as in the Stats of one
// queue.
const MaxPriorities = 25

func addPriorities(a, b *workqueue.PriorityDepths) *workqueue.PriorityDepths {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	sum := &workqueue.PriorityDepths{Depths: slices.Clone(a.Depths), Others: a.Others + b.Others}
	for _, d := range b.Depths {
		i := slices.IndexFunc(sum.Depths, func(known workqueue.PriorityDepth) bool { return known.Priority == d.Priority })
		switch {
		case i >= 0:
			sum.Depths[i].Queued += d.Queued
		case len(sum.Depths) < MaxPriorities:
			sum.Depths = append(sum.Depths, d)
		default:
			sum.Others += d.Queued
		}
	}
	return sum
}
