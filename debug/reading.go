package debug

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/metrics"
	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/worker"
)

const (
	// patience is how long a list waits while no queue answers.
	patience = time.Second
	// maxPatience is the deadline of a page, except for a search.
	maxPatience = 5 * time.Second
	// wedgedAfter is after how long calls of all workers are a reason to restart the program.
	wedgedAfter = 10 * time.Minute
	// readers is how many queues are read at once.
	readers = 64
)

// inWork returns how many keys workers have, without those on hold.
func (r *reading) inWork() int { return max(0, r.stats.Processing-r.stats.Held) }

// isUnworked reports that keys are queued in a queue that nobody has taken a key from and no pool works, as
// on a replica that waits to be the leader. Such a queue is not late. Without times that is not known.
func (r *reading) isUnworked() bool {
	s := r.stats
	return s.Queued > 0 && s.Processing == 0 && s.Latency != nil && s.Latency.Count() == 0 &&
		r.workers.Wanted == 0 && !s.Paused
}

// reading is what an entry's queue and pools reported at one moment. The one in entry.last is shared: copy it
// before a change.
type reading struct {
	entry *entry
	at    time.Time // right before they were asked
	began time.Time // the same in real time
	stats workqueue.Stats
	pools []poolReading
	// workers is the sum of the pools' numbers: without pools noWorkers, because a list has many such queues.
	workers *worker.Stats
	// unanswered is the key of the oldest change of the pools, or nil if it is not known.
	unanswered *worker.UnansweredKey[any]
	// wedged is why a restart of the program would help, as a pool says, or nil.
	wedged error
	// pausedGroups are those of the queue, sorted.
	pausedGroups []string

	// late: the queue did not answer, and the numbers are older.
	late bool
	// missing is why not all of its keys are known, or nil.
	missing error
	// err is the first panic, or nil.
	err error

	// looked counts the keys that visits have gone over.
	looked int
	// keys are as many as were asked for.
	keys *queueKeys
	// minute has the rates of the last minute.
	minute rates
}

// queueKeys is what a queue and its pools know of keys, and the queue's facts.
type queueKeys struct {
	workqueue.Snapshot[any]
	givenUp []operate.GivenUpKey[any]
	facts   []operate.Fact
	pools   []worker.Snapshot[any]
}

// noKeys are the keys of a reading that did not ask for any, and noWorkers the numbers of one without pools.
var (
	noKeys    queueKeys
	noWorkers worker.Stats
)

type poolReading struct {
	pool    *worker.Inspector
	stats   worker.Stats
	failing []worker.FailedKey[any] // as many as were read
}

// guarded calls f, which is foreign code, and reports whether it has panicked. It names the type of the
// value, because the value may have methods that panic as well.
func guarded(what string, f func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = refuse(http.StatusInternalServerError, "The %s panicked with a %T.", what, r)
		}
	}()
	f()
	return nil
}

// givenUp returns how many keys are given up: those that the pools know, or of a queue on a server those of
// all processes.
func (r *reading) givenUp() int {
	if s := leasing.StatsOf(r.stats); s != nil {
		return max(s.GivenUp, r.workers.GivenUpKeys)
	}
	return r.workers.GivenUpKeys
}

// hasPool reports whether p is one of the pools.
func (r *reading) hasPool(p *worker.Inspector) bool {
	return slices.ContainsFunc(r.pools, func(q poolReading) bool { return q.pool == p })
}

// hasEnded reports whether the queue was shut down and has no key left.
func (r *reading) hasEnded() bool {
	s := r.stats
	return !r.late && s.ShuttingDown && s.Queued == 0 && s.Processing == 0 && s.Waiting == 0
}

// guard calls f, which uses the queue, and notes if it has panicked.
func (r *reading) guard(f func()) {
	r.err = cmp.Or(r.err, guarded("queue", f))
}

// These are why keys of a queue are not known.
var (
	errLate = refuse(http.StatusServiceUnavailable, "The queue does not answer.")
	errSlow = refuse(http.StatusServiceUnavailable,
		"The queue takes more than a second to answer. Some of its keys are not known.")
	errOutage = refuse(http.StatusServiceUnavailable,
		"The queue does not reach its server. Its numbers are those of its last answer, its keys are not known.")
)

