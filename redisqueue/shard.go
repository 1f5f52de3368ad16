package redisqueue

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"time"
)

// shard is the pipe to one shard of the queue: a buffer of operations, and at most one call of the server that executes
// a batch of them. While a call is in flight the next batch collects, so that concurrent callers share it.
//
// All fields are guarded by q.mu.
type shard[T comparable] struct {
	q     *Queue[T]
	names keyNames

	// ops are the operations that no call has executed, in the order of seq. The call in flight has its own.
	ops []op
	// adds has the plain adds of ops, and their seq.
	adds     map[string]uint64
	numbered uint64       // the seq of the newest operation
	executed uint64       // all operations up to here were executed
	pending  [opKinds]int // how many operations of each kind are in ops
	// sending: the goroutine that runs send exists. It does whenever there is something to send.
	sending bool
	// inFlight: a call of the server is under way.
	inFlight bool
	batches  uint64 // the number of the newest batch
	// asked is how many keys the call in flight may bring.
	asked         int
	confirmations []*confirmation

	session session
	sleep   sleep

	// empty: the last call brought fewer keys than were asked for, and no news has come since.
	empty bool
	// news: a wake-up has come since the call in flight was sent. Its reply may be older than that.
	news bool
	// follow: another batch must follow, although it may have nothing but the renewal of the lease.
	follow bool

	full   fullness
	outage error // why the last attempt failed, until one succeeds
	counts counts
}

// fullness is about a server that refuses adds because its memory is full.
type fullness struct {
	full    bool
	since   time.Time
	retryAt time.Time // when adds are tried again
	timer   *time.Timer
}

// fullRetry is how often adds are tried on a full server.
const fullRetry = 250 * time.Millisecond

// counts are numbers that came with the last reply, about the whole shard.
type counts struct {
	queued, processing, again, waiting, failing, aside int
}

// batch is what one call of the server executes.
type batch struct {
	number  uint64 // of this shard's batches
	session string
	seq     uint64 // of the session's batches
	ops     []op
	want    int
	// unregister: the server should forget that getters wait here, unless this call finds no keys for them again.
	unregister bool
	quits      bool // ends the session
	full       bool // goes to a server whose memory is full, without adds
	wait       bool // waits for the server's replicas
	began      time.Time
}

// kickLocked starts the goroutine that sends, if there is something to send.
func (s *shard[T]) kickLocked() {
	if !s.sending && s.hasWorkLocked(time.Now()) {
		s.sending = true
		go s.send()
	}
}

