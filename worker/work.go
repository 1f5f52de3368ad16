package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/keyedqueue/workqueue"
)

// worker is one of a pool's workers: the goroutine that runs work, or after a Goexit its successor.
type worker[T comparable] struct {
	// mu is locked by the worker itself whenever it has no key to handle, also while it waits for one:
	// what follows can be read by others only while a key is handled, and then does not change. A worker
	// pays for that with an Unlock and a Lock a key, which nobody competes for.
	mu      sync.Mutex
	busy    bool
	key     T
	started time.Time // zero unless the pool is timed
	stuck   bool      // key was reported. Written by the one goroutine that watches for stuck handlers.
}

// end is called before the key's Done, so that a key that is Done is never taken for unfinished.
func (w *worker[T]) end() {
	w.mu.Lock()
	var none T
	w.busy, w.key = false, none
}

// work gets keys and handles them until w shall end. It is called with w.mu locked.
func (p *Pool[T]) work(w *worker[T]) {
	returned := false
	defer func() {
		if returned {
			return
		}
		v := recover()
		if v == nil { // runtime.Goexit
			go p.work(w)
			return
		}
		if p.options.CrashOnPanic {
			panic(v)
		}
		// Handlers' panics do not get here. What does is the panic of a hook or of the queue.
		p.fail(&PanicError{Value: v, Stack: debug.Stack()})
		p.mu.Lock()
		p.leaveLocked(w)
		p.mu.Unlock()
		w.mu.Unlock()
	}()
	for getting := p.currentGetting(); getting != nil; {
		key, err := p.getter.GetContext(getting)
		if err != nil {
			getting = p.stays(w, getting, err)
			continue
		}
		if p.closed.Load() {
			// Until here, or until w.mu is unlocked, unfinished waits for this worker.
			p.putDown(key)
			continue
		}
		w.busy, w.key = true, key
		if p.timed {
			w.started, w.stuck = p.options.Clock.Now(), false
		}
		w.mu.Unlock()
		p.handle(w)
	}
	returned = true
}

func (p *Pool[T]) currentGetting() context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.getting
}

// stays decides whether w, whose GetContext(getting) returned err, goes on. It returns the context for
// the next one, or nil if w has left.
func (p *Pool[T]) stays(w *worker[T], getting context.Context, err error) context.Context {
	foreign := false
	p.mu.Lock()
	switch {
	case errors.Is(err, workqueue.ErrShutDown):
		// Keys that other workers hold may be queued again, but then these are there to get them.
		p.over = true
	case p.starting.Err() != nil:
	case getting.Err() == nil:
		foreign = true
	case len(p.workers) <= p.target:
		defer p.mu.Unlock()
		return p.getting
	}
	p.leaveLocked(w)
	p.mu.Unlock()
	w.mu.Unlock()
	if foreign {
		p.fail(fmt.Errorf("worker: GetContext of the queue: %w", err))
	}
	return nil
}

// leaveLocked takes w, which has no key, from the pool.
func (p *Pool[T]) leaveLocked(w *worker[T]) {
	i := slices.Index(p.workers, w)
	p.workers = slices.Delete(p.workers, i, i+1)
	p.endLocked()
}

// putDown gives up a key that was got too late to be started.
func (p *Pool[T]) putDown(key T) {
	p.mu.Lock()
	p.notStarted = append(p.notStarted, key)
	p.mu.Unlock()
	p.queue.Done(key)
}

// extend returns q as an Extended. For a queue that is none, a rate-limiting queue of ours is put on top
// of it, of which only the methods of Extended are used.
func extend[T comparable](q workqueue.TypedRateLimitingInterface[T]) workqueue.Extended[T] {
	if e, ok := q.(workqueue.Extended[T]); ok {
		return e
	}
	top := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedMaxOfRateLimiter[T](),
		workqueue.TypedRateLimitingQueueConfig[T]{DelayingQueue: q},
	)
	return top.(workqueue.Extended[T])
}
