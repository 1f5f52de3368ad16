package workqueue

import "context"

// Leaser is a queue that hands out keys for a limited time, such as one that many processes share. A worker that got a
// key from it calls Lease before it handles the key, and passes the returned context to the handler. That context is
// derived from ctx and ends, with a cause, when another worker may have got the key. The worker calls the returned
// function after the handler has returned, and Done as always. Lease does not block. For a key that no worker holds
// it returns ctx. Package worker does all this.
type Leaser[T comparable] interface {
	Lease(ctx context.Context, key T) (context.Context, context.CancelFunc)
}
