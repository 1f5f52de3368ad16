package main

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// queue is what the workers need: keys with delays and retries, and a Get that can be given up.
type queue interface {
	workqueue.TypedRateLimitingInterface[string]
	workqueue.Extended[string]
}

func newQueue(metrics workqueue.MetricsProvider) queue {
	// A key that fails comes again after 20 ms, 40 ms, 80 ms and so on. Each key has its own
	// count: a file that cannot be read does not slow the others down.
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](20*time.Millisecond, 30*time.Second)
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[string]{
		Name:            "dirsync",
		MetricsProvider: metrics,
	}).(queue)
}

// errBusy is given up with, under -once alone: while watching there is always a later look.
var errBusy = errors.New("still being written")

// workers take keys from the queue and hand them to sync. The loop around that is package worker's;
// this file is about what to do with sync's answer. Beside the queue they keep the set of keys that
// somebody is still waiting for, so that -once knows when it is done and a drain what it left.
type workers struct {
	queue      queue
	sync       func(ctx context.Context, key string) (again time.Duration, err error)
	maxRetries int
	maxLooks   int         // how often a key may ask for another look; 0: as often as it likes
	fatal      func(error) // stops the program
	metrics    workqueue.MetricsProvider
	rep        *report

	idle chan struct{} // closed when, for the first time, nothing is left to do

	mu    sync.Mutex          // guards what follows
	asked map[string]struct{} // asked for, and not handed out since
	again map[string]int      // further looks granted, of keys that asked for one
	asks  int                 // how often a key was asked for
	looks int                 // how often one was handed out
	held  int                 // how many are handed out now
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

// work is n workers. It returns when the queue has been shut down and is empty, or at the end of ctx.
func (w *workers) work(ctx context.Context, n int) {
	err := worker.Run(ctx, w.queue, w.handle, worker.Options[string]{
		Workers:         n,
		OnFinish:        w.handled,
		MetricsProvider: w.metrics,
		// Here 0 means none.
		MaxRetries: cmp.Or(w.maxRetries, worker.NoRetries),
		// The end of ctx is the end of the handlers' contexts too, and they are waited for.
		Drain:        worker.Nothing,
		CancelGrace:  math.MaxInt64,
		CrashOnPanic: true,
	})
	if !errors.Is(err, workqueue.ErrShutDown) {
		return // Whatever is left undone, left knows it.
	}
	// The program was ended so early that the queue was shut down before Run looked, and Run leaves such a
	// queue alone. But dirsync waits until the queue is drained: somebody has to take its keys out. They
	// are not handled, and left knows them, as they were never taken.
	for key, down := w.queue.Get(); !down; key, down = w.queue.Get() {
		w.queue.Done(key)
	}
}

// handle hands key to sync, and its answer tells package worker whether the key comes again, and when.
// Always Done, whatever came of it, is that package's business: until then the queue
// holds back further adds of this key, which is why no two workers ever have the same one.
func (w *workers) handle(ctx context.Context, key string) error {
	w.taken(key)
	again, err := w.sync(ctx, key)
	switch {
	case errors.Is(err, errGone):
		// Not worker.Fatal: the program is stopped, and what the other handlers do is finished within its drain
		// timeout, as after Ctrl-C.
		w.fatal(err)
		return worker.Terminal(err)

	case err != nil:
		// Failed: again, later each time.
		return err

	case again > 0 && !w.mayLook(key):
		return worker.Terminal(errBusy)

	case again > 0:
		// Too early: again at a time we know. Nothing failed, so the limiter has no part in it.
		return worker.RequeueAfter(again)
	}
	return nil
}

// handled is called when it is decided what comes next. The key is not Done yet, so no other worker has it.
func (w *workers) handled(_ context.Context, r worker.Result[string]) {
	switch {
	case errors.Is(r.Err, errGone):
	case r.Next == worker.NextRetry:
		w.rep.retry(r.Key, r.Err)
		w.note(r.Key)
	case r.Next == worker.NextRequeue:
		w.note(r.Key)
	default:
		// Equal, or given up. Should it come again, it starts afresh.
		w.forgetLooks(r.Key)
		w.rep.settled(r.Key, r.Err)
	}
	w.putBack()
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

// note remembers that key is asked for, before it is added or while it is held.
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
	w.held++
	delete(w.asked, key)
}

// putBack notes that a key is no longer held, and closes idle when none is and none is asked for. Stats
// would not do: between the moment when a key is due and the moment when it is queued, no number in it
// includes the key.
func (w *workers) putBack() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held--; w.held > 0 || len(w.asked) > 0 {
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
