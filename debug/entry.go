package debug

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// entry is what the list has a row for: a queue, with the pools that have its name, or pools whose queue is not
// known.
type entry struct {
	id, name string
	// queue is zero if only pools are known. Its functions are foreign code and may panic.
	queue   workqueue.Inspector
	history history
}

// pool is a worker pool, which names its queue.
type pool struct {
	snapshot func(limit int) worker.Snapshot[any]
}

// reading is what an entry's queue and pools reported at one moment.
type reading struct {
	entry *entry
	at    time.Time // right before they were asked
	stats workqueue.Stats
	pools []worker.Stats
	// err is what went wrong, or empty.
	err string
	// minute has the rates of the last minute. Only a report sets it.
	minute rates
}

func (e *entry) hasQueue() bool { return e.queue.Stats != nil }

func (e *entry) read() (s workqueue.Stats, err string) {
	if !e.hasQueue() {
		return s, ""
	}
	defer recovered("queue", &err)
	return e.queue.Stats(), ""
}

func (e *entry) readKeys(limit int) (s workqueue.Snapshot[any], err string) {
	if e.queue.Snapshot == nil {
		return s, ""
	}
	defer recovered("queue", &err)
	return e.queue.Snapshot(limit), ""
}

func (p *pool) read(limit int) (s worker.Snapshot[any], err string) {
	defer recovered("pool", &err)
	return p.snapshot(limit), ""
}

// recovered is deferred where foreign code runs. It reports the type of the value that the code panicked with, because
// the value may have methods that panic as well.
func recovered(what string, err *string) {
	if r := recover(); r != nil {
		*err = fmt.Sprintf("The %s panicked with a %T.", what, r)
	}
}

// ended reports whether a queue was shut down and has no key left.
func ended(s workqueue.Stats) bool {
	return s.ShuttingDown && s.Queued == 0 && s.Processing == 0 && s.Waiting == 0
}

// keys reads up to limit keys of each state from the queue and from its pools.
func (e *entry) keys(pools []*pool, limit int) (s workqueue.Snapshot[any], ps []worker.Snapshot[any], err string) {
	s, err = e.readKeys(limit)
	for _, p := range pools {
		snapshot, failure := p.read(limit)
		err = cmp.Or(err, failure)
		ps = append(ps, snapshot)
	}
	return s, ps, err
}

// sum adds up what pools count.
func sum(pools []worker.Stats) (all worker.Stats) {
	for _, p := range pools {
		all.Wanted += p.Wanted
		all.Living += p.Living
		all.Busy += p.Busy
		all.Stuck += p.Stuck
		all.Handled += p.Handled
		all.Failed += p.Failed
		all.Dropped += p.Dropped
		all.Failing += p.Failing
	}
	return all
}

// poolStats returns the Stats of those snapshots, by name.
func poolStats(snapshots []worker.Snapshot[any]) []worker.Stats {
	all := make([]worker.Stats, len(snapshots))
	for i, s := range snapshots {
		all[i] = s.Stats
	}
	slices.SortStableFunc(all, func(a, b worker.Stats) int { return cmp.Compare(a.Name, b.Name) })
	return all
}
