package redisqueue

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// health is what the last answers say of the server.
type health struct {
	outage      error     // why the last attempt failed, or errFull while the server takes no adds
	fullSince   time.Time // since when the server's memory is full, zero if it is not
	retryAddsAt time.Time // when adds are tried again on a full server
}

// untilAnswered calls ask until it succeeds, and returns true. It gives up and returns false in a tool when
// the server refuses, and otherwise only after a shutdown: when no key is held and a lease has passed, or at
// once if the program has closed the client, which is no outage.
func (s *shard[T]) untilAnswered(ask func() error) bool {
	q, began := s.q, time.Now()
	// After an outage the server counts on with its leases, so a replica has half of one to come back.
	longest := min(time.Second, q.config.Lease/8)
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, longest) {
		err := ask()
		if err == nil {
			return true
		}
		q.mu.Lock()
		isClosing := q.mu.ending.stopping && (errors.Is(err, redis.ErrClosed) || errors.Is(err, net.ErrClosed))
		if !isClosing {
			s.noteFailureLocked(err)
		}
		q.unlock()
		if isClosing && errors.Is(err, redis.ErrClosed) {
			return false
		}
		q.sleep(pause)
		q.mu.Lock()
		isRefused := isAnswer(err) || errors.Is(err, ErrIncompatible)
		givesUp := q.mu.ending.over || q.givesUpLocked(began) || q.tool && isRefused
		q.mu.Unlock()
		if givesUp {
			return false
		}
	}
}

// isAnswer reports whether err is an answer of the server.
func isAnswer(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}

// noteFailureLocked notes that the server has not answered, or has refused what it was asked for.
func (s *shard[T]) noteFailureLocked(err error) {
	q, before := s.q, s.server.outage
	s.server.outage = err
	if err != errFull { // Other shards may serve the getters that this call was to serve.
		s.setInCallLocked(0)
		q.kickAllLocked()
	}
	q.mu.totals.shared.Errors++
	if before == nil {
		q.logLocked(slog.LevelError, "The queue's server fails", "err", err)
	}
}

// noteAnswerLocked notes that the server has answered: an outage is over.
func (s *shard[T]) noteAnswerLocked() {
	if s.server.outage != nil {
		s.q.logLocked(slog.LevelInfo, "The queue's server answers again")
	}
	s.server.outage = nil
}

// outage returns why the last attempt to reach the server failed, or nil.
func (q *Queue[T]) outage() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.outageLocked()
}

func (q *Queue[T]) outageLocked() error {
	for _, s := range q.shards {
		if s.server.outage != nil {
			return s.server.outage
		}
	}
	return nil
}

// logLocked makes unlock call the logger.
func (q *Queue[T]) logLocked(level slog.Level, what string, args ...any) {
	q.mu.foreign = append(q.mu.foreign, func() {
		q.config.Logger.With("queue", q.config.Name).Log(context.Background(), level, what, args...)
	})
}

// sleep waits for d, no longer than until this replica has ended.
func (q *Queue[T]) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-q.ended:
	}
}

var errFull = errors.New("redisqueue: OOM: the server's memory is full, and it takes no adds")

// fullRetry is how often adds are tried on a full server.
const fullRetry = 250 * time.Millisecond

// refusesAddsLocked reports whether the server has refused adds a moment ago, because its memory is full.
func (s *shard[T]) refusesAddsLocked(now time.Time) bool { return now.Before(s.server.retryAddsAt) }

// noteFullLocked notes whether the server's memory was full when it executed b. If so, b's adds were not
// executed, and go back into the buffer. It reports whether the caller should drop that: after a shutdown,
// when the server has been full for a lease.
func (s *shard[T]) noteFullLocked(b *batch, r *reply, now time.Time) (drop bool) {
	if r.status != "FULL" {
		s.server.fullSince, s.server.retryAddsAt = time.Time{}, time.Time{}
		return false
	}
	if s.server.fullSince.IsZero() {
		s.server.fullSince = now
	}
	// DeleteFunc overwrites b.ops, which nothing reads any more.
	refused := slices.DeleteFunc(b.ops, func(o *op) bool { return !o.isAdd() })
	if len(refused) == 0 {
		return false // The next add finds out whether there is room by now.
	}
	s.server.retryAddsAt = now.Add(fullRetry)
	s.noteFailureLocked(errFull)
	s.buffer.putBack(refused)
	return !s.buffer.hasAboutHeld() && s.q.givesUpLocked(s.server.fullSince)
}
