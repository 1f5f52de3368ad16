package debug

import (
	"net/http"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/worker"
)

const (
	// patience is for how long a queue waits for its server.
	patience = time.Second
	// wedgedAfter is after how long calls of all workers are a reason to restart the program.
	wedgedAfter = 10 * time.Minute
)

// reading is what an entry's queue and pools report at one moment.
type reading struct {
	entry *entry
	at    time.Time // right before they were asked
	stats workqueue.Stats
	pools []poolReading
	// workers is the sum of the pools' numbers.
	workers worker.Stats
	// unanswered is the key of the oldest change of the pools, or nil if it is not known.
	unanswered *worker.UnansweredKey[any]
	// wedged is why a restart of the program would help, as a pool says, or nil.
	wedged error
	// pausedGroups are those of the queue, sorted.
	pausedGroups []string
	// minute has the rates of the last minute.
	minute rates

	// What follows is set if keys were asked for, up to limit of each state: see keysIn.

	limit    int
	snapshot workqueue.Snapshot[any]
	kept     []operate.GivenUpKey[any]
	facts    []operate.Fact
	busiest  []worker.BusyKey[any]
	// missing is why not all of its keys are known, or nil.
	missing error
	// looked counts the keys that keysIn has gone over, and more reports that it could not list all. With
	// atHand it asks no server for more keys than were read.
	looked       int
	more, atHand bool
}

type poolReading struct {
	pool  *worker.Inspector
	stats worker.Stats
}

// read asks e's queue and pools for their numbers, which they have at hand, and for up to limit keys of each
// state. For these a queue may ask its server, which takes patience at most.
func (h *Handler) read(e *entry, limit int) *reading {
	r := &reading{entry: e, at: h.clock.Now(), limit: limit}
	if e.hasQueue() {
		r.readQueue()
	}
	for _, p := range h.poolsOf(e) {
		if !r.readPool(p) {
			h.removePool(p)
		}
	}
	isWorking := func(p poolReading) bool { return !p.stats.Paused }
	if pausable := r.pausablePools(); len(pausable) > 0 && !slices.ContainsFunc(pausable, isWorking) {
		r.stats.Paused, r.stats.PausedUntil = true, r.workers.PausedUntil
	}
	m := r.measure()
	e.history.begin(m)
	r.minute = e.history.rates(m)
	return r
}

func (r *reading) readQueue() {
	q := r.entry.queue
	r.stats = q.Stats()
	if q.PausedGroups != nil {
		r.pausedGroups = slices.Sorted(slices.Values(q.PausedGroups()))
	}
	if r.limit == 0 {
		return
	}
	if q.Facts != nil {
		r.facts = q.Facts()
	}
	r.askServer(func() { r.snapshot = q.Snapshot(r.limit) })
	if q.GivenUp != nil {
		r.askServer(func() { r.kept = q.GivenUp(max(r.limit, searchLimit)) })
	}
}

// readPool returns false if the pool has ended.
func (r *reading) readPool(p *worker.Inspector) bool {
	s := p.Snapshot(min(r.limit, busiestKeys))
	if s.Stats.Ended {
		return false
	}
	r.pools = append(r.pools, poolReading{p, s.Stats})
	if p.Wedged != nil && r.wedged == nil {
		r.wedged = p.Wedged(wedgedAfter)
	}
	if s.Stats.OldestUnanswered > r.workers.OldestUnanswered {
		r.unanswered = s.Unanswered
	}
	r.busiest = append(r.busiest, s.Busiest...)
	if len(r.pools) == 1 {
		r.workers = s.Stats
	} else {
		r.workers = r.workers.Plus(s.Stats)
	}
	return true
}

// readAll reads the numbers of all queues. It forgets queues and pools that have ended.
func (h *Handler) readAll() []*reading {
	entries := h.entries()
	live := make([]*reading, 0, len(entries))
	for _, e := range entries {
		r := h.read(e, 0)
		if r.hasEnded() {
			h.remove(e)
		} else if e.hasQueue() || len(r.pools) > 0 {
			live = append(live, r)
		}
	}
	return live
}

// hasEnded reports whether the queue was shut down and has no key left.
func (r *reading) hasEnded() bool {
	s := r.stats
	return s.ShuttingDown && s.Queued == 0 && s.Processing == 0 && s.Waiting == 0
}

// inWork returns how many keys workers have, without those on hold.
func (r *reading) inWork() int { return max(0, r.stats.Processing-r.stats.OnHold) }

// isUnworked reports that keys are queued in a queue that nobody has taken a key from and no pool works, as
// on a replica that waits to be the leader. Such a queue is not late. Without times that is not known.
func (r *reading) isUnworked() bool {
	s := r.stats
	return s.Queued > 0 && s.Processing == 0 && s.Latency != nil && s.Latency.Count() == 0 &&
		r.workers.Wanted == 0 && !s.Paused
}

// failing returns how many keys fail.
func (r *reading) failing() int { return max(r.stats.Failing, r.workers.Failing) }

// givenUp returns how many keys are given up: those that the pools know, or of a queue on a server those of
// all processes.
func (r *reading) givenUp() int {
	if s := leasing.StatsOf(r.stats); s != nil {
		return max(s.GivenUp, r.workers.GivenUpKeys)
	}
	return r.workers.GivenUpKeys
}

// These are why keys of a queue are not known.
var (
	errSlow = refuse(http.StatusServiceUnavailable,
		"The queue takes more than a second to answer. Some of its keys are not known.")
	errOutage = refuse(http.StatusServiceUnavailable,
		"The queue does not reach its server. Its numbers are those of its last answer, its keys are not known.")
)

// askServer calls f, for which the queue may ask its server, unless an earlier call got no answer.
func (r *reading) askServer(f func()) {
	if r.missing != nil {
		return
	}
	began := time.Now()
	f()
	r.noteMissing(began)
}

// noteMissing notes why the queue's server may not have answered since began (in real time): the queue
// reports an outage, or it took so long that the queue has given up. It returns r.missing.
func (r *reading) noteMissing(began time.Time) error {
	if !r.entry.hasQueue() {
		return r.missing
	}
	shared := leasing.StatsOf(r.entry.queue.Stats())
	switch {
	case shared == nil:
	case shared.Outage:
		r.missing = errOutage
	case r.missing == nil && time.Since(began) >= patience:
		r.missing = errSlow
	}
	return r.missing
}

// hasOutage reports that the queue does not reach its server.
func (r *reading) hasOutage() bool {
	shared := leasing.StatsOf(r.stats)
	return r.missing == errOutage || shared != nil && shared.Outage
}

// isPartial reports that not all keys that keysIn was asked for are known.
func (r *reading) isPartial() bool { return r.more || r.missing != nil }

func (r *reading) hasPools() bool { return len(r.pools) > 0 }

// anyPool calls f for each pool, and reports whether it is true for one. A pool that only has the name of
// this queue may have keys of another type. Then it panics, and knows nothing of the key.
func (r *reading) anyPool(f func(*worker.Inspector) bool) (is bool) {
	for _, p := range r.pools {
		ignorePanic(func() { is = f(p.pool) || is })
	}
	return is
}

// ignorePanic calls f, which uses a key that may be of a wrong type.
func ignorePanic(f func()) {
	defer func() { _ = recover() }()
	f()
}
