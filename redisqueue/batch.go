package redisqueue

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/redis/go-redis/v9"
)

// shard is the pipe to one shard of the queue: a buffer of operations, and at most one call of the server that executes
// a batch of them. While a call is in flight the next batch collects, so that concurrent callers share it.
//
// All fields but q and names are guarded by q.mu.
//
// Getters and the server agree on who moves next:
//
//	drained = false   the next batch asks for keys, as many as getters wait (requested). If it brings fewer and none are
//	                  queued, both sides know that this session sleeps: asleep here, SLEEPERS on the server.
//	drained = true    the shard asks for none. A goroutine reads the session's WAKE list, and a timer runs until the next
//	                  delayed key is due. What makes drained false again: a wake-up, that time, the poll interval, an
//	                  add from here, a reply that speaks of queued keys, and the end of the session.
//
// A wake-up may overtake the reply of an older call. It sets woken, and then that reply does not set drained.
type shard[T comparable] struct {
	q     *Queue[T]
	names keyNames

	// ops are the operations that no call has executed, in the order of seq. The call in flight has its own.
	ops      []*op
	adds     map[string]*op // the plain adds of ops
	numbered uint64         // the seq of the newest operation
	executed uint64         // all operations up to here were executed
	pending  [opKinds]int   // how many operations of each kind are in ops
	// sending: the goroutine that runs send exists. It does whenever there is something to send.
	sending bool
	// inFlight: a call of the server is under way.
	inFlight      bool
	batches       uint64 // the number of the newest batch
	wantsAll      bool   // the next batch asks for the reply's info and oldest, too
	confirmations []*confirmation
	replicating   replicating

	session session
	watched map[string]*hold[T] // the held keys with an open channel of AddedAgain

	requested int // how many keys the call in flight may bring
	drained   bool
	woken     bool
	reading   bool      // the goroutine that waits for a wake-up exists
	nextDue   time.Time // when the next delayed key is due, zero if none waits

	timers struct {
		lease *time.Timer // renews and expires the lease while keys are held
		adds  *time.Timer // tries adds again on a full server
		due   *time.Timer // for nextDue
		watch *time.Timer // asks for the watched keys
	}

	outage      error     // why the last attempt failed, until one succeeds
	fullSince   time.Time // since when the server's memory is full, zero if it is not
	retryAddsAt time.Time // when adds are tried again on a full server
	// What the last replies said of the whole shard.
	stats  workqueue.Stats
	info   Info
	oldest time.Duration
}

// batch is what one call of the server executes.
type batch struct {
	number  uint64  // of this shard's batches
	session session // as it was then; its seq is used once
	ops     []*op
	want    int
	// asleep: the server believes that getters wait here. It forgets that, unless this call finds no keys for them again.
	asleep      bool
	wantsAll    bool
	quits       bool // ends the session
	noAdds      bool // the server's memory is full, and has refused adds a moment ago
	interrupted bool // an attempt was answered by an error: the server may have executed a part
	began       time.Time
}

func newShard[T comparable](q *Queue[T], names keyNames) *shard[T] {
	s := &shard[T]{q: q, names: names, adds: make(map[string]*op), watched: make(map[string]*hold[T])}
	stopped := func(f func()) *time.Timer {
		t := time.AfterFunc(time.Hour, func() {
			q.mu.Lock()
			defer q.unlock()
			f()
		})
		t.Stop()
		return t
	}
	s.timers.lease, s.timers.adds = stopped(s.tickLocked), stopped(s.kickLocked)
	s.timers.due, s.timers.watch = stopped(s.wakeLocked), stopped(s.watchLocked)
	return s
}

// enqueueLocked numbers an operation and sends it, now or after the call in flight. It returns the number.
func (s *shard[T]) enqueueLocked(o *op) (seq uint64) {
	s.numbered++
	o.seq = s.numbered
	s.pending[o.kind]++
	s.ops = append(s.ops, o)
	s.kickLocked()
	return o.seq
}

