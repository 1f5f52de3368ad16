package redisqueue

import (
	"context"
	"math/rand/v2"
	"runtime"
	"time"
)

// shard is the pipe to one shard of the queue: a buffer of operations, and at most one call of the server
// that executes a batch of them. While a call is under way the next batch collects, so that concurrent
// callers share it.
//
// All fields but q and names are guarded by q.mu.
type shard[T comparable] struct {
	q     *Queue[T]
	names keyNames

	buffer     buffer
	senderRuns bool      // the goroutine that runs send exists
	underWay   *batch    // the one whose reply was not applied yet, or nil
	allCounts  bool      // the next batch asks for all counts
	countedAt  time.Time // when the last reply with all counts came

	confirmations confirmations
	session       session
	watched       map[string]*hold[T] // the held keys with an open channel of AddedAgain
	fetcher       fetcher
	server        health
	refused       error  // in a tool: why the server has refused operations since the last Flush
	counts        Counts // the numbers of the whole shard in the last replies

	timers struct {
		lease *time.Timer // renews and expires the lease while keys are held
		adds  *time.Timer // tries adds again on a full server
		watch *time.Timer // asks for the watched keys
		wake  *time.Timer // ends awaitWakeUpLocked's wait
	}
}

// batch is what one call of the server executes.
type batch struct {
	session        session // a copy: batchSeq is this batch's
	ops            []*op
	encoded        []any // strings: ops as operations.lua reads them
	want           int   // how many keys to hand out at most
	leavesSleepers bool  // the session leaves SLEEPERS, unless it gets too few keys and no more are to be had
	allCounts      bool
	quits          bool // ends the session
	noAdds         bool // leaves adds in the buffer: the server is full, and has refused some a moment ago
	interrupted    bool // an attempt has failed: the server may have executed a part of it
	began          time.Time
}

func newShard[T comparable](q *Queue[T], names keyNames) *shard[T] {
	s := &shard[T]{q: q, names: names, watched: make(map[string]*hold[T])}
	s.buffer.merging = make(map[addKey]*op)
	q.mu.nonEmpty++
	s.timers.lease, s.timers.adds = q.newTimer(s.tickLocked), q.newTimer(s.kickLocked)
	s.timers.watch, s.timers.wake = q.newTimer(s.watchLocked), q.newTimer(s.wakeUpLocked)
	return s
}

// newTimer returns a timer that calls f under the lock. It does not run yet.
func (q *Queue[T]) newTimer(f func()) *time.Timer {
	t := time.AfterFunc(time.Hour, func() {
		q.mu.Lock()
		defer q.unlock()
		f()
	})
	t.Stop()
	return t
}

// putLocked puts an operation into the buffer and sends it, now or after the call under way. It returns its
// opSeq, or that of the add into which it was merged.
func (s *shard[T]) putLocked(o *op) opSeq {
	switch o.code {
	case codeAddAfter:
		s.q.mu.totals.stats.Retries++
	case codeAdd, codeAddPriority:
		s.setEmptyLocked(false)
		if !o.quiet {
			s.closeAddedLocked(o.key)
		}
	}
	seq := s.buffer.put(o)
	s.kickLocked()
	return seq
}

// kickLocked starts the goroutine that sends, if there is something to send.
func (s *shard[T]) kickLocked() {
	if !s.senderRuns && s.hasWorkLocked(time.Now()) {
		s.senderRuns = true
		go s.send()
	}
}

// kickAllLocked begins with a random shard. Otherwise fewer getters than shards would always get their keys
// from the same ones.
func (q *Queue[T]) kickAllLocked() {
	first := rand.IntN(len(q.shards))
	for i := range q.shards {
		q.shards[(first+i)%len(q.shards)].kickLocked()
	}
}

// hasWorkLocked reports whether a batch should be sent.
func (s *shard[T]) hasWorkLocked(now time.Time) bool {
	if s.session.abandoned { // Until it quits, nothing is sent.
		return !s.q.mu.ending.over && !now.Before(s.session.quitsAt)
	}
	ops := len(s.buffer.others)
	if !s.refusesAddsLocked(now) {
		ops += len(s.buffer.adds)
	}
	// After an answer that has taken long, the lease needs another batch at once.
	renews := s.session.held > 0 && now.Sub(s.session.leaseFrom) >= s.q.config.Lease/3
	return !s.q.mu.ending.over && (ops > 0 || renews || s.allCounts || s.mustLeaveSleepersLocked() ||
		s.quitsLocked() || s.nextWantLocked() > 0)
}

// send sends batches until nothing is left to send.
func (s *shard[T]) send() {
	for {
		runtime.Gosched() // Callers that run concurrently get into this batch, not only into the next.
		b := s.nextBatch()
		if b == nil {
			return
		}
		s.apply(b, s.deliver(b))
	}
}

