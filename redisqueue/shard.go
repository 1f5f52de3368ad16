package redisqueue

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strconv"
	"time"

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
	ops []op
	// adds has the plain adds of ops, and their seq.
	adds       map[string]uint64
	withCauses int          // how many of ops have causes
	numbered   uint64       // the seq of the newest operation
	executed   uint64       // all operations up to here were executed
	pending    [opKinds]int // how many operations of each kind are in ops
	// sending: the goroutine that runs send exists. It does whenever there is something to send.
	sending bool
	// inFlight: a call of the server is under way.
	inFlight bool
	batches  uint64 // the number of the newest batch
	// mustSend: another batch must follow, although it may have nothing but the renewal of the lease.
	mustSend      bool
	wantsAll      bool // the next batch asks for the occasional counts, too
	confirmations []*confirmation
	replicating   replicating

	session session
	sleep   sleep
	// watched has the held keys with an open channel of AddedAgain.
	watched    map[string]*hold[T]
	watchTimer *time.Timer

	requested int // how many keys the call in flight may bring
	drained   bool
	woken     bool

	full   fullness
	outage error // why the last attempt failed, until one succeeds
	counts counts
}

// counts are numbers that came with the last reply, about the whole shard.
type counts struct {
	queued, processing, again, waiting int
	paused                             bool
	occasional
}

// occasional are numbers that the server counts when they are asked for.
type occasional struct {
	failing, aside, givenUp, repaired int
	oldest                            time.Duration // how long the oldest key was queued
}

// batch is what one call of the server executes.
type batch struct {
	number  uint64 // of this shard's batches
	session string
	seq     uint64 // of the session's batches; each is used once
	ops     []op
	want    int
	// asleep: the server believes that getters wait here. It forgets that, unless this call finds no keys for them again.
	asleep      bool
	wantsAll    bool
	quits       bool // ends the session
	noAdds      bool // the server's memory is full, and has refused adds a moment ago
	interrupted bool // an attempt was answered by an error: the server may have executed a part
	lastFence   string
	began       time.Time
}

// kickLocked starts the goroutine that sends, if there is something to send.
func (s *shard[T]) kickLocked() {
	if !s.sending && s.hasWorkLocked(time.Now()) {
		s.sending = true
		go s.send()
	}
}

func (s *shard[T]) kick() {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	s.kickLocked()
}

// kickOthersLocked lets the other shards serve the getters that s has not served.
func (q *Queue[T]) kickOthersLocked(s *shard[T]) {
	for _, other := range q.shards {
		if other != s {
			other.kickLocked()
		}
	}
}

// hasWorkLocked reports whether a batch should be sent.
func (s *shard[T]) hasWorkLocked(now time.Time) bool {
	if s.q.mu.ending.over {
		return false
	}
	if s.mustSend || s.session.renew || s.session.abandoned || s.wakesUpLocked() || s.quitsLocked() || s.demandLocked() > 0 {
		return true
	}
	if s.full.refusesAddsAt(now) {
		if len(s.ops) > s.pending[opAdd] {
			return true
		}
	} else if len(s.ops) > 0 {
		return true
	}
	for _, c := range s.confirmations {
		if c.after > s.batches {
			return true
		}
	}
	return false
}

// wakesUpLocked reports whether the server must hear that no getter waits here any more: it may send wake-ups to others.
func (s *shard[T]) wakesUpLocked() bool { return s.session.asleep && s.q.mu.getters.Len() == 0 }

// demandLocked returns how many keys to ask for: no more than there are getters that no call in flight may serve, and
// this shard's part of them.
func (s *shard[T]) demandLocked() int {
	unserved := s.q.mu.getters.Len() - s.q.mu.requested
	if s.drained || unserved <= 0 || s.q.mu.ending.stopping || s.session.abandoned {
		return 0
	}
	askable := 0
	for _, other := range s.q.shards {
		if !other.drained {
			askable++
		}
	}
	return min((unserved+askable-1)/askable, maxWant)
}

// send sends batches until nothing is left to send.
func (s *shard[T]) send() {
	for {
		// Callers that run concurrently come into this batch instead of the next.
		runtime.Gosched()
		b, lost := s.nextBatch()
		s.q.announce(lost)
		if b == nil {
			return
		}
		r, err := s.deliver(b)
		s.apply(b, r, err)
	}
}

