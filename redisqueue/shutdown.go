package redisqueue

import (
	"context"
	"errors"
	"time"

	"github.com/keyedqueue/workqueue"
)

// ending is how far the shutdown of this replica has got.
type ending struct {
	stopping bool      // ShutDown or a drain was called: no more keys are handed out
	since    time.Time // when it was called, or when the last held key was Done after it
	// over: no worker holds a key, and the server knows all there was to say. Nothing will be sent any more.
	over   bool
	ended  chan struct{}   // closed when over is set
	drains []chan struct{} // closed by ShutDown, which ends the drains that wait
	pauses []chan struct{} // pauses to cut short
}

var errGivenUp = errors.New("redisqueue: the server did not answer after shutdown")

// ShutDown makes this replica take part no more. Get returns; keys that it was handed out and no getter has are given back,
// for the other replicas. Workers that hold keys finish them, and until the last one is Done their leases are renewed
// and what they add is accepted. The goroutines of the queue end then, and when the buffer is empty, or at last when the
// server has not answered, or has been full, for a lease.
//
// ShutDown does not wait for any of that, and may be called again. Before a process exits it should call ShutDownContext, or
// Flush. What was given up is counted as Dropped in Stats.
func (q *Queue[T]) ShutDown() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopLocked()
	for _, c := range q.ending.drains {
		close(c)
	}
	q.ending.drains = nil
}

// ShutDownWithDrain is ShutDown that waits until the workers of this process have finished the keys that they hold, and
// the server knows it: without a bound for a worker that does not call Done, and up to a lease after the last Done for a
// server that does not answer. It does not wait for keys that are queued: other replicas have them.
func (q *Queue[T]) ShutDownWithDrain() { _ = q.ShutDownContext(context.Background()) }

// ShutDownContext is ShutDownWithDrain, waiting no longer than ctx. It returns nil when this replica has ended, ctx.Err()
// if ctx was done first, and ErrShutDown if a call of ShutDown ended the wait. It may be called again to wait on.
func (q *Queue[T]) ShutDownContext(ctx context.Context) error {
	q.mu.Lock()
	q.stopLocked()
	if q.ending.over {
		q.mu.Unlock()
		return nil
	}
	shutDown := make(chan struct{})
	q.ending.drains = append(q.ending.drains, shutDown)
	q.mu.Unlock()
	select {
	case <-q.ending.ended:
		return nil
	case <-shutDown:
		return workqueue.ErrShutDown
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ShuttingDown reports whether one of the methods that shut down was called on this replica. It does not ask the server.
func (q *Queue[T]) ShuttingDown() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ending.stopping
}

func (q *Queue[T]) stopLocked() {
	if q.ending.stopping {
		return
	}
	q.ending.stopping, q.ending.since = true, time.Now()
	for g := q.getters.pop(); g != nil; g = q.getters.pop() {
		close(g.key)
	}
	for _, s := range q.shards {
		s.sleep.stop()
	}
	q.endLocked()
}

// quitsLocked reports whether the session has nothing left to do but to end.
func (s *shard[T]) quitsLocked() bool {
	return s.q.ending.stopping && len(s.q.held) == 0 && len(s.ops) == 0 && s.session.id != "" && s.asked == 0
}

// endLocked ends this replica if it has been shut down and nothing is left to do, and kicks the shards if there is.
func (q *Queue[T]) endLocked() {
	e := &q.ending
	if !e.stopping || e.over || len(q.held) > 0 {
		return
	}
	idle := true
	for _, s := range q.shards {
		s.kickLocked()
		idle = idle && s.session.id == "" && len(s.ops) == 0 && s.asked == 0
	}
	if !idle {
		return
	}
	e.over = true
	close(e.ended)
	e.drains = nil
	for _, s := range q.shards {
		for _, t := range []*time.Timer{s.session.timer, s.full.timer, s.sleep.timer} {
			if t != nil {
				t.Stop()
			}
		}
		s.failConfirmationsLocked()
	}
	q.cutPausesLocked()
}

// giveUpLocked drops what the server has not received, after it has not answered for a lease since the shutdown.
func (s *shard[T]) giveUpLocked(b *batch) losses {
	for _, o := range append(b.ops, s.ops...) {
		if o.kind == opAdd {
			s.q.totals.dropped++
		}
	}
	s.ops, s.pending = nil, [opKinds]int{}
	clear(s.adds)
	lost := s.loseLocked()
	s.session = session{timer: s.session.timer}
	s.failConfirmationsLocked()
	return lost
}

// pause waits before the server is asked again. It returns false if the replica is shut down, its workers hold no keys, and
// it has waited for longer than a lease since both became so, and since that time.
func (q *Queue[T]) pause(d time.Duration, since time.Time) bool {
	cut := make(chan struct{})
	q.mu.Lock()
	if q.ending.over {
		q.mu.Unlock()
		return false
	}
	q.ending.pauses = append(q.ending.pauses, cut)
	q.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-cut:
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, c := range q.ending.pauses {
		if c == cut {
			q.ending.pauses = append(q.ending.pauses[:i], q.ending.pauses[i+1:]...)
			break
		}
	}
	if !q.ending.stopping || len(q.held) > 0 {
		return true
	}
	from := q.ending.since
	if since.After(from) {
		from = since
	}
	return time.Since(from) < q.config.Lease
}

func (q *Queue[T]) cutPausesLocked() {
	for _, c := range q.ending.pauses {
		close(c)
	}
	q.ending.pauses = nil
}

// failed notes that an attempt has failed.
func (s *shard[T]) failed(err error) {
	q := s.q
	q.mu.Lock()
	first := s.outage == nil
	s.outage = err
	// The getters need not wait for this shard.
	q.asked -= s.asked
	s.asked = 0
	q.askOthersLocked(s)
	q.totals.errors++
	q.mu.Unlock()
	if first {
		q.config.Logger.Error("The queue's server fails", "queue", q.config.Name, "err", err)
	}
	if q.config.OnError != nil {
		q.config.OnError(err)
	}
}

// answered notes that an attempt has succeeded.
func (s *shard[T]) answered(b *batch) {
	q := s.q
	q.mu.Lock()
	was := s.outage
	if !b.full {
		s.outage = nil // A server that is full answers other batches.
	}
	q.mu.Unlock()
	if was != nil && !b.full {
		q.config.Logger.Info("The queue's server answers again", "queue", q.config.Name)
	}
}

func (s *shard[T]) lastError() error {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	return s.outage
}

// report calls the hook and the logger.
func (q *Queue[T]) report(what string, err error) {
	q.config.Logger.Warn(what, "queue", q.config.Name, "err", err)
	if q.config.OnError != nil {
		q.config.OnError(err)
	}
}
