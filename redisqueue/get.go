package redisqueue

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/redis/go-redis/v9"
)

// fetcher gets keys for the getters. A batch wants as many keys as getters wait, less those that a call under
// way may bring, until the shard is empty: nothing is queued, or nothing may be handed out. While it is,
// batches want none: a goroutine reads the session's WAKE list, and a timer runs until callAt, at most a poll
// interval. After a wake-up or when the timer ends, the next batch looks again; so it does after an add from
// here, a reply that reports keys to be had, or the end of the session.
//
// The server wakes sessions that are in SLEEPERS. A session enters it with a batch that gets fewer keys than
// it wants from an empty shard, and leaves it with the next batch that wants keys, or when no getter waits.
type fetcher struct {
	fetcherState
	inCall  int  // how many keys the call under way may bring
	reading bool // the goroutine that waits for a wake-up exists
}

// fetcherState is what changes with the reply to a batch.
type fetcherState struct {
	empty     bool // nothing is queued, or nothing may be handed out
	isSleeper bool // the session has entered SLEEPERS, and has not left it itself
	// woken: a wake-up has come since the call under way began, and may have overtaken its reply: that reply
	// does not set empty.
	woken     bool
	callAt    time.Time // when a key is due, a pause ends or the start limit has tokens, or zero
	lastFetch time.Time // when the last reply came to a batch that wants keys
}

// Get waits for a key and hands it to the caller, who must call Done with it. It waits through outages of the
// server. After shutdown it returns shutdown = true at once, also if keys are queued: those are for the other
// replicas. The getter that has waited longest gets the next key. Getters share the calls of the server.
func (q *Queue[T]) Get() (item T, shutdown bool) {
	item, err := q.GetContext(context.Background())
	return item, err != nil
}

// GetContext is Get that gives up when ctx is done, and returns ctx.Err() then. After shutdown it returns
// ErrShutDown.
func (q *Queue[T]) GetContext(ctx context.Context) (item T, err error) {
	if err := ctx.Err(); err != nil {
		return item, err
	}
	g := q.waitForKey()
	var ok bool
	select {
	case item, ok = <-g:
	case <-ctx.Done():
		if q.cancel(g) {
			return item, ctx.Err()
		}
		item, ok = <-g
	}
	if !ok {
		return item, workqueue.ErrShutDown
	}
	return item, nil
}

