package debug

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

const (
	// patience is how long a list waits while no queue answers.
	patience = time.Second
	// maxPatience is how long a list or a queue's page waits in all.
	maxPatience = 5 * time.Second
	// readers is how many queues are read at once.
	readers = 64
)

// reading is what an entry's queue and pools reported at one moment. It does not change.
type reading struct {
	entry *entry
	at    time.Time // right before they were asked
	began time.Time // the same in real time
	stats workqueue.Stats
	pools []poolReading
	// workers is the sum of the pools' numbers, and givenUp of their keys that were given up.
	workers worker.Stats
	givenUp int
	// panicked says what has panicked, or is nil.
	panicked error
	// late reports that the queue has not answered. The numbers are those of its last answer.
	late bool

	// keys are as many as were asked for.
	limits limits
	keys   workqueue.Snapshot[any]
	// minute has the rates of the last minute. Only a report sets it.
	minute rates
}

type poolReading struct {
	pool *pool
	worker.Snapshot[any]
}

// limits are how many keys of each state are asked for. Without any, only numbers are.
type limits struct{ queue, pools int }

// guarded calls f, which is foreign code, and reports whether it has panicked. It names the type of the value, because
// the value may have methods that panic as well.
func guarded(what string, f func()) (failure error) {
	defer func() {
		if r := recover(); r != nil {
			failure = refuse(http.StatusInternalServerError, "The %s panicked with a %T.", what, r)
		}
	}()
	f()
	return nil
}

// ended reports whether a queue was shut down and has no key left.
func ended(s workqueue.Stats) bool {
	return s.ShuttingDown && s.Queued == 0 && s.Processing == 0 && s.Waiting == 0
}

// read asks e's queue and pools, which may block.
func (h *Handler) read(e *entry, l limits) *reading {
	r := &reading{entry: e, at: h.clock.Now(), limits: l}
	if e.hasQueue() {
		r.panicked = guarded("queue", func() {
			r.stats = e.queue.Stats()
			if l.queue > 0 && e.queue.Snapshot != nil {
				r.keys = e.queue.Snapshot(l.queue)
			}
		})
	}
	for _, p := range h.poolsOf(e) {
		s := poolReading{pool: p}
		failure := guarded("pool", func() {
			s.Snapshot = p.snapshot(l.pools)
			if s.Stats.Ended && l.pools == 0 {
				s.Snapshot = p.snapshot(maxKeys)
			}
		})
		switch {
		case failure != nil:
			r.panicked = cmp.Or(r.panicked, failure)
		case s.Stats.Ended:
			h.removePool(s.Stats.Name, p)
			e.keepErrors(s.Failing)
		default:
			r.pools = append(r.pools, s)
			r.workers = r.workers.Plus(s.Stats)
			r.givenUp += s.DroppedKeys
		}
	}
	slices.SortStableFunc(r.pools, func(a, b poolReading) int { return cmp.Compare(a.Stats.Name, b.Stats.Name) })
	return r
}

// keepErrors notes why keys are failing for whose pool has ended. The next pool does not know.
func (e *entry) keepErrors(failing []worker.FailedKey[any]) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.past = append(slices.Clone(failing), e.mu.past...)
	e.mu.past = e.mu.past[:min(len(e.mu.past), maxKeys)]
}

// ask reads e when no other goroutine does so, or returns nil if that does not end before ctx does. It does not wait
// for a call that has kept others waiting before.
func (h *Handler) ask(ctx context.Context, e *entry, l limits) *reading {
	select {
	case e.asking <- struct{}{}:
	default:
		if asked := e.asked.Load(); asked != nil && time.Since(*asked) >= patience {
			return nil
		}
		select {
		case e.asking <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
	}
	began := time.Now()
	e.asked.Store(&began)
	r := h.read(e, l)
	r.began = began
	e.last.Store(r.withoutKeys())
	e.asked.Store(nil)
	<-e.asking
	return r
}

// lastAnswer returns the last answer of e, which is late if it was asked for before began.
func (e *entry) lastAnswer(began time.Time) *reading {
	last := e.last.Load()
	switch {
	case last == nil:
		return &reading{entry: e, late: true}
	case last.began.Before(began):
		r := *last
		r.late = true
		return &r
	}
	return last
}

// withoutKeys returns what is to be kept of r.
func (r *reading) withoutKeys() *reading {
	if r.limits == (limits{}) {
		return r
	}
	kept := *r
	kept.keys, kept.pools = workqueue.Snapshot[any]{}, slices.Clone(r.pools)
	for i, p := range r.pools {
		kept.pools[i].Snapshot = worker.Snapshot[any]{Stats: p.Stats, DroppedKeys: p.DroppedKeys}
	}
	return &kept
}

// readOne asks e, and returns its last answer if it does not answer now.
func (h *Handler) readOne(ctx context.Context, e *entry, l limits) *reading {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, maxPatience)
	defer cancel()
	answer := make(chan *reading, 1)
	if h.goMany(1, func() { answer <- h.ask(ctx, e, l) }) {
		select {
		case r := <-answer:
			if r != nil {
				return r
			}
		case <-ctx.Done():
		}
	}
	r := *e.lastAnswer(began)
	r.late = true // The keys are missing, even if the numbers have come meanwhile.
	return &r
}

// readAll asks all queues side by side, and returns their answers in no order: the last ones of those that do not
// answer now. It forgets queues and pools that have ended.
func (h *Handler) readAll(ctx context.Context) []*reading {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, maxPatience)
	defer cancel()
	entries := h.entries()
	next := make(chan *entry, len(entries))
	for _, e := range entries {
		next <- e
	}
	close(next)
	answered := make(chan struct{}, len(entries))
	h.goMany(min(readers, len(entries)), func() {
		for e := range next {
			if ctx.Err() == nil {
				h.ask(ctx, e, limits{})
			}
			answered <- struct{}{}
		}
	})
	silence := time.NewTimer(patience)
	defer silence.Stop()
	for range entries {
		select {
		case <-answered:
			silence.Reset(patience)
			continue
		case <-silence.C:
		case <-ctx.Done():
		}
		break
	}
	live := make([]*reading, 0, len(entries))
	for _, e := range entries {
		if r := e.lastAnswer(began); !r.late && ended(r.stats) {
			h.remove(e)
		} else if e.hasQueue() || len(r.pools) > 0 {
			live = append(live, r)
		}
	}
	return live
}
