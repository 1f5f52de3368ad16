package redisqueue

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/keyedqueue/workqueue/leasing"
)

// session is one life of this replica in a shard. Its lease covers the keys that it was handed out; each
// batch renews it. When the lease has ended by our own clock, a margin before the server's, the session's
// keys are lost: their handlers' contexts end, and their Dones are not sent.
//
//	none       id is empty: the next batch begins a session
//	live       until the lease ends: then abandoned if the server may hold keys for it, otherwise none
//	abandoned  until quitsAt, when handlers have had the margin to notice: a last batch makes it quit
//
// If the server does not know the session, it is none at once.
type session struct {
	id       string
	batchSeq uint64 // counts its batches
	// leaseFrom is when the last answered batch was first sent. The server counts from a later moment, so the
	// lease ends here first.
	leaseFrom time.Time
	lastFence string    // of the newest hand-out that has arrived: knownFence in batch.lua
	held      int       // keys that it holds: holds that are not lost, and what is in nextHandOut
	abandoned bool      // it has expired, and must quit
	quitsAt   time.Time // when it quits
}

func newSession() string {
	var random [8]byte
	_, _ = rand.Read(random[:])
	return base64.RawURLEncoding.EncodeToString(random[:])
}

// hold is a key that a worker of this process has.
type hold[T comparable] struct {
	handedOut
	shard *shard[T]
	began time.Time // when the worker got it
	// onHold: PutOnHold was called, so its work has been counted.
	onHold bool
	lost   bool  // the server has the key, or has given it to somebody else
	why    error // the cause with which the handler's context ends then
	// handsBack: HandBack was called, so Done gives the key back.
	handsBack bool
	added     chan struct{}             // closed when the key is added again; nil before AddedAgain
	cancel    []context.CancelCauseFunc // of the contexts that Lease has returned
	// nextHandOut is the same key, handed out to this process again before its Done: after its lease was lost,
	// or because the server has lost the first hand-out. Two workers of one process never have the same key.
	nextHandOut *handedOut
}

// Lease returns a context for the handler of a key that Get has returned. It is derived from ctx, carries the
// key's [Fence], and ends with the cause [leasing.ErrLost] when the lease of the key is lost. Package
// worker calls it. The caller must call the returned function when the handler has returned. For a key that
// is not held, Lease returns ctx itself. It does not block, and works in the same way during shutdown. It
// panics for a key that cannot be hashed.
func (q *Queue[T]) Lease(ctx context.Context, item T) (context.Context, context.CancelFunc) {
	h := q.holdOf(item)
	if h == nil {
		return ctx, func() {}
	}
	leased, cancel := context.WithCancelCause(context.WithValue(ctx, fenceKey{}, h.fence))
	q.mu.Lock()
	lost, why := h.lost, h.why
	h.cancel = append(h.cancel, cancel)
	q.mu.Unlock()
	if lost {
		cancel(why)
	}
	return leased, func() { cancel(context.Canceled) }
}

// LeaseOnHold is Lease: this queue never wants a key on hold back.
func (q *Queue[T]) LeaseOnHold(ctx context.Context, item T) (context.Context, context.CancelFunc) {
	return q.Lease(ctx, item)
}

type fenceKey struct{}

// Fence returns the number of the hand-out that ctx, a handler's context (see [Queue.Lease]), belongs to, and
// true; for other contexts 0 and false. It grows with each hand-out of a key, on whichever replica. A handler
// that stores it beside what it writes, and refuses to write where a greater one is stored, cannot overwrite
// the work of a later holder after it has lost its lease unawares. Numbers are positive, about the
// microseconds since 1970 on the server's clock; those of different shards are unordered.
func Fence(ctx context.Context) (int64, bool) {
	fence, _ := ctx.Value(fenceKey{}).(string)
	n, err := strconv.ParseInt(fence, 10, 64)
	return n, err == nil
}

// expiresAtLocked returns when the lease ends by our clock: a margin before the server hands the keys out
// again, so that a handler whose context ends has the time to notice.
func (s *shard[T]) expiresAtLocked() time.Time {
	return s.session.leaseFrom.Add(s.q.config.Lease - s.q.config.margin())
}