// Next is GetContext that also returns what the server has said of the key: see [workqueue.Extended].
func (q *Queue[T]) Next(ctx context.Context) (h workqueue.HandOut[T], err error) {
	if h.Key, err = q.GetContext(ctx); err != nil {
		return h, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if held := q.mu.held[h.Key]; held != nil {
		h.Priority, h.AddedAt, h.HasCauses = held.priority, held.addedAt, held.causes != ""
		h.Failures, h.AtOnce = held.knownFailures(), held.atOnce
	}
	return h, nil
}

// Done ends the processing of item. It does not block: the server hears of it with the next call, which
// begins at once; see Settle. If the key was added meanwhile, it is queued again. If its lease was lost, Done
// changes nothing on the server and counts as LostDones of [leasing.Stats]. For a key that this process does
// not hold it changes nothing and counts as unmatched in Stats. During shutdown it works as before; the last
// Done lets the replica end.
func (q *Queue[T]) Done(item T) {
	checkHashable(item)
	q.mu.Lock()
	defer q.unlock()
	h := q.mu.held[item]
	if h == nil {
		q.mu.totals.stats.UnmatchedDones++
		return
	}
	s := h.shard
	now := time.Now()
	s.expireLocked(now) // The nextHandOut may be lost too.
	delete(q.mu.held, item)
	delete(s.watched, h.encoded)
	if q.mu.ending.stopping && len(q.mu.held) == 0 {
		q.mu.ending.since = now
	}
	if !h.onHold {
		q.mu.totals.workDuration.observe(now.Sub(h.began))
	}
	if h.lost {
		q.mu.totals.shared.LostDones++
	} else {
		s.session.held--
		end := aboutHeld(codeDone, h.handedOut)
		if h.handsBack {
			end = newHandBack(h.handedOut)
			end.key = h.encoded
		}
		s.putLocked(end)
	}
	if h.nextHandOut != nil {
		s.session.held--
		s.handLocked(*h.nextHandOut, item, now)
	}
	q.endLocked()
}

// PutOnHold ends the work on item, and leaves item to the caller: see [workqueue.Extended]. Only this process
// knows of it, so Stats.OnHold counts its own keys alone.
func (q *Queue[T]) PutOnHold(item T) {
	checkHashable(item)
	q.mu.Lock()
	defer q.mu.Unlock()
	if h := q.mu.held[item]; h != nil && !h.onHold {
		h.onHold = true
		q.mu.totals.workDuration.observe(time.Since(h.began))
	}
}

// waitForKey makes the caller wait for a key.
func (q *Queue[T]) waitForKey() chan T {
	g := make(chan T, 1)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.ending.stopping {
		close(g)
		return g
	}
	q.mu.getters = append(q.mu.getters, g)
	q.kickAllLocked()
	for _, s := range q.shards {
		s.awaitWakeUpLocked()
	}
	return g
}

// cancel removes g from the getters, and returns false if it has a key already or knows of the shutdown.
func (q *Queue[T]) cancel(g chan T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.mu.getters, g)
	if i < 0 {
		return false
	}
	q.mu.getters = slices.Delete(q.mu.getters, i, i+1)
	if len(q.mu.getters) == 0 {
		for _, s := range q.shards {
			s.timers.wake.Stop()
			s.kickLocked() // so that wake-ups go to others
		}
	}
	return true
}

// next returns what follows from the reply to a batch that was executed.
func (f fetcherState) next(b *batch, r *reply, now time.Time) fetcherState {
	nothingToHandOut := r.counts.Queued == 0 || r.counts.Paused || r.counts.Limited
	switch {
	case b.want > 0:
		f.lastFetch = now
		f.empty = len(r.keys) < b.want && nothingToHandOut
		f.isSleeper = f.empty && !b.quits
	case b.leavesSleepers:
		f.isSleeper, f.empty = false, false // No wake-up comes from now on, so the next getter must look.
	}
	moreAreDue := r.callIn == 0 // more than one batch moves
	if !nothingToHandOut || f.woken || moreAreDue {
		f.empty = false
	}
	f.callAt = time.Time{}
	if r.callIn > 0 {
		f.callAt = now.Add(r.callIn)
	}
	return f
}

func (s *shard[T]) setEmptyLocked(empty bool) {
	if s.fetcher.empty && !empty {
		s.q.mu.nonEmpty++
	} else if !s.fetcher.empty && empty {
		s.q.mu.nonEmpty--
	}
	s.fetcher.empty = empty
}

// nextWantLocked returns how many keys the next batch wants: this shard's part of the getters that no call in
// flight may serve.
func (s *shard[T]) nextWantLocked() int {
	unserved := len(s.q.mu.getters) - s.q.mu.inCalls
	if s.fetcher.empty || unserved <= 0 || s.session.abandoned {
		return 0
	}
	shards := s.q.mu.nonEmpty
	return min((unserved+shards-1)/shards, maxWant)
}

// setInCallLocked notes how many keys the call under way may bring.
func (s *shard[T]) setInCallLocked(n int) {
	s.q.mu.inCalls += n - s.fetcher.inCall
	s.fetcher.inCall = n
}

// mustLeaveSleepersLocked reports whether the session is in SLEEPERS although no getter waits.
func (s *shard[T]) mustLeaveSleepersLocked() bool {
	return s.fetcher.isSleeper && len(s.q.mu.getters) == 0
}

// arrival is a key that was handed out, decoded.
type arrival[T comparable] struct {
	handedOut
	item T
	err  error // why it could not be decoded
}