// nextBatch returns the batch to send. It returns nil if there is nothing to send: then the goroutine of send
// must end.
func (s *shard[T]) nextBatch() *batch {
	s.q.mu.Lock()
	defer s.q.unlock()
	now := time.Now()
	s.expireLocked(now)
	if !s.hasWorkLocked(now) {
		s.senderRuns = false
		if !s.server.fullSince.IsZero() && s.buffer.len() > 0 {
			s.timers.adds.Reset(s.server.retryAddsAt.Sub(now))
		}
		s.awaitWakeUpLocked()
		s.q.endLocked() // A session that was just forgotten may have been all that the shutdown waits for.
		return nil
	}
	if s.session.id == "" {
		s.session = session{id: newSession(), lastFence: "0"}
	}
	s.session.batchSeq++
	want := s.nextWantLocked()
	b := &batch{
		session: s.session, began: now, want: want, allCounts: s.allCounts,
		leavesSleepers: s.mustLeaveSleepersLocked() || want > 0 && s.fetcher.isSleeper,
		noAdds:         s.refusesAddsLocked(now),
	}
	work := want
	if !s.server.fullSince.IsZero() && !b.noAdds && len(s.buffer.adds) > 0 {
		work = max(work, maxWork-16) // leaves room for a few adds, which find out whether the server is still full
	}
	b.ops, b.encoded = s.buffer.take(work, b.noAdds)
	// What was said while the lease lived goes before an abandoned session quits: the server may still know it.
	b.quits = s.session.abandoned && !s.buffer.hasAboutHeld() || s.quitsLocked()
	s.setInCallLocked(want)
	s.fetcher.woken, s.allCounts, s.underWay = false, false, b
	return b
}

// deliver calls the server until it answers. It returns nil when untilAnswered gives up. It may send a batch
// several times: the server executes each number once.
func (s *shard[T]) deliver(b *batch) (r *reply) {
	keys := s.names.of(b.session.id)
	s.untilAnswered(func() error {
		text, err := s.q.script.Run(context.Background(), s.q.client, keys, s.argv(b)...).Text()
		if err == nil {
			r, err = parseReply(text)
		}
		b.interrupted = b.interrupted || err != nil
		return err
	})
	return r
}

// apply carries out the reply to a batch. Without a reply, r is nil.
func (s *shard[T]) apply(b *batch, r *reply) {
	q := s.q
	var keys []arrival[T]
	if r != nil {
		for _, key := range r.keys {
			item, err := q.decode(key.encoded)
			keys = append(keys, arrival[T]{key, item, err})
		}
	}
	q.mu.Lock()
	now := time.Now()
	s.setInCallLocked(0)
	if r != nil && (!r.full || s.server.outage != errFull) { // While the server is full, errFull stays.
		q.mu.totals.calls.observe(now.Sub(b.began))
		s.noteAnswerLocked()
	}
	switch {
	case r == nil:
		s.dropLocked(b.ops)
	case r.status == "GONE":
		s.goneLocked(b, r)
	case r.status == "LOST":
		s.sessionLostLocked(b)
	default:
		s.applyReplyLocked(b, r, keys, now)
	}
	// Only now: while a call is under way, the server may hand out keys to the session, so expireLocked must
	// not forget it.
	s.underWay = nil
	if b.want > 0 {
		q.kickAllLocked() // Other shards may serve the getters that this one has not served.
	}
	q.endLocked()
	q.unlock()
}

// applyReplyLocked carries out the reply to a batch that was executed. keys are its keys, decoded.
func (s *shard[T]) applyReplyLocked(b *batch, r *reply, keys []arrival[T], now time.Time) {
	q := s.q
	counts, last := r.counts, s.counts
	if b.allCounts {
		s.countedAt = now
	} else { // The reply lacks these.
		counts.Failing, counts.GivenUp, counts.OldestQueued = last.Failing, last.GivenUp, last.OldestQueued
		if counts.Paused {
			counts.PausedBy, counts.PausedSince = last.PausedBy, last.PausedSince
		}
	}
	s.counts = counts
	q.mu.totals.stats.Adds += uint64(r.changed)
	q.mu.totals.shared.LostDones += uint64(r.unmatched)
	// They are in the order of the operations that have one and were executed: see answer in operations.lua.
	for _, o := range b.ops {
		if o.onResult != nil && len(r.opResults) > 0 && !(r.full && o.isAdd()) {
			o.onResult(r.opResults[0], nil)
			r.opResults = r.opResults[1:]
		}
	}
	if s.noteFullLocked(b, r, now) {
		s.dropLocked(nil)
		return
	}
	s.confirmExecutedLocked()
	if b.quits {
		s.endSessionLocked()
	} else {
		s.session.leaseFrom = b.began
		s.expireLocked(now)
		s.freeLocked(r.freed)
		for _, key := range keys {
			s.session.lastFence = key.fence // They ascend.
			s.receiveLocked(key, r.now, now)
		}
		s.armLocked(now)
	}
	next := s.fetcher.next(b, r, now)
	s.setEmptyLocked(next.empty) // before the assignment: it counts the change
	s.fetcher.fetcherState = next
}