// nextBatch returns what to send, or nil if there is nothing; then the goroutine must end.
func (s *shard[T]) nextBatch() (b *batch, lost losses) {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	now := time.Now()
	lost = s.expireLocked(now)
	if !s.hasWorkLocked(now) {
		s.sending = false
		s.scheduleAddsLocked(now)
		s.sleepLocked()
		s.q.endLocked() // A session that was just forgotten may have been all that the shutdown waits for.
		return nil, lost
	}
	if s.session.id == "" {
		s.session = session{id: newSession(), timer: s.session.timer, lastFence: "0"}
	}
	s.session.seq++
	s.batches++
	b = &batch{number: s.batches, session: s.session.id, seq: s.session.seq, began: now, lastFence: s.session.lastFence}
	b.noAdds = s.full.refusesAddsAt(now)
	b.wantsAll, s.wantsAll = s.wantsAll, false
	b.want = s.demandLocked()
	b.asleep = s.wakesUpLocked() || b.want > 0 && s.session.asleep
	s.takeLocked(b)
	b.quits = s.session.abandoned || s.quitsLocked()
	s.requested = b.want
	s.q.mu.requested += b.want
	s.mustSend, s.woken, s.session.renew = false, false, false
	s.inFlight = true
	return b, lost
}

// arguments are what batch.lua gets.
func (s *shard[T]) arguments(b *batch) []any {
	flags := ""
	if b.asleep {
		flags += "r"
	}
	if b.wantsAll {
		flags += "o"
	}
	if b.interrupted {
		flags += "e" + b.lastFence
	}
	if flags == "" {
		flags = "-"
	}
	args := make([]any, 0, 8+len(b.ops))
	args = append(args, b.session, strconv.FormatUint(b.seq, 10), s.q.config.Lease.Microseconds(), b.want, flags,
		s.q.settings, s.q.description)
	for i := range b.ops {
		args = append(args, b.ops[i].arg)
	}
	if b.quits {
		args = append(args, "q")
	}
	return args
}

// deliver calls the server until it answers. A batch may be sent several times; its number sees to it that it is
// executed once. The error is errDropped, after a shutdown.
func (s *shard[T]) deliver(b *batch) (*reply, error) {
	keys := s.names.of(b.session)
	for pause := firstPause; ; pause = nextPause(pause) {
		result, err := s.q.scripts.batch.run(context.Background(), s.q.client, keys, s.arguments(b))
		if err == nil {
			text, _ := result.(string)
			var r *reply
			if r, err = parseReply(text); err == nil {
				s.answered(b, r)
				return r, nil
			}
		}
		var answer redis.Error
		b.interrupted = b.interrupted || errors.As(err, &answer)
		s.failed(err)
		if !s.q.pause(pause, b.began) {
			return nil, errDropped
		}
	}
}

// apply does what follows from the reply to a batch.
func (s *shard[T]) apply(b *batch, r *reply, err error) {
	q := s.q
	var items []T
	var bad []error
	if r != nil {
		items, bad = q.decodeAll(r.keys)
	}
	q.mu.Lock()
	q.mu.requested -= s.requested
	s.requested = 0
	var lost losses
	switch {
	case err != nil:
		lost = s.dropUnsentLocked(b)
	case r.gone:
		// Only what asks for a number is asked again.
		b.ops = slices.DeleteFunc(b.ops, func(o op) bool { return o.answer == nil })
		lost = s.sessionLostLocked(b)
	case r.lost:
		lost = s.sessionLostLocked(b)
	default:
		lost = s.executedLocked(b, r, items, bad)
	}
	// Only now: until here the server may still hold the session, so it must quit and not be forgotten.
	s.inFlight = false
	if b.want > 0 {
		q.kickOthersLocked(s)
	}
	q.endLocked()
	q.mu.Unlock()
	q.announce(lost)
	for _, err := range bad {
		if err != nil {
			q.report("A key cannot be decoded and was set aside", err)
		}
	}
}

func (s *shard[T]) executedLocked(b *batch, r *reply, items []T, bad []error) (lost losses) {
	q := s.q
	now := time.Now()
	if !b.wantsAll {
		r.counts.occasional = s.counts.occasional
	}
	s.counts = r.counts
	q.mu.totals.adds += uint64(r.changed)
	q.mu.totals.lostDones += uint64(r.unmatched)
	numbers := r.numbers
	for _, o := range b.ops {
		if o.answer != nil && len(numbers) > 0 {
			o.answer(numbers[0])
			numbers = numbers[1:]
		}
	}
	if s.fullLocked(b, r, now) {
		return s.dropUnsentLocked(&batch{})
	}
	if len(s.ops) > 0 {
		s.executed = s.ops[0].seq - 1
	} else {
		s.executed = s.numbered
	}
	s.confirmedLocked(b)

	if b.quits {
		lost = s.endSessionLocked()
	} else {
		s.session.leaseFrom = b.began
		lost = s.expireLocked(now)
		for i, key := range r.keys {
			s.session.lastFence = key.fence // They ascend.
			s.receiveLocked(key, items[i], bad[i], r.now, now)
		}
		s.armLocked(now)
	}
	nothingLeft := r.counts.queued == 0 || r.counts.paused
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
	s.sleep.nextDue = time.Time{}
	switch {
	case r.nextDue == 0:
		s.drained = false // More keys are due than one batch moves.
	case r.nextDue > 0:
		s.sleep.nextDue = now.Add(r.nextDue)
	}
	return lost
}
