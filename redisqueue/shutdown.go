package redisqueue

import (
	"context"
	"errors"
	"time"

	"github.com/keyedqueue/workqueue"
)

// ErrNotSent is returned by ShutDownContext if the server has not received all that this replica was asked for: adds are lost
// that were in the buffer, and Dones, whose keys come again.
var ErrNotSent = errors.New("redisqueue: the server has not received everything")

// ending is how far the shutdown of this replica has got.
type ending struct {
	stopping bool      // ShutDown or a drain was called: no more keys are handed out
	since    time.Time // when it was called, or when the last held key was Done after it
	// over: no worker holds a key, and the server knows all there was to say. Nothing will be sent any more.
	over     bool
	dropped  bool          // what was not sent was dropped
	shutDown chan struct{} // closed by ShutDown, which ends the drains that wait; nil without any
}

// ShutDown makes this replica take part no more. Get returns; keys that it was handed out and no getter has are given back,
// for the other replicas. Workers that hold keys finish them, and until the last one is Done their leases are renewed
// and what they add is accepted. The goroutines of the queue end then, and when the buffer is empty, or at last when the
// server has not answered, or has been full, for a lease.
//
// ShutDown does not wait for any of that, and may be called again. Before a process exits it should call ShutDownContext, or
// Flush. Adds that were dropped are counted in Stats.
func (q *Queue[T]) ShutDown() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopLocked()
	if q.mu.ending.shutDown != nil {
		close(q.mu.ending.shutDown)
		q.mu.ending.shutDown = nil
	}
}

// ShutDownWithDrain is ShutDown that waits until the workers of this process have finished the keys that they hold, and
// the server knows it: without a bound for a worker that does not call Done, and up to a lease after the last Done for a
// server that does not answer. It does not wait for keys that are queued: other replicas have them.
func (q *Queue[T]) ShutDownWithDrain() { _ = q.ShutDownContext(context.Background()) }

// ShutDownContext is ShutDownWithDrain, waiting no longer than ctx. It returns nil when this replica has ended and the server
// has everything, [ErrNotSent] if something was dropped, ctx.Err() if ctx was done first, and ErrShutDown if a call of ShutDown
// ended the wait. It may be called again to wait on.
func (q *Queue[T]) ShutDownContext(ctx context.Context) error {
	q.mu.Lock()
	q.stopLocked()
	e := &q.mu.ending
	if e.shutDown == nil {
		e.shutDown = make(chan struct{})
	}
	shutDown := e.shutDown
	q.mu.Unlock()
	var err error
	select {
	case <-q.ended:
	case <-shutDown:
		err = workqueue.ErrShutDown
	case <-ctx.Done():
		err = ctx.Err()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case !e.over:
		return err
	case e.dropped:
		return ErrNotSent
	}
	return nil
}

// ShuttingDown reports whether one of the methods that shut down was called on this replica. It does not ask the server.
func (q *Queue[T]) ShuttingDown() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.ending.stopping
}

func (q *Queue[T]) stopLocked() {
	if q.mu.ending.stopping {
		return
	}
	q.mu.ending.stopping, q.mu.ending.since = true, time.Now()
	for g := q.nextGetterLocked(); g != nil; g = q.nextGetterLocked() {
		close(g)
	}
	for _, s := range q.shards {
		s.timers.due.Stop()
	}
	q.endLocked()
}

// quitsLocked reports whether the session has nothing left to do but to end.
func (s *shard[T]) quitsLocked() bool {
	return s.q.mu.ending.stopping && len(s.q.mu.held) == 0 && len(s.ops) == 0 && s.session.id != "" && s.requested == 0
}

// endLocked ends this replica if it has been shut down and nothing is left to do, and kicks the shards if there is.
func (q *Queue[T]) endLocked() {
	e := &q.mu.ending
	if !e.stopping || e.over || len(q.mu.held) > 0 {
		return
	}
	idle := true
	for _, s := range q.shards {
		s.kickLocked()
		idle = idle && s.session.id == "" && len(s.ops) == 0 && s.requested == 0 && !s.replicating.running
	}
	if !idle {
		return
	}
	e.over = true
	close(q.ended)
	for _, s := range q.shards {
		for _, t := range []*time.Timer{s.timers.lease, s.timers.adds, s.timers.due, s.timers.watch} {
			t.Stop()
		}
		s.failConfirmationsLocked()
	}
}
