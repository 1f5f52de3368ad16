package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// getter is a call of Get that waits. The channel has room for the one key, and is closed at shutdown.
type getter[T comparable] chan T

// nextGetterLocked returns the getter that waits for the longest time, and has it wait no more, or returns nil.
func (q *Queue[T]) nextGetterLocked() (g getter[T]) {
	if len(q.mu.getters) > 0 {
		g, q.mu.getters[0] = q.mu.getters[0], nil
		q.mu.getters = q.mu.getters[1:]
	}
	return g
}

// waitForKeyLocked makes the caller wait for a key.
func (q *Queue[T]) waitForKeyLocked() getter[T] {
	g := make(getter[T], 1)
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
func (q *Queue[T]) cancel(g getter[T]) bool {
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
	var g getter[T]
	if !q.mu.ending.stopping {
		g = q.nextGetterLocked()
	}
	if g == nil {
		s.enqueueLocked(aboutHeld("b", key))
		return
	}
	q.mu.held[item] = &hold[T]{handedOut: key, shard: s, began: now}
	s.session.held++
	if s.session.held == 1 {
		s.armLocked(now)
	}
	g <- item
}

// arrival is a key that was handed out, decoded.
type arrival[T comparable] struct {
	handedOut
	item T
	bad  error // why it could not be decoded
}

func (q *Queue[T]) decode(encoded string) (item T, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("redisqueue: decode %q: panic: %v", encoded, v)
		}
	}()
	item, err = q.config.Codec.Decode(encoded)
	if err == nil && item != item {
		err = errors.New("the key is not equal to itself")
	}
	if err != nil {
		return item, fmt.Errorf("redisqueue: decode %q: %w", encoded, err)
	}
	checkHashable(item)
	return item, nil
}

// sleepLocked makes the shard wait for keys, if getters do and it has none: for a wake-up from the server, for the time of the
// next delayed key, and for the poll interval.
func (s *shard[T]) sleepLocked() {
	if !s.drained || s.sending || len(s.q.mu.getters) == 0 || s.q.mu.ending.stopping || s.session.id == "" {
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

// wake asks the server for keys, if getters wait.
func (s *shard[T]) wake() {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	s.wakeLocked()
}

func (s *shard[T]) wakeLocked() {
	s.drained, s.woken = false, true
	s.kickLocked()
}

// readWakeUp waits for a wake-up, no longer than the poll interval.
func (s *shard[T]) readWakeUp(list string) {
	q := s.q
	if err := q.blockingRead(list); err != nil {
		q.pause(q.config.PollInterval, time.Time{})
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	s.reading = false
	s.wakeLocked() // Without getters this goes to the server too, which wakes another replica.
}

// blockingRead returns nil after a wake-up and after the poll interval.
func (q *Queue[T]) blockingRead(list string) (err error) {
	interval := q.config.PollInterval
	ctx := context.Background()
	if interval >= time.Second {
		err = q.client.BLPop(ctx, interval.Truncate(time.Second), list).Err()
	} else {
		err = q.client.Do(ctx, "BLPOP", list, strconv.FormatFloat(interval.Seconds(), 'f', 3, 64)).Err()
	}
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}
