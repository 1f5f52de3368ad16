package redisqueue

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/redis/go-redis/v9"
)

// getter is a call of Get that waits.
type getter[T comparable] struct {
	key     chan T        // has room for the one key; closed at shutdown
	waiting *list.Element // nil when it has a key or was cancelled
}

// nextGetterLocked returns the getter that waits for the longest time, and has it wait no more, or returns nil.
func (q *Queue[T]) nextGetterLocked() *getter[T] {
	first := q.mu.getters.Front()
	if first == nil {
		return nil
	}
	g := q.mu.getters.Remove(first).(*getter[T])
	g.waiting = nil
	return g
}

// waitForKeyLocked makes the caller wait for a key, or returns nil at shutdown.
func (q *Queue[T]) waitForKeyLocked() *getter[T] {
	if q.mu.ending.stopping {
		return nil
	}
	g := &getter[T]{key: make(chan T, 1)}
	g.waiting = q.mu.getters.PushBack(g)
	for _, s := range q.shards {
		s.kickLocked()
		s.sleepLocked()
	}
	return g
}

// await waits for g's key.
func (q *Queue[T]) await(ctx context.Context, g *getter[T]) (item T, err error) {
	if g == nil {
		return item, workqueue.ErrShutDown
	}
	var ok bool
	select {
	case item, ok = <-g.key:
	case <-ctx.Done():
		if q.cancel(g) {
			return item, ctx.Err()
		}
		item, ok = <-g.key
	}
	if !ok {
		return item, workqueue.ErrShutDown
	}
	return item, nil
}

// cancel makes g wait no more, unless it has a key already or knows of the shutdown.
func (q *Queue[T]) cancel(g *getter[T]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if g.waiting == nil {
		return false
	}
	q.mu.getters.Remove(g.waiting)
	g.waiting = nil
	if q.mu.getters.Len() == 0 {
		for _, s := range q.shards {
			s.sleep.stop()
			s.kickLocked() // so that wake-ups go to others
		}
	}
	return true
}

// receiveLocked gives a key from the server to a getter, or back if none waits any more.
func (s *shard[T]) receiveLocked(key handedOut, item T, bad error, serverNow int64, now time.Time) {
	q := s.q
	switch {
	case s.session.abandoned || s.session.id == "":
		return // It comes again when the session has quit.
	case bad != nil:
		s.enqueueLocked(aboutHeld("u", key.fence, key.encoded))
		return
	}
	q.mu.totals.latency.observe(time.Duration(serverNow-key.since) * time.Microsecond)
	if h := q.mu.held[item]; h != nil {
		if h.encoded != key.encoded {
			// Another string of the same key: it is finished, and the one that is known comes again instead.
			_, _ = h.shard.addLocked(h.encoded)
			s.enqueueLocked(aboutHeld("d", key.fence, key.encoded))
			return
		}
		if h.parked == nil {
			s.session.held++
		}
		h.parked = &key
		return
	}
	s.handLocked(key, item, now)
}

// handLocked hands a key that the session holds to a getter, or back.
func (s *shard[T]) handLocked(key handedOut, item T, now time.Time) {
	q := s.q
	var g *getter[T]
	if !q.mu.ending.stopping {
		g = q.nextGetterLocked()
	}
	if g == nil {
		s.enqueueLocked(aboutHeld("b", key.fence, key.encoded))
		return
	}
	q.mu.held[item] = &hold[T]{handedOut: key, shard: s, began: now}
	s.session.held++
	if s.session.held == 1 {
		s.armLocked(now)
	}
	g.key <- item
}

// decodeAll decodes keys, with an error at the place of each that cannot be.
func (q *Queue[T]) decodeAll(keys []handedOut) ([]T, []error) {
	if len(keys) == 0 {
		return nil, nil
	}
	items, errs := make([]T, len(keys)), make([]error, len(keys))
	for i, key := range keys {
		items[i], errs[i] = q.decode(key.encoded)
	}
	return items, errs
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

// sleep is how a shard waits that has no keys for the getters: for a wake-up from the server, for the time of the next
// delayed key, and for the poll interval.
type sleep struct {
	reading bool // the goroutine that waits for a wake-up exists
	nextDue time.Time
	timer   *time.Timer // for nextDue
}

func (p *sleep) stop() {
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
}

// sleepLocked makes the shard wait for keys, if getters do and it has none.
func (s *shard[T]) sleepLocked() {
	if !s.drained || s.sending || s.q.mu.getters.Len() == 0 || s.q.mu.ending.stopping || s.session.id == "" {
		return
	}
	if !s.sleep.reading {
		s.sleep.reading = true
		go s.readWakeUp(s.names.wake(s.session.id))
	}
	s.sleep.stop()
	if !s.sleep.nextDue.IsZero() {
		s.sleep.timer = time.AfterFunc(time.Until(s.sleep.nextDue), s.wake)
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
	s.sleep.reading = false
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
