package worker

import (
	"fmt"
	"slices"
	"time"
)

// Wedged returns an error if a restart of the program would help, and otherwise nil, for a liveness probe. A
// pool is wedged if all its workers have been in calls for longer than limit, while a key waits for a worker,
// or if Options.Ready has not returned for longer than limit. So limit must be longer
// than any call that is in order. Before Run, in a pause, and once no keys are started any more, a pool is
// not wedged. Wedged does not block, and asks no server.
func (p *Pool[T]) Wedged(limit time.Duration) error {
	now := p.options.Clock.Now()
	p.mu.Lock()
	isEnding, readySince := p.mu.phase > phaseEmptying, p.mu.readySince
	needed, workers := p.neededLocked(), len(p.mu.workers)
	p.mu.Unlock()
	switch {
	case isEnding:
		return nil
	case !readySince.IsZero():
		if d := now.Sub(readySince); d > limit {
			return fmt.Errorf("worker: Options.Ready has not returned for %v", d)
		}
		return nil
	case needed == 0 || workers == 0:
		return nil
	}
	return p.tracker.wedged(now, limit, workers)
}

// Wedged is [Pool.Wedged] with as many workers as calls have ever run at once. It also demands that a key has
// been queued for longer than limit, so for a queue without metrics it returns nil.
func (t *Tracker[T]) Wedged(limit time.Duration) error {
	t.mu.Lock()
	workers := t.mu.mostRunning
	t.mu.Unlock()
	if t.queue.Stats().OldestQueued <= limit {
		return nil
	}
	return t.wedged(t.options.Clock.Now(), limit, max(workers, 1))
}

// wedged returns an error if that many calls have each run for longer than limit, and a key is queued that
// could be handed out.
func (t *Tracker[T]) wedged(now time.Time, limit time.Duration, workers int) error {
	t.mu.Lock()
	calls := slices.Clone(t.mu.running)
	t.mu.Unlock()
	if len(calls) < workers || now.Sub(calls[len(calls)-1].result.Started) <= limit {
		return nil
	}
	st := t.queue.Stats()
	due := st.Queued - st.Blocked + st.Again
	if due <= 0 || st.Paused {
		return nil
	}
	longest := &calls[0].result
	return fmt.Errorf("worker: all of %d workers have been in calls for more than %v, the longest for %v, "+
		"with key %s; keys that wait for a worker: %d",
		len(calls), limit, now.Sub(longest.Started), cut(fmt.Sprint(longest.Key), maxReason), due)
}
