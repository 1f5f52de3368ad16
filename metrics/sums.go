package metrics

import (
	"cmp"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/worker"
)

// NewQueueSet returns an empty set of queues.
func NewQueueSet() *Set[workqueue.Stats] { return newSet(addQueue, endQueue) }

// NewPoolSet returns an empty set of pools.
func NewPoolSet() *Set[worker.Stats] {
	return newSet(func(sum *worker.Stats, part worker.Stats) { *sum = sum.Plus(part) }, endPool)
}

// endPool reports whether a pool has ended. Then its gauges end as well: another pool of that name may have
// its keys by now.
func endPool(st *worker.Stats) bool {
	if st.Ended {
		st.Looping, st.OnHold, st.Failing, st.GivenUpKeys, st.OldestUnanswered = 0, 0, 0, 0, 0
		st.BusiestShare, st.ListedAt = 0, time.Time{}
	}
	return st.Ended
}

// endQueue reports whether a queue was shut down and has no key left. Then its gauges end as well.
func endQueue(st *workqueue.Stats) bool {
	if !st.ShuttingDown || st.Queued > 0 || st.Processing > 0 || st.Waiting > 0 {
		return false
	}
	st.ByPriority, st.Paused, st.OnHold, st.Blocked, st.OldestQueued, st.Failing = nil, false, 0, 0, 0, 0
	if s := sharedOf(st); s != nil {
		st.Shared = &leasing.Stats{
			Errors: s.Errors, LostLeases: s.LostLeases, LostDones: s.LostDones, CallDuration: s.CallDuration,
		}
	}
	return true
}

// addQueue adds the keys of two queues in memory. Two parts of a shared queue each know the keys of the whole
// queue, except of those on hold.
func addQueue(sum *workqueue.Stats, part workqueue.Stats) {
	combine := func(a, b int) int { return a + b }
	if isShared(sum) && isShared(&part) {
		combine = func(a, b int) int { return max(a, b) }
	}
	sum.Queued = combine(sum.Queued, part.Queued)
	sum.Blocked = combine(sum.Blocked, part.Blocked)
	sum.Processing = combine(sum.Processing, part.Processing)
	sum.Again = combine(sum.Again, part.Again)
	sum.Waiting = combine(sum.Waiting, part.Waiting)
	sum.Failing = combine(sum.Failing, part.Failing)
	sum.Paused = sum.Paused || part.Paused
	sum.OnHold += part.OnHold
	sum.Adds += part.Adds
	sum.Retries += part.Retries
	sum.Dropped += part.Dropped
	sum.UnmatchedDones += part.UnmatchedDones
	sum.OldestQueued = max(sum.OldestQueued, part.OldestQueued)
	sum.LongestRunning = max(sum.LongestRunning, part.LongestRunning)
	sum.UnfinishedWork += part.UnfinishedWork
	sum.Latency = sum.Latency.Plus(part.Latency)
	sum.WorkDuration = sum.WorkDuration.Plus(part.WorkDuration)
	sum.ByPriority = addPriorities(sum.ByPriority, part.ByPriority)
	if shared := addShared(sharedOf(sum), sharedOf(&part)); shared != nil {
		sum.Shared = shared
	}
}

// addShared adds what each process counts for itself. What they see of the whole queue is the same for all.
func addShared(a, b *leasing.Stats) *leasing.Stats {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	return &leasing.Stats{
		Outage:       a.Outage || b.Outage,
		Unsent:       a.Unsent + b.Unsent,
		Errors:       a.Errors + b.Errors,
		LostLeases:   a.LostLeases + b.LostLeases,
		LostDones:    a.LostDones + b.LostDones,
		CallDuration: a.CallDuration.Plus(b.CallDuration),
		GivenUp:      max(a.GivenUp, b.GivenUp),
		Repaired:     max(a.Repaired, b.Repaired),
		PausedBy:     cmp.Or(a.PausedBy, b.PausedBy),
		PausedSince:  cmp.Or(a.PausedSince, b.PausedSince),
	}
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
		isSame := func(known workqueue.PriorityDepth) bool { return known.Priority == d.Priority }
		i := slices.IndexFunc(sum.Depths, isSame)
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
