package workqueue

import "context"

// Leaser is a queue that hands out keys for a time, such as one that many processes share. A worker that got a key from it
// calls Lease before it handles the key, and gives the handler the context that Lease returns: it is derived from
// ctx and ends, with a cause, when the key may have been handed out to somebody else. The worker calls the returned
// function when the handler has returned, and Done as always. Lease does not block, and returns ctx for a key
// that nobody holds. Package worker does all that.
type Leaser[T comparable] interface {
	Lease(ctx context.Context, key T) (context.Context, context.CancelFunc)
}
