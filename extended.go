package workqueue

import (
	"context"
	"errors"
	"iter"
	"runtime"
	"sync"
	"time"
)

// ErrShutDown is returned by GetContext when the queue is shutting down and nothing is queued, and by
// ShutDownContext when a call of ShutDown ended its wait before everything was finished.
var ErrShutDown = errors.New("workqueue: queue is shut down")

// Extended is what this package's queues offer beyond client-go's interfaces. Every queue that this
// package builds implements it, at every layer:
//
//	q := workqueue.NewTypedRateLimitingQueue(limiter).(workqueue.Extended[string])
type Extended[T comparable] interface {
	TypedInterface[T]
	// GetContext is Get that gives up when ctx is done, also if keys are queued: then it takes none and returns
	// ctx.Err(). After shutdown, when nothing is queued, it returns ErrShutDown. It panics if ctx is nil.
	GetContext(ctx context.Context) (item T, err error)
	// ShutDownContext is ShutDownWithDrain, waiting no longer than ctx. It returns nil when nothing is queued and
	// nothing is being processed, ctx.Err() if ctx was done first, and ErrShutDown if a call of ShutDown ended the
	// wait. In every case the queue is shutting down afterwards, and ShutDownContext may be called again to wait on.
	// In a wrapper made by Extend, nil means that the queue's ShutDownWithDrain returned with nothing queued.
	ShutDownContext(ctx context.Context) error
	// Stats returns the queue's numbers in constant time. A wrapper made by Extend knows only the length.
	Stats() Stats
	// Snapshot returns Stats and up to limit keys of each state, at most 512 of each, oldest first. A wrapper made
	// by Extend knows only the length. See KeyReader for all keys.
	Snapshot(limit int) Snapshot[T]
}

// Extend returns queue as an [Extended]: queue itself if it is one, or a wrapper that builds what is
// missing from queue's public methods. Use the wrapper instead of queue from then on: GetContext may hold
// a key that only the wrapper can hand out. A queue of yours that embeds an Extended is one by the methods that it
// inherits: if it has a Get of its own, give it a GetContext too.
//
// A Get of such a queue cannot be interrupted, so the wrapper calls it on a goroutine of its own. That may stay,
// waiting for a key, after GetContext has returned; it ends when the queue shuts down.
func Extend[T comparable](queue TypedInterface[T]) Extended[T] {
	if e, ok := queue.(Extended[T]); ok {
		return e
	}
	return &extension[T]{
		TypedInterface: queue,
		fetched:        make(chan fetched[T]),
		down:           make(chan struct{}),
	}
}

// extension makes an Extended of any queue, through its public methods alone. GetContext leaves Get to a goroutine, the
// fetcher, which gets one key after the other while callers wait. It stays in its Get, or with the key that it has got,
// when the last caller gives up. The next caller takes it over.
type extension[T comparable] struct {
	TypedInterface[T]

	// fetched hands what the fetcher has got to the callers.
	fetched chan fetched[T]
	// down is closed when the fetcher has found the queue shut down. From then on Get does not block.
	down chan struct{}

	mu struct {
		sync.Mutex
		waiting  int  // the callers that wait for fetched
		fetching bool // the fetcher runs
		isDown   bool
	}
}

// Get is that of the queue below, unless there is a fetcher, which may have the only key. A Get that blocked before the
// fetcher was started cannot receive such a key; the next call will.
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
	return e.mu.fetching
}

func (e *extension[T]) GetContext(ctx context.Context) (item T, err error) {
	if err := ctx.Err(); err != nil {
		return item, err
	}
	e.beginWaiting()
	select {
	case f := <-e.fetched:
		if f.panicked != nil {
			panic(f.panicked)
		}
		return *f.item, nil
	case <-ctx.Done():
		e.endWaiting()
		return item, ctx.Err()
	case <-e.down:
	}
	item, shutdown := e.TypedInterface.Get()
	if shutdown {
		return item, ErrShutDown
	}
	return item, nil
}