// kickLocked starts the goroutine that sends, if there is something to send.
func (s *shard[T]) kickLocked() {
	if !s.sending && s.hasWorkLocked(time.Now()) {
		s.sending = true
		go s.send()
	}
}

// kickLocked kicks all shards.
func (q *Queue[T]) kickLocked() {
	for _, s := range q.shards {
		s.kickLocked()
	}
}

// hasWorkLocked reports whether a batch should be sent.
func (s *shard[T]) hasWorkLocked(now time.Time) bool {
	ops := len(s.ops)
	if s.refusesAddsAt(now) {
		ops -= s.pending[opAdd]
	}
	needed := func(c *confirmation) bool { return c.after > s.batches }
	return !s.q.mu.ending.over && (ops > 0 || s.session.renew || s.session.abandoned || s.wakesUpLocked() || s.quitsLocked() ||
		s.demandLocked() > 0 || slices.ContainsFunc(s.confirmations, needed))
}

// send sends batches until nothing is left to send.
func (s *shard[T]) send() {
	for {
		// Callers that run concurrently come into this batch instead of the next.
		runtime.Gosched()
		b := s.nextBatch()
		if b == nil {
			return
		}
		s.apply(b, s.deliver(b))
	}
}

// nextBatch returns what to send, or nil if there is nothing; then the goroutine must end.
func (s *shard[T]) nextBatch() *batch {
	s.q.mu.Lock()
	defer s.q.unlock()
	now := time.Now()
	s.expireLocked(now)
	if !s.hasWorkLocked(now) {
		s.sending = false
		if !s.fullSince.IsZero() && len(s.ops) > 0 {
			s.timers.adds.Reset(s.retryAddsAt.Sub(now))
		}
		s.sleepLocked()
		s.q.endLocked() // A session that was just forgotten may have been all that the shutdown waits for.
		return nil
	}
	if s.session.id == "" {
		s.session = session{id: newSession(), lastFence: "0"}
	}
	s.session.seq++
	s.batches++
	b := &batch{number: s.batches, session: s.session, began: now, noAdds: s.refusesAddsAt(now)}
	b.wantsAll, s.wantsAll = s.wantsAll, false
	b.want = s.demandLocked()
	b.asleep = s.wakesUpLocked() || b.want > 0 && s.session.asleep
	s.takeLocked(b)
	b.quits = s.session.abandoned || s.quitsLocked()
	s.requested = b.want
	s.q.mu.requested += b.want
	s.woken, s.session.renew = false, false
	s.inFlight = true
	return b
}

// takeLocked moves operations into b, within the bounds of a batch and without adds if b has none.
func (s *shard[T]) takeLocked(b *batch) {
	size, work := 0, b.want
	var kept []*op
	seen := 0
	for _, o := range s.ops {
		if work >= maxWork || size >= maxBytes {
			break
		}
		seen++
		if b.noAdds && o.kind == opAdd {
			kept = append(kept, o)
			continue
		}
		if o.plain {
			o.arg = o.plainArg()
			delete(s.adds, o.encoded)
		}
		work += o.work()
		size += len(o.arg)
		b.ops = append(b.ops, o)
		s.pending[o.kind]--
	}
	clear(s.ops[:seen])
	s.ops = s.ops[seen:]
	if len(kept) > 0 {
		s.ops = append(kept, s.ops...)
	}
}

// deliver calls the server until it answers, or returns nil after a shutdown. A batch may be sent several times; its number
// sees to it that it is executed once.
func (s *shard[T]) deliver(b *batch) (r *reply) {
	keys := s.names.of(b.session.id)
	s.untilAnswered(func() error {
		text, err := s.q.script.Run(context.Background(), s.q.client, keys, s.arguments(b)...).Text()
		if err == nil {
			r, err = parseReply(text)
		}
		var answer redis.Error
		b.interrupted = b.interrupted || errors.As(err, &answer)
		return err
	})
	return r
}

