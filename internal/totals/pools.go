package totals

import "github.com/keyedqueue/workqueue/worker"

// Pools returns an empty set of worker pools.
func Pools() *Set[worker.Stats] {
	return &Set[worker.Stats]{add: addPool, ended: func(st *worker.Stats) bool { return st.Ended }}
}

func addPool(sum *worker.Stats, part worker.Stats) {
	sum.Wanted += part.Wanted
	sum.Living += part.Living
	sum.Busy += part.Busy
	sum.Stuck += part.Stuck
	sum.Handled += part.Handled
	sum.Failed += part.Failed
	sum.Panicked += part.Panicked
	sum.TimedOut += part.TimedOut
	sum.Requeued += part.Requeued
	sum.RequeuedAfter += part.RequeuedAfter
	sum.Dropped += part.Dropped
	sum.Failing += part.Failing
	sum.Durations = AddHistograms(sum.Durations, part.Durations)
}
