package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/keyedqueue/workqueue"
)

// worker is one of a pool's workers: the goroutine that runs work, or its successor after a handler has
// panicked or called runtime.Goexit.
type worker[T comparable] struct {
	// mu is locked by the worker itself whenever it has no key to handle, also while it waits for one:
	// what follows can be read by others only while a key is handled, and then does not change, or when
	// the worker has left. A worker pays for that with an Unlock and a Lock a key, which nobody competes
	// for.
	mu      sync.Mutex
	key     T
	started time.Time // zero unless the pool is timed
	stuck   bool      // key was reported. Written by the one goroutine that watches for stuck handlers.
	done    bool      // key is Done, or about to be, and not unfinished any more
	left    bool      // there is no key, and will be none

	// What follows is for the worker's goroutine alone.

	attempt int
	phase   phase
}

// phase is how far a worker has got with a key, so that it is known whose panic or Goexit it was.
type phase uint8

const (
	noKey    phase = iota // or Done was called
	calling               // OnStart and the handler
	settling              // what follows from the answer
	settled               // all but Done
)

// work gets keys and handles them until w shall end. It is called with w.mu locked.
func (p *Pool[T]) work(w *worker[T]) {
	// Deferred once and not for each key, which would cost more than all else here.
	defer p.replace(w)
	defer p.conclude(w)
	for getting := p.currentGetting(); getting != nil; {
		var key T
		var err error
		if w.phase == settled && p.doneAndGet != nil {
			// Here and not in get: the call would cost a twentieth of all.
			w.mu.Lock()
			w.phase = noKey
			key, err = p.doneAndGet.DoneAndGet(getting, w.key)
		} else {
			key, err = p.get(w, getting)
		}
		if err != nil {
			getting = p.stays(w, getting, err)
			continue
		}
		w.key, w.done = key, false
		if p.starting.Err() != nil {
			// It has ended since the queue looked. The key may have been added even after that.
			p.putDown(w)
			continue
		}
		if p.timed {
			w.started, w.stuck = p.options.Clock.Now(), false
		}
		w.mu.Unlock()
		p.handle(w)
	}
}

// get is Done of the key that w has handled, if there is one, and GetContext, each for itself. It returns with
// w.mu locked.
func (p *Pool[T]) get(w *worker[T], ctx context.Context) (T, error) {
	if w.phase == settled {
		w.mu.Lock()
		w.phase = noKey
		p.doneLocked(w)
	}
	return p.getter.GetContext(ctx)
}

// doneLocked is Done of w's key. A queue of somebody else's may take its time for that, and nobody shall
// wait for it who only wants to know about w.
func (p *Pool[T]) doneLocked(w *worker[T]) {
	w.done = true
	w.mu.Unlock()
	defer w.mu.Lock()
	p.queue.Done(w.key)
}

// replace sees to it that there is a worker after one that did not leave as it should.
func (p *Pool[T]) replace(w *worker[T]) {
	if w.left {
		return
	}
	v := recover()
	if v == nil {
		go p.work(w)
		return
	}
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.leaveLocked(w)
	}()
	// Handlers' panics do not get here. What does is the panic of a hook, the logger or the queue.
	p.panicked(v)
}

func (p *Pool[T]) currentGetting() context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.getting
}

// stays decides whether w, whose GetContext(getting) returned err, goes on. It returns the context for
// the next one, or nil if w has left.
func (p *Pool[T]) stays(w *worker[T], getting context.Context, err error) context.Context {
	down := errors.Is(err, workqueue.ErrShutDown)
	if !down && getting.Err() == nil {
		// The queue has a reason of its own.
		p.fail(fmt.Errorf("worker: GetContext of the queue: %w", err))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if down {
		// A key that another worker holds may be queued again, and that worker is there to get it. After
		// the last one there is nothing to come, unless the pool was paused.
		p.exhausted = len(p.workers) == 1
	} else if p.starting.Err() == nil && len(p.workers) <= p.target {
		return p.getting
	}
	p.leaveLocked(w)
	return nil
}

// leaveLocked takes w, which has no key, from the pool.
func (p *Pool[T]) leaveLocked(w *worker[T]) {
	i := slices.Index(p.workers, w)
	p.workers = slices.Delete(p.workers, i, i+1)
	var none T
	w.key, w.left = none, true
	w.mu.Unlock()
	p.endLocked()
}

// putDown gives up w's key, which was got too late to be started.
func (p *Pool[T]) putDown(w *worker[T]) {
	p.mu.Lock()
	p.notStarted = append(p.notStarted, w.key)
	p.mu.Unlock()
	p.doneLocked(w)
}

// doneAndGetter is what queues of this module can do beside Extended: Done and the next GetContext under
// one lock.
type doneAndGetter[T comparable] interface {
	DoneAndGet(ctx context.Context, done T) (T, error)
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