// apply does what follows from the reply to a batch, which is nil if there will be none.
func (s *shard[T]) apply(b *batch, r *reply) {
	q := s.q
	var keys []arrival[T]
	if r != nil {
		s.answered(b, r)
		for _, key := range r.keys {
			item, bad := q.decode(key.encoded)
			keys = append(keys, arrival[T]{key, item, bad})
		}
	}
	q.mu.Lock()
	q.mu.requested -= s.requested
	s.requested = 0
	switch {
	case r == nil:
		s.dropUnsentLocked(b.ops)
	case r.status == "GONE":
		// Only what asks for a number is asked again.
		b.ops = slices.DeleteFunc(b.ops, func(o *op) bool { return o.answer == nil })
		s.sessionLostLocked(b)
	case r.status == "LOST":
		s.sessionLostLocked(b)
	default:
		s.executedLocked(b, r, keys)
	}
	// Only now: until here the server may still hold the session, so it must quit and not be forgotten.
	s.inFlight = false
	if b.want > 0 {
		q.kickLocked() // Other shards may serve the getters that this one has not served.
	}
	q.endLocked()
	q.unlock()
	for _, key := range keys {
		if key.bad != nil {
			q.report("A key cannot be decoded and was set aside", key.bad)
		}
	}
}

// executedLocked does what follows from a batch that was executed, and brought those keys.
func (s *shard[T]) executedLocked(b *batch, r *reply, keys []arrival[T]) {
	q := s.q
	now := time.Now()
	s.stats = r.stats
	if b.wantsAll {
		s.info, s.oldest = r.info, r.oldest
	}
	q.mu.totals.stats.Adds += uint64(r.changed)
	q.mu.totals.info.LostDones += uint64(r.unmatched)
	numbers := r.numbers
	for _, o := range b.ops {
		if o.answer != nil && len(numbers) > 0 {
			o.answer(numbers[0])
			numbers = numbers[1:]
		}
	}
	if s.fullLocked(b, r, now) {
		s.dropUnsentLocked(nil)
		return
	}
	s.executed = s.numbered
	if len(s.ops) > 0 {
		s.executed = s.ops[0].seq - 1
	}
	s.confirmedLocked(b)

	if b.quits {
		s.endSessionLocked()
	} else {
		s.session.leaseFrom = b.began
		s.expireLocked(now)
		for _, key := range keys {
			s.session.lastFence = key.fence // They ascend.
			s.receiveLocked(key, r.now, now)
		}
		s.armLocked(now)
	}
	nothingLeft := r.stats.Queued == 0 || r.stats.Paused
	if b.want > 0 {
		s.drained = len(r.keys) < b.want && nothingLeft
		s.session.asleep = s.drained && !b.quits
	} else if b.asleep {
		s.session.asleep = false
		s.drained = false // The next getter must ask: no wake-up comes from now on.
	}
	if !nothingLeft || s.woken {
		s.drained = false
	}
	s.nextDue = time.Time{}
	switch {
	case r.nextDue == 0:
		s.drained = false // More keys are due than one batch moves.
	case r.nextDue > 0:
		s.nextDue = now.Add(r.nextDue)
	}
}

// putBackLocked undoes takeLocked, for operations that were not executed.
func (s *shard[T]) putBackLocked(ops []*op) {
	merged := make([]*op, 0, len(ops)+len(s.ops))
	rest := s.ops
	for _, o := range ops {
		for len(rest) > 0 && rest[0].seq < o.seq {
			merged, rest = append(merged, rest[0]), rest[1:]
		}
		merged = append(merged, o)
		if o.plain && s.adds[o.encoded] == nil {
			s.adds[o.encoded] = o // Otherwise an add of the key has come meanwhile. That it is executed twice does no harm.
		}
		s.pending[o.kind]++
	}
	s.ops = append(merged, rest...)
}
