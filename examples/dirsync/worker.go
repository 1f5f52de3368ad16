package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/keyedqueue/workqueue"
)

// queue is what the workers need: keys with delays and retries, and a Get that can be given up.
type queue interface {
	workqueue.TypedRateLimitingInterface[string]
	workqueue.Extended[string]
}

func newQueue() queue {
	// A key that fails comes again after 20 ms, 40 ms, 80 ms and so on. Each key has its own
	// count: a file that cannot be read does not slow the others down.
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](20*time.Millisecond, 30*time.Second)
	return workqueue.NewTypedRateLimitingQueue(limiter).(queue)
}

// errBusy is given up with, under -once alone: while watching there is always a later look.
var errBusy = errors.New("still being written")

// workers take keys from the queue and hand them to sync, the rest of this file being what to do
// with its answer. Beside the queue they keep the set of keys that somebody is still waiting for,
// so that -once knows when it is done and a drain what it left.
type workers struct {
	queue      queue
	sync       func(ctx context.Context, key string) (again time.Duration, err error)
	maxRetries int
	maxLooks   int         // how often a key may ask for another look; 0: as often as it likes
	fatal      func(error) // stops the program
	rep        *report

	idle chan struct{} // closed when, for the first time, nothing is left to do

	mu    sync.Mutex          // guards what follows
	asked map[string]struct{} // asked for, and not handed out since
	again map[string]int      // further looks granted, of keys that asked for one
	asks  int                 // how often a key was asked for
	looks int                 // how often one was handed out
}

func newWorkers(q queue, rep *report) *workers {
	return &workers{
		queue: q,
		rep:   rep,
		idle:  make(chan struct{}),
		asked: make(map[string]struct{}),
		again: make(map[string]int),
	}
}

// add asks for key. If it is waiting in the queue already, that is all there is to do for both.
func (w *workers) add(key string) {
	w.note(key)
	w.queue.Add(key)
}

// work is one worker. It returns when the queue has been shut down and is empty, or at the end of
// ctx.
func (w *workers) work(ctx context.Context) {
	for {
		key, err := w.queue.GetContext(ctx)
		if err != nil {
			return
		}
		w.taken(key)
		w.process(ctx, key)
		// Always Done, whatever came of it: until then the queue holds back further adds of
		// this key, which is why no two workers ever have the same one.
		w.queue.Done(key)
		w.checkIdle()
	}
}

// process decides whether a key comes again, and when.
func (w *workers) process(ctx context.Context, key string) {
	again, err := w.sync(ctx, key)
	switch {
	case errors.Is(err, errGone):
		w.queue.Forget(key)
		w.fatal(err)

	case err != nil && w.queue.NumRequeues(key) < w.maxRetries:
		// Failed: again, later each time.
		w.rep.retry(key, err)
		w.note(key)
		w.queue.AddRateLimited(key)

	case err == nil && again > 0 && w.mayLook(key):
		// Too early: again at a time we know. Nothing failed, so the limiter has no part in it.
		w.queue.Forget(key)
		w.note(key)
		w.queue.AddAfter(key, again)

	default:
		// Equal, or given up. In both cases the limiter forgets the key: should it come
		// again, it starts afresh.
		w.queue.Forget(key)
		w.forgetLooks(key)
		if err == nil && again > 0 {
			err = errBusy
		}
		w.rep.settled(key, err)
	}
}

// untilIdle returns nil as soon as no key is waited for, or errStopped if ctx ends before.
func (w *workers) untilIdle(ctx context.Context) error {
	select {
	case <-w.idle:
		return nil
	case <-ctx.Done():
		return errStopped
	}
}

// note remembers that key is asked for, before it is added.
func (w *workers) note(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asks++
	w.asked[key] = struct{}{}
}

func (w *workers) taken(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks++
	delete(w.asked, key)
}

// checkIdle closes idle when no worker has a key, none is queued and none waits for its time. The
// keys that wait are those in asked: between the moment when a key is due and the moment when it is
// queued, no number in Stats includes it.
func (w *workers) checkIdle() {
	w.mu.Lock()
	defer w.mu.Unlock()
	st := w.queue.Stats()
	if st.Processing > 0 || st.Queued > 0 || len(w.asked) > 0 {
		return
	}
	select {
	case <-w.idle:
	default:
		close(w.idle)
	}
}

// mayLook grants a key another look, and counts them.
func (w *workers) mayLook(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.again[key]++
	return w.maxLooks == 0 || w.again[key] <= w.maxLooks
}

func (w *workers) forgetLooks(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.again, key)
}

// merged returns how many times a key was asked for without being handed out for it: it was in the
// queue already, and was handed out once for all. It is exact when nothing is queued.
func (w *workers) merged() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asks - w.looks - len(w.asked)
}

// left returns the keys that were asked for and never handed out: those that were waiting for
// their time, or asked for afterwards, when the queue was shut down.
func (w *workers) left() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	keys := make([]string, 0, len(w.asked))
	for key := range w.asked {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
