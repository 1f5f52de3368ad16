package workqueue

// This file has the layers over a queue that is not ours: with client-go's methods and no others. Package
// foreign makes an ExtendedRateLimiting of the whole.

// plainDelaying puts AddAfter on top of any queue.
type plainDelaying[T comparable] struct {
	TypedInterface[T]
	*delays[T]
}

// ShutDown drops the keys that still wait for their time, and waits for the goroutine that adds them.
func (q plainDelaying[T]) ShutDown() {
	defer q.logDropped(q.stopWaiting())
	q.TypedInterface.ShutDown()
	q.loop.Wait()
}

// ShutDownWithDrain drops the keys that still wait for their time before the wait and not after it.
func (q plainDelaying[T]) ShutDownWithDrain() {
	defer q.logDropped(q.stopWaiting())
	q.TypedInterface.ShutDownWithDrain()
	q.loop.Wait()
}

// plainRateLimiting puts AddRateLimited on top of any delaying queue.
type plainRateLimiting[T comparable] struct {
	TypedDelayingInterface[T]
	limiter TypedRateLimiter[T]
}

func (q plainRateLimiting[T]) AddRateLimited(item T)  { q.AddAfter(item, q.limiter.When(item)) }
func (q plainRateLimiting[T]) Forget(item T)          { q.limiter.Forget(item) }
func (q plainRateLimiting[T]) NumRequeues(item T) int { return q.limiter.NumRequeues(item) }