// beginWaiting counts a caller, and starts the fetcher if there is none and the queue is not known to be shut down.
func (e *extension[T]) beginWaiting() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.waiting++
	if !e.mu.fetching && !e.mu.isDown {
		e.mu.fetching = true
		go e.fetch()
	}
}

// endWaiting counts a caller that has given up.
func (e *extension[T]) endWaiting() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.waiting--
}

func (e *extension[T]) fetch() {
	for more := true; more; {
		f, shutdown := e.fetchOne()
		if !shutdown {
			e.fetched <- f
		}
		more = e.goOn(shutdown)
	}
}

// fetched is a key, or what Get has panicked with. The key is behind a pointer, because a channel cannot have elements of 64 KiB.
type fetched[T any] struct {
	item     *T
	panicked any
}

// fetchOne calls Get. A panic is for the caller that gets it: on the fetcher's goroutine it would end the process.
func (e *extension[T]) fetchOne() (f fetched[T], shutdown bool) {
	defer func() { f.panicked = recover() }()
	item, shutdown := e.TypedInterface.Get()
	return fetched[T]{item: &item}, shutdown
}

// goOn counts the caller that has received what was fetched, and reports whether to fetch one more.
func (e *extension[T]) goOn(shutdown bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if shutdown {
		e.mu.isDown = true
		close(e.down)
	} else {
		e.mu.waiting--
	}
	e.mu.fetching = !shutdown && e.mu.waiting > 0
	return e.mu.fetching
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
			return ctx.Err()
		default:
			runtime.Gosched()
		}
	}
	return ctx.Err()
}

func (e *extension[T]) Stats() Stats { return Stats{Queued: e.Len()} }

func (e *extension[T]) Snapshot(int) Snapshot[T] { return Snapshot[T]{Stats: e.Stats()} }

// Leaser is a queue that hands out keys for a limited time, such as one that many processes share. A worker that got a
// key from it calls Lease before it handles the key, and passes the returned context to the handler. That context is
// derived from ctx and ends, with a cause, when another worker may have got the key. The worker calls the returned
// function after the handler has returned, and Done as always. Lease does not block. For a key that no worker holds
// it returns ctx. Package worker does all this.
type Leaser[T comparable] interface {
	Lease(ctx context.Context, key T) (context.Context, context.CancelFunc)
}

// lowerLayer is the queue under a layer, with the interfaces that not every queue has. If the queue
// lacks one, the method finds nothing.
type lowerLayer[T comparable] struct{ Extended[T] }

// AddCause is Add if the queue below is no [CauseAdder].
func (l lowerLayer[T]) AddCause(item T, cause Cause) { AddCause(l.Extended, item, cause) }

func (l lowerLayer[T]) Causes(item T) (causes Causes) {
	if q, ok := l.Extended.(CauseAdder[T]); ok {
		causes = q.Causes(item)
	}
	return causes
}

func (l lowerLayer[T]) AddedAgain(item T) <-chan struct{} {
	if q, ok := l.Extended.(AddNotifier[T]); ok {
		return q.AddedAgain(item)
	}
	return nil
}

func (l lowerLayer[T]) AddedAt(item T) (at time.Time) {
	if q, ok := l.Extended.(AddTimes[T]); ok {
		at = q.AddedAt(item)
	}
	return at
}

func (l lowerLayer[T]) SnapshotKey(key T) (k KeySnapshot[T], found bool) {
	if q, ok := l.Extended.(KeyReader[T]); ok {
		return q.SnapshotKey(key)
	}
	return KeySnapshot[T]{Key: key}, false
}

func (l lowerLayer[T]) SnapshotKeys() iter.Seq[KeySnapshot[T]] {
	if q, ok := l.Extended.(KeyReader[T]); ok {
		return q.SnapshotKeys()
	}
	return func(func(KeySnapshot[T]) bool) {}
}
