package debug

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

const (
	// patience is how long a page waits for the answers of queues.
	patience = time.Second
	// readers is how many queues are read at once.
	readers = 64
)

// reading is what an entry's queue and pools reported at one moment.
type reading struct {
	entry *entry
	at    time.Time // right before they were asked
	stats workqueue.Stats
	pools []poolReading
	// workers is the sum of the pools' numbers, and givenUp of their keys that were given up.
	workers worker.Stats
	givenUp int
	// panicked says what has panicked, or is empty.
	panicked string
	// late reports that the queue has not answered. The numbers are those of its last answer.
	late bool

	// keys is set if keys were asked for.
	keys workqueue.Snapshot[any]
	// minute has the rates of the last minute. Only a report sets it.
	minute rates
}

type poolReading struct {
	pool *pool
	worker.Snapshot[any]
}

// limits are how many keys of each state are asked for. Without any, only numbers are.
type limits struct{ queue, pools int }

// readingState is the last reading, and a call that goes on.
type readingState struct {
	last  reading   // without keys
	began time.Time // of the call that returned last, in real time
	since time.Time // when the call that goes on began, or zero
}

// guarded calls f, which is foreign code, and reports whether it has panicked. It names the type of the value, because
// the value may have methods that panic as well.
func guarded(what string, f func()) (failure string) {
	defer func() {
		if r := recover(); r != nil {
			failure = fmt.Sprintf("The %s panicked with a %T.", what, r)
		}
	}()
	f()
	return ""
}

// ended reports whether a queue was shut down and has no key left.
func ended(s workqueue.Stats) bool {
	return s.ShuttingDown && s.Queued == 0 && s.Processing == 0 && s.Waiting == 0
}

// read asks e's queue and pools, which may block.
func (h *Handler) read(e *entry, l limits) *reading {
	r := &reading{entry: e, at: h.clock.Now()}
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
		case failure != "":
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
		if e.isSilent() {
			return nil
		}
		select {
		case e.asking <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
	}
	began := time.Now()
	e.setSince(began)
	r := h.read(e, l)
	e.setLast(r, began)
	<-e.asking
	return r
}

func (e *entry) isSilent() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	since := e.mu.reading.since
	return !since.IsZero() && time.Since(since) >= patience
}

func (e *entry) setSince(began time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.reading.since = began
}

func (e *entry) setLast(r *reading, began time.Time) {
	last := *r
	last.keys = workqueue.Snapshot[any]{}
	last.pools = slices.Clone(r.pools)
	for i := range last.pools {
		last.pools[i].Snapshot = worker.Snapshot[any]{Stats: r.pools[i].Stats, DroppedKeys: r.pools[i].DroppedKeys}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.reading = readingState{last: last, began: began}
}

// last returns the last answer, which is late if it was asked for before began.
func (e *entry) last(began time.Time) *reading {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.mu.reading.last
	r.late = e.mu.reading.began.Before(began)
	r.entry = e // It may never have answered.
	return &r
}

// readOne asks e, and returns its last answer if it does not answer now.
func (h *Handler) readOne(ctx context.Context, e *entry, l limits) *reading {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, patience)
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
	r := e.last(began)
	r.late = true // The keys are missing, even if the numbers have come meanwhile.
	return r
}

// readAll asks all queues side by side, and returns their answers in no order: the last ones of those that do not
// answer now. It forgets queues and pools that have ended.
func (h *Handler) readAll(ctx context.Context) []*reading {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	entries := h.entries()
	var next atomic.Int64
	returned := make(chan struct{}, readers)
	n := min(readers, len(entries))
	if !h.goMany(n, func() {
		for i := next.Add(1); i <= int64(len(entries)) && ctx.Err() == nil; i = next.Add(1) {
			h.ask(ctx, entries[i-1], limits{})
		}
		returned <- struct{}{}
	}) {
		return nil
	}
	for range n {
		select {
		case <-returned:
		case <-ctx.Done():
		}
	}
	live := make([]*reading, 0, len(entries))
	for _, e := range entries {
		if r := e.last(began); !r.late && ended(r.stats) {
			h.remove(e)
		} else if e.hasQueue() || len(r.pools) > 0 {
			live = append(live, r)
		}
	}
	return live
}