// hasWorkLocked reports whether a batch should be sent.
func (s *shard[T]) hasWorkLocked(now time.Time) bool {
	if s.q.ending.over {
		return false
	}
	if s.follow || s.session.renew || s.session.abandoned || s.unregistersLocked() || s.quitsLocked() || s.demandLocked() > 0 {
		return true
	}
	if s.full.full && now.Before(s.full.retryAt) {
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

func (s *shard[T]) unregistersLocked() bool { return s.session.registered && s.q.getters.n == 0 }

// demandLocked returns how many keys to ask for: no more than there are getters that no call in flight may serve, and
// this shard's part of them.
func (s *shard[T]) demandLocked() int {
	unserved := s.q.getters.n - s.q.asked
	if s.empty || unserved <= 0 || s.q.ending.stopping || s.session.abandoned {
		return 0
	}
	askable := 0
	for _, other := range s.q.shards {
		if !other.empty {
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
	lost = s.checkLeaseLocked(now)
	if !s.hasWorkLocked(now) {
		s.sending = false
		s.scheduleAddsLocked(now)
		s.sleepLocked()
		s.q.endLocked() // A session that was just forgotten may have been all that the shutdown waits for.
		return nil, lost
	}
	if s.session.id == "" {
		s.session = session{id: newSession(), timer: s.session.timer}
	}
	s.session.seq++
	s.batches++
	b = &batch{number: s.batches, session: s.session.id, seq: s.session.seq, began: now}
	b.full = s.full.full && now.Before(s.full.retryAt)
	b.unregister = s.unregistersLocked()
	s.takeLocked(b)
	b.want = s.demandLocked()
	if b.want > 0 {
		b.unregister = s.session.registered
	}
	b.quits = s.session.abandoned || s.quitsLocked()
	if s.q.config.WaitReplicas > 0 {
		b.wait = len(s.confirmations) > 0
	}
	s.asked = b.want
	s.q.asked += b.want
	s.follow, s.news, s.session.renew = false, false, false
	s.inFlight = true
	return b, lost
}

// takeLocked moves operations into b, within the bounds of a batch.
func (s *shard[T]) takeLocked(b *batch) {
	size, work := 0, 0
	var kept []op
	seen := 0
	for _, o := range s.ops {
		if work >= maxWork || size >= maxBytes {
			break
		}
		seen++
		if b.full && o.kind == opAdd {
			kept = append(kept, o)
			continue
		}
		work += o.work()
		size += len(o.arg)
		b.ops = append(b.ops, o)
		if o.plain {
			delete(s.adds, o.encoded)
		}
		s.pending[o.kind]--
	}
	clear(s.ops[:seen])
	s.ops = s.ops[seen:]
	if len(kept) > 0 {
		s.ops = append(kept, s.ops...)
	}
}

// putBackLocked undoes takeLocked, for operations that were not executed.
func (s *shard[T]) putBackLocked(ops []op) {
	merged := make([]op, 0, len(ops)+len(s.ops))
	rest := s.ops
	for _, o := range ops {
		for len(rest) > 0 && rest[0].seq < o.seq {
			merged, rest = append(merged, rest[0]), rest[1:]
		}
		merged = append(merged, o)
		if o.plain {
			// An add of the key may have come meanwhile. That it is executed twice does no harm.
			s.adds[o.encoded] = max(o.seq, s.adds[o.encoded])
		}
		s.pending[o.kind]++
	}
	s.ops = append(merged, rest...)
}

func (s *shard[T]) scheduleAddsLocked(now time.Time) {
	if s.full.full && len(s.ops) > 0 && !s.q.ending.over {
		if s.full.timer != nil {
			s.full.timer.Stop()
		}
		s.full.timer = time.AfterFunc(s.full.retryAt.Sub(now), s.kick)
	}
}

func (s *shard[T]) kick() {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	s.kickLocked()
}

// deliver calls the server until it answers. A batch may be sent several times; its number sees to it that it is
// executed once. The error is that of a full server, which has executed nothing; errGivenUp after a shutdown; or
// ErrNotReplicated, with a reply.
func (s *shard[T]) deliver(b *batch) (*reply, error) {
	q := s.q
	args := make([]any, 0, 7+len(b.ops))
	flag := "0"
	if b.unregister {
		flag = "1"
	}
	args = append(args, b.session, strconv.FormatUint(b.seq, 10), q.config.Lease.Microseconds(), b.want, flag, q.backoff)
	for i := range b.ops {
		args = append(args, b.ops[i].arg)
	}
	if b.quits {
		args = append(args, "q")
	}
	keys := s.names.of(b.session)
	run := q.scripts.batch
	if b.full {
		run = q.scripts.batchWhenFull
	}
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		result, replicas, err := s.call(run, b.wait, keys, args)
		var r *reply
		if err == nil {
			text, _ := result.(string)
			r, err = parseReply(text)
		}
		if err == nil {
			s.answered(b)
			if b.wait && replicas < q.config.WaitReplicas {
				return r, fmt.Errorf("%w: %d of %d", ErrNotReplicated, replicas, q.config.WaitReplicas)
			}
			return r, nil
		}
		full := isFull(err)
		s.failed(err)
		if full && !b.full {
			return nil, err
		}
		if !q.pause(pause, b.began) {
			return nil, errGivenUp
		}
	}
}

// askOthersLocked lets the other shards serve the getters that s has not served.
func (q *Queue[T]) askOthersLocked(s *shard[T]) {
	for _, other := range q.shards {
		if other != s {
			other.kickLocked()
		}
	}
}

func (s *shard[T]) call(run script, wait bool, keys []string, args []any) (any, int, error) {
	if wait {
		return run.runAndWait(context.Background(), s.q.client, keys, args, s.q.config.WaitReplicas, s.q.config.WaitTimeout)
	}
	result, err := run.run(context.Background(), s.q.client, keys, args)
	return result, 0, err
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
	q.asked -= s.asked
	s.asked = 0
	var lost losses
	switch {
	case r == nil && err == errGivenUp:
		lost = s.giveUpLocked(b)
	case r == nil: // The server is full.
		s.session.seq--
		s.putBackLocked(b.ops)
		now := time.Now()
		if !s.full.full {
			s.full.full, s.full.since = true, now
		}
		lease := q.config.Lease
		if q.ending.stopping && len(q.held) == 0 && s.pending[opHeld] == 0 && now.Sub(q.ending.since) >= lease && now.Sub(s.full.since) >= lease {
			lost = s.giveUpLocked(&batch{})
			break
		}
		s.full.retryAt = now.Add(fullRetry)
		s.follow = true // The rest of the batch goes at once.
	case r.gone:
		// Only what asks for a number is asked again.
		b.ops = slices.DeleteFunc(b.ops, func(o op) bool { return o.kind != opNumRequeues })
		lost = s.lostLocked(b)
	case r.lost:
		lost = s.lostLocked(b)
	default:
		lost = s.executedLocked(b, r, items, bad, err)
	}
	// Not earlier: the server has just used the session. If its lease has ended it must quit, and not be forgotten.
	s.inFlight = false
	if b.want > 0 {
		q.askOthersLocked(s)
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

func (s *shard[T]) executedLocked(b *batch, r *reply, items []T, bad []error, err error) (lost losses) {
	q := s.q
	if !b.full {
		s.full.full = false
	}
	s.counts = counts{r.queued, r.processing, r.again, r.waiting, r.failing, r.aside}
	q.totals.adds += uint64(r.changed)
	q.totals.lostDones += uint64(r.unmatched)
	if len(s.ops) > 0 {
		s.executed = s.ops[0].seq - 1
	} else {
		s.executed = s.numbered
	}
	numbers := r.numbers
	for _, o := range b.ops {
		if o.number != nil && len(numbers) > 0 {
			o.number <- numbers[0]
			numbers = numbers[1:]
		}
	}
	if err == nil || b.wait {
		s.confirmedLocked(b, err)
	}

	now := time.Now()
	if b.quits {
		lost = s.sessionEndedLocked()
	} else {
		s.session.leaseFrom = b.began
		lost = s.checkLeaseLocked(now)
		for i, key := range r.keys {
			s.receiveLocked(key, items[i], bad[i], r.now, now)
		}
		s.armLocked(now)
	}
	if b.want > 0 {
		s.empty = len(r.keys) < b.want
		s.session.registered = s.empty && !b.quits
	} else if b.unregister {
		s.session.registered = false
		s.empty = false // The next getter must ask: no wake-up comes from now on.
	}
	if r.queued > 0 || s.news {
		s.empty = false
	}
	s.sleep.nextDue = time.Time{}
	switch {
	case r.nextDue == 0:
		s.empty = false // More keys are due than one batch moves.
	case r.nextDue > 0:
		s.sleep.nextDue = now.Add(r.nextDue)
	}
	return lost
}