// expireLocked ends the session, or abandons it, if its lease has ended by our clock.
func (s *shard[T]) expireLocked(now time.Time) {
	if s.session.leaseFrom.IsZero() || s.session.abandoned || now.Before(s.expiresAtLocked()) {
		return
	}
	if s.session.held == 0 && !s.buffer.hasAboutHeld() && s.underWay == nil {
		s.endSessionLocked() // It holds nothing, so the server need not hear of it.
	} else {
		s.session.abandoned, s.session.quitsAt = true, now
		if s.session.held > 0 { // Their handlers have the margin to notice that their contexts have ended.
			s.session.quitsAt = now.Add(s.q.config.margin())
			s.timers.lease.Reset(s.q.config.margin())
		}
		s.loseKeysLocked()
	}
	s.kickLocked()
}

// loseKeysLocked marks all keys of the session as lost, and ends their handlers' contexts.
func (s *shard[T]) loseKeysLocked() {
	q, lost := s.q, 0
	for _, h := range q.mu.held {
		if h.shard != s {
			continue
		}
		h.nextHandOut = nil
		delete(s.watched, h.encoded)
		if !h.lost {
			lost++
			q.loseLocked(h, leasing.ErrLost)
		}
	}
	s.session.held = 0
	if lost > 0 {
		q.logLocked(slog.LevelWarn, "Lost the lease of keys that are being processed", "err",
			fmt.Errorf("%w (%d keys)", leasing.ErrLost, lost))
	}
}

// loseLocked marks a key as lost, and ends its handler's contexts with that cause.
func (q *Queue[T]) loseLocked(h *hold[T], why error) {
	h.lost, h.why = true, why
	q.mu.totals.shared.LostLeases++
	for _, cancel := range h.cancel {
		q.mu.foreign = append(q.mu.foreign, func() { cancel(why) })
	}
	h.cancel = nil
}

// ErrReleased is the cause with which a handler's context ends when an operator has released its key, see
// [Admin.Release]. It wraps [leasing.ErrLost].
var ErrReleased = fmt.Errorf("redisqueue: an operator has released the key: %w", leasing.ErrLost)

// freeLocked notes that an operator has ended the hand-outs with these fences.
func (s *shard[T]) freeLocked(fences []string) {
	for _, fence := range fences {
		for _, h := range s.q.mu.held {
			if n := h.nextHandOut; h.shard == s && n != nil && n.fence == fence {
				h.nextHandOut, h.why = nil, ErrReleased
				s.session.held--
			} else if h.shard == s && !h.lost && h.fence == fence {
				s.q.loseLocked(h, ErrReleased)
				s.session.held--
				delete(s.watched, h.encoded)
				s.q.logLocked(slog.LevelWarn, "An operator has released a held key", "err", ErrReleased)
			}
		}
	}
}

// endSessionLocked forgets the session: it has quit, or the server does not know it.
func (s *shard[T]) endSessionLocked() {
	s.loseKeysLocked()
	s.session = session{}
	s.fetcher.isSleeper = false // The next session's getters are not known to the server.
	s.setEmptyLocked(false)
}

var errAnswerLost = errors.New("redisqueue: the server has done it, but its answer is lost with the lease")

// goneLocked handles GONE: all of b was done but the adds that a full server refused, and then the session
// ended. The answers are lost, and are not asked for again: a second Remove could remove a later add.
func (s *shard[T]) goneLocked(b *batch, r *reply) {
	b.ops = slices.DeleteFunc(b.ops, func(o *op) bool {
		isDone := !(r.full && o.isAdd())
		if isDone && o.onResult != nil {
			o.onResult(opResult{}, errAnswerLost)
		}
		return isDone
	})
	s.sessionLostLocked(b)
}

// sessionLostLocked handles the end of the session on the server: the lease has ended, or data were lost. The
// next session sends again what does not depend on this one.
func (s *shard[T]) sessionLostLocked(b *batch) {
	s.endSessionLocked()
	s.allCounts = s.allCounts || b.allCounts
	s.buffer.putBack(b.ops)
	s.q.mu.totals.shared.LostDones += uint64(s.buffer.dropAboutHeld())
	s.confirmExecutedLocked() // Maybe no operation is left to send.
}

// armLocked sets the timer to the time of the next renewal or, once that has passed, to the end of the lease.
func (s *shard[T]) armLocked(now time.Time) {
	if s.session.held == 0 {
		return
	}
	at := s.session.leaseFrom.Add(s.q.config.Lease / 3)
	if !at.After(now) {
		at = s.expiresAtLocked() // A renewal is under way, or the server does not answer.
	}
	s.timers.lease.Reset(at.Sub(now))
}

// tickLocked renews the lease, or lets it expire.
func (s *shard[T]) tickLocked() {
	now := time.Now()
	s.expireLocked(now)
	s.kickLocked()
	s.armLocked(now)
}
