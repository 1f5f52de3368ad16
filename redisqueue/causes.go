package redisqueue

import (
	"fmt"
	"strings"
	"time"

	"github.com/keyedqueue/workqueue"
)

// AddCause is Add that says why. The server keeps the causes with the key, and merges those of all replicas, as
// workqueue.Causes does; their times are rounded down to microseconds. They come with the key to the worker that gets it, again
// if its lease is lost, and are forgotten when a worker is Done with it. A key with causes takes up to 3 KB more on the server.
func (q *Queue[T]) AddCause(item T, cause workqueue.Cause) {
	if cause.Time.IsZero() {
		cause.Time = time.Now()
	}
	q.enqueue(item, func(s *shard[T], encoded string) uint64 { return s.addCauseLocked(encoded, &cause) })
}

// Causes returns the causes with which item was handed out to a worker of this replica. It does not ask the server: for any
// other key it returns none. SnapshotKey has those of every key.
func (q *Queue[T]) Causes(item T) workqueue.Causes {
	checkHashable(item)
	q.mu.Lock()
	h := q.mu.held[item]
	q.mu.Unlock()
	if h == nil {
		return workqueue.Causes{}
	}
	return decodeCauses(h.causes)
}

// plainArg returns a plain add as batch.lua reads it.
func (o *op) plainArg() string {
	if o.causes.IsZero() && !o.quiet {
		return "a" + o.encoded
	}
	return fmt.Sprintf("c%016d%s%s%s", len(o.encoded), o.encoded, volume[o.quiet], encodeCauses(o.causes))
}

// volume is what the server keeps of Cause.Quiet.
var volume = map[bool]string{true: "q", false: "l"}

// encodeCauses returns causes as the server keeps them, nothing if there are none: see addCauses in operations.lua. Two causes
// are the same if all behind the volume is: the length of TraceParent in two digits, TraceParent, Reason.
func encodeCauses(causes workqueue.Causes) string {
	if causes.IsZero() {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s ", causes.Others, micros(causes.First))
	for _, c := range causes.Last {
		cause := fmt.Sprintf("%s%s%02d%s%s", micros(c.Time), volume[c.Quiet], len(c.TraceParent), c.TraceParent, c.Reason)
		fmt.Fprintf(&b, "%d %s", len(cause), cause)
	}
	return b.String()
}

// micros has 16 digits.
func micros(t time.Time) string {
	return fmt.Sprintf("%016d", min(max(t.UnixMicro(), 0), 9_999_999_999_999_999))
}

func decodeCauses(text string) (causes workqueue.Causes) {
	if text == "" {
		return causes
	}
	p := parser{rest: text}
	causes.Others, causes.First = int(p.number()), time.UnixMicro(p.number())
	for p.rest != "" && !p.bad {
		own := parser{rest: p.take(int(p.number()))}
		c := workqueue.Cause{Time: time.UnixMicro(own.digits(16)), Quiet: own.take(1) == "q"}
		c.TraceParent = own.take(int(own.digits(2)))
		c.Reason = own.rest
		causes.Last = append(causes.Last, c)
	}
	return causes
}

// watchInterval is how often the server is asked for keys that other replicas have added again.
const watchInterval = 400 * time.Millisecond

// AddedAgain returns a channel that is closed when item, which a worker of this replica holds, is added again, on whichever
// replica, at once or because its time has come: immediately if this replica adds it without a delay, otherwise within a
// second. It asks the server, for up to a second, whether that has happened already; if so, the channel is closed. A second
// call for the same hand-out returns the same channel, and does not wait. Adds with a Quiet cause do not count. After Done,
// and when the lease is lost, nothing closes it any more. For a key that is not held it is nil.
//
// While there are such channels that are not closed, the server is asked every 400 ms, for all of these keys together.
func (q *Queue[T]) AddedAgain(item T) <-chan struct{} {
	checkHashable(item)
	q.mu.Lock()
	h := q.mu.held[item]
	if h == nil {
		q.mu.Unlock()
		return nil
	}
	first, asked := h.added == nil, make(chan struct{})
	if first {
		h.added = make(chan struct{})
	}
	if !first || h.lost {
		close(asked)
	} else {
		s := h.shard
		s.watched[h.encoded] = h
		s.askAddedLocked(h, func() { close(asked) })
		if len(s.watched) == 1 {
			s.timers.watch.Reset(watchInterval)
		}
	}
	q.mu.Unlock()
	select {
	case <-asked:
	case <-time.After(patience):
	}
	return h.added
}

// askAddedLocked asks the server whether a key was added again.
func (s *shard[T]) askAddedLocked(h *hold[T], answered func()) {
	ask := aboutHeld("w", h.handedOut)
	ask.answer = func(n int) {
		if n > 0 {
			s.addedAgainLocked(h.encoded)
		}
		answered()
	}
	s.enqueueLocked(ask)
}

// watch asks the server for all keys that are watched, and waits for its answers before it asks again.
func (s *shard[T]) watch() {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	left := len(s.watched)
	for _, h := range s.watched {
		s.askAddedLocked(h, func() {
			if left--; left == 0 && len(s.watched) > 0 {
				s.timers.watch.Reset(watchInterval)
			}
		})
	}
}

// addedAgainLocked notes that a key was added again.
func (s *shard[T]) addedAgainLocked(encoded string) {
	if h := s.watched[encoded]; h != nil {
		s.unwatchLocked(h)
		close(h.added)
	}
}

func (s *shard[T]) unwatchLocked(h *hold[T]) {
	if s.watched[h.encoded] == h {
		delete(s.watched, h.encoded)
	}
}
