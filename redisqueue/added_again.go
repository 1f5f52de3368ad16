package redisqueue

import "time"

// watchInterval is how often the server is asked for keys that other replicas have added again.
const watchInterval = 400 * time.Millisecond

// AddedAgain returns a channel that is closed when item, which a worker of this replica holds, is added again
// or becomes due: immediately if this replica adds it without a delay, otherwise within a second, on
// whichever replica that happens. It asks the server, for up to a second, whether that has happened already;
// if so, the channel is closed. A second call for the same hand-out returns the same channel, and does not
// wait. Adds with a Quiet cause and the key's own retry do not count. After Done, and when the lease is lost,
// nothing closes it any more. For a key that is not held it is nil.
//
// While there are such channels that are not closed, the server is asked every 400 ms, for all of these keys
// together.
func (q *Queue[T]) AddedAgain(item T) <-chan struct{} {
	checkHashable(item)
	q.mu.Lock()
	h := q.mu.held[item]
	if h == nil {
		q.mu.Unlock()
		return nil
	}
	isFirst := h.added == nil
	if isFirst {
		h.added = make(chan struct{})
	}
	if !isFirst || h.lost {
		q.mu.Unlock()
		return h.added
	}
	s, answered := h.shard, make(chan struct{})
	s.watched[h.encoded] = h
	s.askAddedLocked(h, func() { close(answered) })
	if len(s.watched) == 1 {
		s.timers.watch.Reset(watchInterval)
	}
	q.mu.Unlock()
	select {
	case <-answered:
	case <-time.After(patience):
	}
	return h.added
}

// askAddedLocked asks the server whether a key was added again.
func (s *shard[T]) askAddedLocked(h *hold[T], answered func()) {
	ask := aboutHeld(codeAddedAgain, h.handedOut)
	ask.onResult = func(a opResult, _ error) {
		if a.n > 0 {
			s.closeAddedLocked(h.encoded)
		}
		answered()
	}
	s.putLocked(ask)
}

// watchLocked asks the server about all watched keys. Its timer starts again when all answers are there.
func (s *shard[T]) watchLocked() {
	left := len(s.watched)
	for _, h := range s.watched {
		s.askAddedLocked(h, func() {
			if left--; left == 0 && len(s.watched) > 0 {
				s.timers.watch.Reset(watchInterval)
			}
		})
	}
}

// closeAddedLocked closes the channel of a watched key that was added again.
func (s *shard[T]) closeAddedLocked(encoded string) {
	if h := s.watched[encoded]; h != nil {
		delete(s.watched, encoded)
		close(h.added)
	}
}
