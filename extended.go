package workqueue

import (
	"context"
	"errors"
	"runtime"
	"sync"

	"github.com/keyedqueue/workqueue/internal/gate"
)

// ErrShutDown is returned by GetContext when the queue is shutting down and nothing is queued, and by
// ShutDownContext when a call of ShutDown ended its wait before everything was finished.
var ErrShutDown = errors.New("workqueue: queue is shut down")

// errContextDone is what a getter returns under the lock instead of the context's own error: Err is foreign code.
var errContextDone = errors.New("workqueue: the context is done")

// Extended is what this package's queues offer beyond client-go's interfaces. Every queue that this
// package builds implements it, at every layer:
//
//	q := workqueue.NewTypedRateLimitingQueue(limiter).(workqueue.Extended[string])
type Extended[T comparable] interface {
	TypedInterface[T]
	// GetContext is Get that gives up when ctx is done, also if keys are queued: then it takes none
	// and returns ctx.Err(). After shutdown, when nothing is queued, it returns ErrShutDown. It panics if ctx
	// is nil.
	GetContext(ctx context.Context) (item T, err error)
	// ShutDownContext is ShutDownWithDrain, waiting no longer than ctx. It returns nil when nothing is
	// queued and nothing is being processed, ctx.Err() if ctx was done first, and ErrShutDown if a
	// call of ShutDown ended the wait. In every case the queue is shutting down afterwards, and
	// ShutDownContext may be called again to wait on. In a wrapper made by Extend, nil means that the
	// queue's ShutDownWithDrain returned with nothing queued.
	ShutDownContext(ctx context.Context) error
	// Stats returns the queue's numbers in constant time. A wrapper made by Extend knows only the length.
	Stats() Stats
	// Snapshot returns Stats and up to limit keys of each state, oldest first. A wrapper made by Extend knows
	// only the length.
	Snapshot(limit int) Snapshot[T]
}

// Extend returns queue as an [Extended]: queue itself if it is one, or a wrapper that builds what is
// missing from queue's public methods. Use the wrapper instead of queue from then on: GetContext may hold
// a key that only the wrapper can hand out. A queue of yours that embeds an Extended is one by the methods that it
// inherits: if it has a Get of its own, give it a GetContext too.
//
// A Get of such a queue cannot be interrupted, so the wrapper calls it on a goroutine of its own. That
// goroutine may stay, waiting for a key, after GetContext has returned; it ends when the queue shuts down.
func Extend[T comparable](queue TypedInterface[T]) Extended[T] {
	if e, ok := queue.(Extended[T]); ok {
		return e
	}
	return &extension[T]{
		TypedInterface: queue,
		fetched:        make(chan *T),
		down:           make(chan struct{}),
		quiet:          make(chan struct{}),
	}
}

// extension makes an Extended of any queue, through its public methods alone.
//
// A Get of that queue cannot be interrupted, so GetContext leaves it to a goroutine, a fetcher. A
// caller that gives up leaves its fetcher behind, and the next caller takes over the fetcher, with
// its key if it has one by then. So there are never more fetchers than there were callers at once, and no
// fetched key is lost. The fetchers end when the queue is shut down; one that has a key ends when a caller takes
// the key.
type extension[T comparable] struct {
	TypedInterface[T]

	// fetched hands over the keys of the fetchers to the callers that wait: pointers to them, because a channel
	// cannot have elements of 64 KiB.
	fetched chan *T
	// down is closed when a fetcher has found the queue shut down. From then on Get does not
	// block, and no fetcher is started.
	down chan struct{}
	// quiet is closed when down is, and no fetcher is left that might have a key.
	quiet chan struct{}

	mu       sync.Mutex // guards what follows, and the closing of down and quiet
	waiting  int        // callers that wait for fetched
	fetchers int        // fetchers that have neither handed over a key nor found the queue shut down
	isDown   bool
}

// Get waits for the fetchers if there are any, because one of them may have the only key. A Get that has been waiting
// at the queue below since before there were fetchers does not see that key; the next caller does.
func (e *extension[T]) Get() (item T, shutdown bool) {
	if !e.fetching() {
		item, shutdown = e.TypedInterface.Get()
		if !shutdown || !e.fetching() {
			return item, shutdown
		}
	}
	item, err := e.GetContext(context.Background())
	return item, err != nil
}

func (e *extension[T]) fetching() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.fetchers > 0
}

func (e *extension[T]) GetContext(ctx context.Context) (item T, err error) {
	ended, err := ctx.Done(), ctx.Err() // Before anything changes, because they are foreign code.
	if err != nil {
		return item, err
	}
	if e.beginWaiting() {
		select {
		case key := <-e.fetched:
			e.endWaiting(true)
			return *key, nil
		case <-ended:
			e.endWaiting(false)
			return item, gate.ContextError(ctx)
		case <-e.down:
			e.endWaiting(false)
		}
	}
	select {
	case key := <-e.fetched:
		e.mu.Lock()
		defer e.mu.Unlock()
		e.endFetcherLocked()
		return *key, nil
	case <-ended:
		return item, gate.ContextError(ctx)
	case <-e.quiet:
	}
	item, shutdown := e.TypedInterface.Get()
	if shutdown {
		return item, ErrShutDown
	}
	return item, nil
}

// beginWaiting makes sure that there is a fetcher for one more caller. It returns false if the queue is
// shut down.
func (e *extension[T]) beginWaiting() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.isDown {
		return false
	}
	e.waiting++
	if e.fetchers < e.waiting {
		e.fetchers++
		go e.fetch()
	}
	return true
}

func (e *extension[T]) endWaiting(fetched bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waiting--
	if fetched {
		e.endFetcherLocked()
	}
}

func (e *extension[T]) fetch() {
	returned := false
	defer func() {
		if !returned { // Get has called runtime.Goexit, and a caller may wait for this fetcher.
			go e.fetch()
		}
	}()
	item, shutdown := e.TypedInterface.Get()
	returned = true
	if !shutdown {
		// The receiver counts this fetcher as ended.
		e.fetched <- &item
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.isDown {
		e.isDown = true
		close(e.down)
	}
	e.endFetcherLocked()
}

func (e *extension[T]) endFetcherLocked() {
	e.fetchers--
	if e.isDown && e.fetchers == 0 {
		close(e.quiet)
	}
}

// ShutDownContext leaves the drain to a goroutine. When ctx is done the goroutine goes on, until the drain ends
// or ShutDown is called. The queue below decides what its drain waits for, and does not say why it has returned: if
// keys are still queued, that counts as a ShutDown.
func (e *extension[T]) ShutDownContext(ctx context.Context) error {
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		e.ShutDownWithDrain()
	}()
	select {
	case <-drained:
		if e.Len() > 0 {
			return ErrShutDown
		}
		return nil
	case <-ctx.Done():
	}
	// The queue must count as shutting down when this returns. The goroutine does that first.
	for !e.ShuttingDown() {
		select {
		case <-drained:
			return gate.ContextError(ctx)
		default:
			runtime.Gosched()
		}
	}
	return gate.ContextError(ctx)
}

// Stats knows only the length of the queue below.
func (e *extension[T]) Stats() Stats { return Stats{Queued: e.Len()} }
