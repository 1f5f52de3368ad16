package debug

import (
	"context"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/worker"
)

// wedgedAfter is after how long calls of all workers are a reason to restart the program.
const wedgedAfter = 10 * time.Minute

// reading is a request's view of a queue: its numbers and those of its pools, read at At, and then what
// readKeys, a search or a keyWalk asks for.
type reading struct {
	// ctx ends when the answer must be there, and with its reader.
	ctx   context.Context
	entry *entry
	At    time.Time // right before they were asked
	Stats workqueue.Stats
	Pools []poolReading
	// Workers is the sum of the pools' numbers.
	Workers worker.Stats
	// Wedged is why a restart of the program would help, as a pool says, or nil.
	Wedged error
	// PausedGroups are those of the queue, sorted.
	PausedGroups []string
	// Minute has the rates of the last minute.
	Minute rates

	// lists are the first keys of each state, and keptAsGivenUp those that the queue itself keeps: see readKeys.
	lists         map[string]keyList
	keptAsGivenUp []operate.GivenUpKey[any]
	// missing is why not all that was asked for is known, or nil.
	missing error
}

type poolReading struct {
	worker.Stats
	pool *worker.Inspector
}

// read asks e's queue and pools for their numbers, which they have at hand.
func (h *Handler) read(ctx context.Context, e *entry) *reading {
	r := &reading{ctx: ctx, entry: e, At: h.clock.Now(), Stats: e.queue.Stats()}
	if s := leasing.StatsOf(r.Stats); s != nil && s.Outage {
		r.missing = errNoAnswer
	}
	if e.queue.PausedGroups != nil {
		r.PausedGroups = slices.Sorted(slices.Values(e.queue.PausedGroups()))
	}
	for _, p := range h.poolsOf(e) {
		if !r.readPool(p) {
			h.removePool(e, p)
		}
	}
	isWorking := func(p poolReading) bool { return !p.Paused }
	if pausable := r.pausablePools(); len(pausable) > 0 && !slices.ContainsFunc(pausable, isWorking) {
		r.Stats.Paused, r.Stats.PausedUntil = true, r.Workers.PausedUntil
	}
	r.Minute = e.history.rates(r.sample())
	return r
}

// readPool returns false if the pool has ended.
func (r *reading) readPool(p *worker.Inspector) bool {
	s := p.Stats()
	if s.Ended {
		return false
	}
	r.Pools = append(r.Pools, poolReading{s, p})
	if p.Wedged != nil && r.Wedged == nil {
		r.Wedged = p.Wedged(wedgedAfter)
	}
	if len(r.Pools) == 1 {
		r.Workers = s
	} else {
		r.Workers = r.Workers.Plus(s)
	}
	return true
}

// readAll reads the numbers of all queues. It forgets queues and pools that have ended.
func (h *Handler) readAll(ctx context.Context) []*reading {
	entries := h.entries()
	live := make([]*reading, 0, len(entries))
	for _, e := range entries {
		r := h.read(ctx, e)
		if hasEnded(r.Stats) {
			h.remove(e)
		} else if !e.forPools || len(r.Pools) > 0 {
			live = append(live, r)
		}
	}
	return live
}

// hasEnded reports whether a queue was shut down and has no key left.
func hasEnded(s workqueue.Stats) bool {
	return s.ShuttingDown && s.Queued == 0 && s.Processing == 0 && s.Waiting == 0
}

func (r *reading) ID() string   { return r.entry.id }
func (r *reading) Name() string { return r.entry.name }

// IsTimed reports that the queue reads the clock.
func (r *reading) IsTimed() bool { return r.Stats.Latency != nil }

// InWork returns how many keys workers have, without those on hold.
func (r *reading) InWork() int { return max(0, r.Stats.Processing-r.Stats.OnHold) }

// IsUnworked reports that keys are queued in a queue that nobody has taken a key from and no pool works, as
// on a replica that waits to be the leader. Such a queue is not late. Without times that is not known.
func (r *reading) IsUnworked() bool {
	s := r.Stats
	return s.Queued > 0 && s.Processing == 0 && s.Latency != nil && s.Latency.Count() == 0 &&
		r.Workers.Wanted == 0 && !s.Paused
}

// GivenUp returns how many keys are given up: those that the pools know, or of a queue on a server those of
// all processes.
func (r *reading) GivenUp() int {
	if s := leasing.StatsOf(r.Stats); s != nil {
		return max(s.GivenUp, r.Workers.GivenUpKeys)
	}
	return r.Workers.GivenUpKeys
}

// Pause says for how long the queue is still paused and, of a queue on a server, who has paused it.
func (r *reading) Pause() string {
	until := r.Stats.PausedUntil
	text := "paused" + when(!until.IsZero(), " for "+human(until.Sub(r.At))+" more")
	if s := leasing.StatsOf(r.Stats); s != nil && s.PausedBy != "" {
		text += ", by " + short(s.PausedBy, maxName) + " " + human(r.At.Sub(s.PausedSince)) + " ago"
	}
	return text
}

// eachPool calls f for each pool, and reports whether it was true for one.
func (r *reading) eachPool(f func(*worker.Inspector) bool) (is bool) {
	for _, p := range r.Pools {
		is = f(p.pool) || is
	}
	return is
}