// receiveLocked decides what becomes of a key that the server has handed out.
func (s *shard[T]) receiveLocked(key arrival[T], serverNow int64, now time.Time) {
	q := s.q
	switch {
	case s.session.abandoned:
		return // Another replica gets it when the session has quit.
	case key.err != nil:
		s.putLocked(aboutHeld(codeCannotDecode, key.handedOut))
		q.logLocked(slog.LevelWarn, "A key cannot be decoded and was given up", "err", key.err)
		return
	}
	waited := time.Duration(serverNow-key.since) * time.Microsecond
	q.mu.totals.latency.observe(waited)
	key.addedAt, key.retryAt = now.Add(-waited), now.Add(key.left)
	switch h := q.mu.held[key.item]; {
	case h == nil:
		s.handLocked(key.handedOut, key.item, now)
	case h.encoded != key.encoded:
		// Another encoding of a key that a worker has: finish this one, and add the worker's instead.
		h.shard.putLocked(newAdd(h.encoded))
		s.putLocked(aboutHeld(codeDone, key.handedOut))
	case h.why == ErrReleased:
		s.putLocked(aboutHeld(codePutOff, key.handedOut)) // The handler hangs: another replica may take the key.
	default: // An older nextHandOut is void: the server has lost it.
		if h.nextHandOut == nil {
			s.session.held++
		}
		h.nextHandOut = &key.handedOut
	}
}

// handLocked gives a key that the session holds to a getter, or back to the server if none waits.
func (s *shard[T]) handLocked(key handedOut, item T, now time.Time) {
	q := s.q
	if len(q.mu.getters) == 0 {
		s.putLocked(newHandBack(key))
		return
	}
	g := q.mu.getters[0]
	q.mu.getters[0] = nil
	q.mu.getters = q.mu.getters[1:]
	q.mu.held[item] = &hold[T]{handedOut: key, shard: s, began: now}
	s.session.held++
	g <- item
}

// awaitWakeUpLocked lets the shard wait for a wake-up, until callAt, or for the poll interval, if getters
// wait and it is empty.
func (s *shard[T]) awaitWakeUpLocked() {
	if !s.fetcher.empty || s.senderRuns || len(s.q.mu.getters) == 0 || s.session.id == "" {
		return
	}
	if !s.fetcher.reading {
		s.fetcher.reading = true
		go s.readWakeUp(s.names.wake(s.session.id))
	}
	poll := time.Until(s.fetcher.lastFetch.Add(s.q.config.PollInterval))
	if !s.fetcher.callAt.IsZero() {
		poll = min(poll, time.Until(s.fetcher.callAt))
	}
	s.timers.wake.Reset(poll)
}

// wakeUpLocked ends that wait: the next batch wants keys, if getters wait.
func (s *shard[T]) wakeUpLocked() {
	s.setEmptyLocked(false)
	s.fetcher.woken = true
	s.kickLocked()
}

// readWakeUp waits for a wake-up, for the poll interval but at least a second: for a BLPOP of whole seconds
// the client extends its ReadTimeout. Then it begins again: not it, but awaitWakeUpLocked's timer polls.
func (s *shard[T]) readWakeUp(list string) {
	q, interval := s.q, s.q.config.PollInterval
	err := q.blocking.BLPop(context.Background(), max(interval, time.Second).Truncate(time.Second), list).Err()
	// Not errors.Is: a Sentinel without a master returns, at once, an error that wraps redis.Nil.
	if err != nil && err != redis.Nil {
		q.sleep(interval)
	}
	q.mu.Lock()
	defer q.unlock()
	if isAnswer(err) && redis.HasErrorPrefix(err, "NOPERM") && !q.mu.saidItPolls {
		q.mu.saidItPolls = true
		q.logLocked(slog.LevelWarn, "The queue polls, and keys come up to a poll interval late", "err", err)
	}
	s.fetcher.reading = false
	if err == nil {
		s.wakeUpLocked() // Without getters this lets the session leave SLEEPERS, so that wake-ups go to others.
	} else {
		s.awaitWakeUpLocked()
	}
}
