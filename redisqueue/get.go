package redisqueue

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/redis/go-redis/v9"
)

// Get waits for a key and hands it to the caller, who must call Done with it. It waits through outages of the server.
// After shutdown it returns shutdown = true at once, also if keys are queued: those are for the other replicas. The getter
// that has waited longest gets the next key. Getters share the calls of the server.
func (q *Queue[T]) Get() (item T, shutdown bool) {
	item, err := q.GetContext(context.Background())
	return item, err != nil
}

// GetContext is Get that gives up when ctx is done, and returns ctx.Err() then. After shutdown it returns ErrShutDown.
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

// Done ends the processing of item. It does not block: the server hears of it with the next call, which begins at once; see
// Flush. If the key was added meanwhile, it is queued again. If its lease was lost, Done changes nothing on the server and is
// counted in [Info]. For a key that this process does not hold it changes nothing and counts as unmatched in Stats. During
// shutdown it works as before; the last Done lets the replica end.
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
	s.expireLocked(now) // A parked hand-out may be lost too.
	delete(q.mu.held, item)
	s.unwatchLocked(h)
	if q.mu.ending.stopping && len(q.mu.held) == 0 {
		q.mu.ending.since = now
	}
	q.mu.totals.workDuration.observe(now.Sub(h.began))
	if h.lost {
		q.mu.totals.info.LostDones++
	} else {
		s.session.held--
		s.enqueueLocked(aboutHeld("d", h.handedOut))
	}
	if h.parked != nil {
		s.session.held--
		s.handLocked(*h.parked, item, now)
	}
	q.endLocked()
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
	for _, s := range q.shards {
		s.kickLocked()
		s.sleepLocked()
	}
	return g
}

// cancel makes g wait no more, unless it has a key already or knows of the shutdown.
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
			s.timers.due.Stop()
			s.kickLocked() // so that wake-ups go to others
		}
	}
	return true
}

// demandLocked returns how many keys to ask for: no more than there are getters that no call in flight may serve, and
// this shard's part of them.
func (s *shard[T]) demandLocked() int {
	unserved := len(s.q.mu.getters) - s.q.mu.requested
	if s.drained || unserved <= 0 || s.session.abandoned {
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

// wakesUpLocked reports whether the server must hear that no getter waits here any more: it may send wake-ups to others.
func (s *shard[T]) wakesUpLocked() bool { return s.session.asleep && len(s.q.mu.getters) == 0 }

// arrival is a key that was handed out, decoded.
type arrival[T comparable] struct {
	handedOut
	item T
	bad  error // why it could not be decoded
}

// receiveLocked gives a key from the server to a getter, or back if none waits any more.
func (s *shard[T]) receiveLocked(key arrival[T], serverNow int64, now time.Time) {
	q := s.q
	switch {
	case s.session.abandoned || s.session.id == "":
		return // It comes again when the session has quit.
	case key.bad != nil:
		s.enqueueLocked(aboutHeld("u", key.handedOut))
		return
	}
	q.mu.totals.latency.observe(time.Duration(serverNow-key.since) * time.Microsecond)
	switch h := q.mu.held[key.item]; {
	case h == nil:
		s.handLocked(key.handedOut, key.item, now)
	case h.encoded != key.encoded:
		// Another string of the same key: it is finished, and the one that is known comes again instead.
		h.shard.addLocked(h.encoded)
		s.enqueueLocked(aboutHeld("d", key.handedOut))
	default:
		if h.parked == nil {
			s.session.held++
		}
		h.parked = &key.handedOut
	}
}

// handLocked hands a key that the session holds to a getter, or back.
func (s *shard[T]) handLocked(key handedOut, item T, now time.Time) {
	q := s.q
	if len(q.mu.getters) == 0 {
		s.enqueueLocked(aboutHeld("b", key))
		return
	}
	g := q.mu.getters[0]
	q.mu.getters[0] = nil
	q.mu.getters = q.mu.getters[1:]
	q.mu.held[item] = &hold[T]{handedOut: key, shard: s, began: now}
	s.session.held++
	if s.session.held == 1 {
		s.armLocked(now)
	}
	g <- item
}

// sleepLocked makes the shard wait for keys, if getters do and it has none: for a wake-up from the server, for the time of the
// next delayed key, and for the poll interval.
func (s *shard[T]) sleepLocked() {
	if !s.drained || s.sending || len(s.q.mu.getters) == 0 || s.session.id == "" {
		return
	}
	if !s.reading {
		s.reading = true
		go s.readWakeUp(s.names.wake(s.session.id))
	}
	s.timers.due.Stop()
	if !s.nextDue.IsZero() {
		s.timers.due.Reset(time.Until(s.nextDue))
	}
}

// wakeLocked asks the server for keys, if getters wait.
func (s *shard[T]) wakeLocked() {
	s.drained, s.woken = false, true
	s.kickLocked()
}

// readWakeUp waits for a wake-up, no longer than the poll interval.
func (s *shard[T]) readWakeUp(list string) {
	q, ctx, interval := s.q, context.Background(), s.q.config.PollInterval
	var err error
	if interval >= time.Second {
		err = q.client.BLPop(ctx, interval.Truncate(time.Second), list).Err()
	} else {
		err = q.client.Do(ctx, "BLPOP", list, strconv.FormatFloat(interval.Seconds(), 'f', 3, 64)).Err()
	}
	if err != nil && !errors.Is(err, redis.Nil) {
		q.pause(interval)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	s.reading = false
	s.wakeLocked() // Without getters this goes to the server too, which wakes another replica.
}