// hasOutage reports that the last attempt to reach the queue's server failed.
func (r *reading) hasOutage() bool {
	shared := leasing.StatsOf(r.stats)
	return shared != nil && shared.Outage
}

// noteMissing notes why the queue's server may not have answered since began (in real time): the queue
// reports an outage, or it took a second, after which a queue gives up. It returns r.missing.
func (r *reading) noteMissing(began time.Time) error {
	switch {
	case r.hasOutage():
		r.missing = errOutage
	case time.Since(began) >= patience:
		r.missing = cmp.Or(r.missing, errSlow)
	}
	return r.missing
}

// askQueue calls f, which asks the queue's server for something small, unless an earlier call got no answer.
// It notes a panic of f, and if the server has not answered.
func (r *reading) askQueue(f func()) {
	if r.missing != nil {
		return
	}
	began := time.Now()
	r.guard(f)
	r.noteMissing(began)
}

// read asks e's queue and pools for their numbers, and for up to limit keys of each state. They may block.
func (h *Handler) read(e *entry, limit int) *reading {
	r := &reading{entry: e, at: h.clock.Now(), began: time.Now(), keys: &noKeys, workers: &noWorkers}
	if limit > 0 {
		r.keys = new(queueKeys)
	}
	if e.hasQueue() {
		r.readQueue(limit)
	}
	r.readPools(h, limit)
	m := r.measure()
	e.history.begin(m)
	r.minute = e.history.rates(m)
	return r
}

func (r *reading) readQueue(limit int) {
	q := r.entry.queue
	if r.askQueue(func() { r.stats = q.Stats() }); r.err != nil {
		return
	}
	if q.PausedGroups != nil {
		r.guard(func() { r.pausedGroups = slices.Sorted(slices.Values(q.PausedGroups())) })
	}
	if limit == 0 {
		return
	}
	if q.Facts != nil {
		r.guard(func() { r.keys.facts = q.Facts() })
	}
	r.askQueue(func() {
		r.keys.Snapshot = q.Snapshot(limit)
		r.stats.Shared = cmp.Or(r.keys.Stats.Shared, r.stats.Shared) // It may have met an outage.
	})
	if q.GivenUp != nil {
		r.askQueue(func() { r.keys.givenUp = q.GivenUp(max(limit, searchLimit)) })
	}
}

func (r *reading) readPools(h *Handler, limit int) {
	for _, p := range h.poolsOf(r.entry) {
		var s worker.Snapshot[any]
		err := guarded("pool", func() {
			s = p.Snapshot(limit)
		})
		switch {
		case err != nil:
			r.err = cmp.Or(r.err, err)
		case s.Stats.Ended:
			h.removePool(p)
		default:
			r.pools = append(r.pools, poolReading{p, s.Stats, s.Failing})
			if p.Wedged != nil {
				r.err = cmp.Or(r.err, guarded("pool", func() { r.wedged = cmp.Or(r.wedged, p.Wedged(wedgedAfter)) }))
			}
			if limit > 0 {
				r.keys.pools = append(r.keys.pools, s)
			}
			if s.Stats.OldestUnanswered > r.workers.OldestUnanswered {
				r.unanswered = s.Unanswered
			}
			sum := r.workers.Plus(s.Stats)
			r.workers = &sum
		}
	}
	metrics.LeaveOutHolds(&r.stats, *r.workers)
	if r.entry.queue.Pause == nil && r.pausesPools() && !slices.ContainsFunc(r.pools, isWorking) {
		r.stats.Paused, r.stats.PausedUntil = true, r.workers.PausedUntil
	}
}

// isWorking reports whether a pool can be paused, and is not.
func isWorking(p poolReading) bool { return p.pool.Pause != nil && !p.stats.Paused }

// pausesPools reports whether a pause of the queue is one of its pools, in this process.
func (r *reading) pausesPools() bool {
	canPause := func(p poolReading) bool { return p.pool.Pause != nil }
	return r.entry.queue.Pause == nil && slices.ContainsFunc(r.pools, canPause)
}

