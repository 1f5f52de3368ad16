package foreign

import (
	"context"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/gate"
	"k8s.io/utils/clock"
)

// ShutDown shuts below down. What below drops then is still handed out.
func (q *wrapper[T]) ShutDown() {
	q.shutDownBelow()
	q.mu.Lock()
	defer q.unlock()
	q.mu.EndDrain(workqueue.ErrShutDown)
}

// shutDownBelow shuts below down, if nobody has: a second ShutDown of controller-runtime's queue panics.
func (q *wrapper[T]) shutDownBelow() {
	q.shuttingDown.Store(true)
	q.shutDownOnce.Do(func() {
		if !q.below.ShuttingDown() {
			q.below.ShutDown()
		}
	})
}

// ShutDownWithDrain drops what is left if nobody takes a key for 10 s: see [workqueue.Typed].
func (q *wrapper[T]) ShutDownWithDrain() {
	_ = q.drain(context.Background(), func() (again bool) {
		q.logLeft()
		q.drop(true)
		return true // Wait on: a worker may have taken a key after all.
	})
}

func (q *wrapper[T]) ShutDownContext(ctx context.Context) error {
	return q.drain(ctx, func() (again bool) {
		q.logLeft()
		return false
	})
}

// logLeft logs how many keys are queued, the first time that there are any.
func (q *wrapper[T]) logLeft() {
	if n := q.Len(); n > 0 && !q.leftLogged.Swap(true) {
		gate.LogLeft(nil, "", n)
	}
}

// drain waits with the fetcher: it has a key for a worker, or nothing more comes.
func (q *wrapper[T]) drain(ctx context.Context, tired func() (again bool)) error {
	q.shutDownBelow()
	q.mu.Lock()
	q.mu.waiting++
	q.mu.idleSince = time.Now()
	drain := q.mu.Drain()
	q.unlock()
	defer func() {
		q.mu.Lock()
		defer q.unlock()
		q.mu.waiting--
	}()
	return drain.WaitPatiently(ctx, clock.RealClock{}, q.idle, tired)
}

// idle returns for how long no key has been held, nor below been in a Done, which may queue one.
func (q *wrapper[T]) idle() time.Duration {
	q.mu.Lock()
	defer q.unlock()
	if len(q.mu.held)+q.mu.dones > 0 {
		return 0
	}
	return time.Since(q.mu.idleSince)
}

func (q *wrapper[T]) ShuttingDown() bool { return q.shuttingDown.Load() || q.below.ShuttingDown() }

// dropPatience is how long DropQueued waits for a key that below holds back, as a queue with limits may. Any
// other hands out its next key, or reports the shutdown, as soon as the fetcher runs.
const dropPatience = time.Second

// DropQueued gets the keys and calls Done for each. What is queued afterwards, the fetcher drops.
func (q *wrapper[T]) DropQueued() (keys []T) {
	for more := q.ShuttingDown(); more; more = !q.keepDropping() {
		keys = append(keys, q.drop(false)...)
	}
	return keys
}

// keepDropping makes the fetcher drop what comes. It returns false if a key has come since drop looked.
func (q *wrapper[T]) keepDropping() bool {
	q.mu.Lock()
	defer q.unlock()
	q.mu.dropping = q.mu.fetched == nil && len(q.mu.left) == 0
	return q.mu.dropping
}

// drop drops the queued keys and returns them. With whileIdle it stops when a worker holds a key.
func (q *wrapper[T]) drop(whileIdle bool) (keys []T) {
	for {
		if whileIdle && q.Stats().Processing > 0 {
			return keys
		}
		ctx, cancel := context.WithTimeout(context.Background(), dropPatience)
		key, err := q.GetContext(ctx)
		cancel()
		if err != nil {
			return keys
		}
		keys = append(keys, key)
		q.finish(key)
		q.mu.Lock()
		q.mu.dropped++
		q.unlock()
	}
}