// pause makes the queue hand out nothing for d or, if it cannot, its pools start nothing.
func (r *reading) pause(d time.Duration) {
	if !r.pausesPools() {
		r.entry.queue.Pause(d)
		return
	}
	r.anyPool(func(p *worker.Inspector) bool { p.Pause(d); return true })
}

// resume ends a pause.
func (r *reading) resume() {
	if !r.pausesPools() {
		r.entry.queue.Resume()
		return
	}
	r.anyPool(func(p *worker.Inspector) bool { p.Resume(); return true })
}

// ask reads e, one goroutine at a time. It returns nil if ctx ends while another one reads, and at once if
// that has taken more than a second already.
func (h *Handler) ask(ctx context.Context, e *entry, limit int) *reading {
	if asked := e.asked.Load(); asked != nil && time.Since(*asked) >= patience {
		return nil
	}
	select {
	case e.asking <- struct{}{}:
	case <-ctx.Done():
		return nil
	}
	began := time.Now()
	e.asked.Store(&began)
	r := h.read(e, limit)
	kept := r
	if limit > 0 {
		kept = new(reading)
		*kept = *r
		kept.keys = &noKeys
	}
	e.last.Store(kept)
	e.asked.Store(nil)
	<-e.asking
	return r
}

// lastAnswer returns the last answer of e, which is late if it was asked for before began.
func (e *entry) lastAnswer(began time.Time) *reading {
	r := reading{entry: e, late: true, keys: &noKeys, workers: &noWorkers}
	if last := e.last.Load(); last != nil {
		if !last.began.Before(began) {
			return last
		}
		r = *last
		r.late = true
	}
	return &r
}

// sideBySide asks all entries, n of them at a time, and returns a channel of the answers. After Close these
// are zero.
func sideBySide[A any](h *Handler, n int, entries []*entry, ask func(*entry) A) <-chan A {
	next, answers := make(chan *entry, len(entries)), make(chan A, len(entries))
	for _, e := range entries {
		next <- e
	}
	close(next)
	for range min(n, len(entries)) {
		if !h.goUnlessClosed(func() {
			for e := range next {
				answers <- ask(e)
			}
		}) {
			for range next {
				answers <- *new(A)
			}
		}
	}
	return answers
}

// readOne asks e, on a goroutine of its own, because e may never answer. Then it returns the last answer. The
// caller may change what it gets.
func (h *Handler) readOne(ctx context.Context, e *entry, limit int) *reading {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, maxPatience)
	defer cancel()
	var answer *reading
	select {
	case answer = <-sideBySide(h, 1, []*entry{e}, func(e *entry) *reading { return h.ask(ctx, e, limit) }):
	case <-ctx.Done():
	}
	r := *cmp.Or(answer, e.lastAnswer(began))
	if answer == nil { // The keys are missing, even if the numbers have come meanwhile.
		r.late, r.err = true, nil
		if r.missing != errOutage { // An outage explains the silence; that an earlier answer was slow does not.
			r.missing = errLate
		}
	}
	return &r
}

// readAll asks all queues side by side, and returns their answers in no order: the last ones of those that do
// not answer now. It forgets queues and pools that have ended.
func (h *Handler) readAll(ctx context.Context) []*reading {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, maxPatience)
	defer cancel()
	entries := h.entries()
	answered := sideBySide(h, readers, entries, func(e *entry) *reading { return h.ask(ctx, e, 0) })
	silence := time.NewTimer(patience)
	defer silence.Stop()
	for left := len(entries); left > 0; left-- {
		select {
		case <-answered:
			silence.Reset(patience)
		case <-silence.C:
			left = 0
		case <-ctx.Done():
			left = 0
		}
	}
	live := make([]*reading, 0, len(entries))
	for _, e := range entries {
		r := e.lastAnswer(began)
		if r.hasEnded() {
			h.remove(e)
		} else if e.hasQueue() || len(r.pools) > 0 {
			live = append(live, r)
		}
	}
	return live
}
