package worker

import (
	"context"
	"time"
)

// PriorityQueue is what a queue offers if its keys have priorities, as those of package priorityqueue do. A pool
// whose queue implements it keeps a key's priority when the key comes again, and makes [Priority] and [Requeue] work.
type PriorityQueue[T comparable] interface {
	// PriorityOf returns the priority of a key, which a worker holds.
	PriorityOf(key T) int
	// AddWithPriority adds key with that priority after the given time, or at once unless that is positive.
	AddWithPriority(key T, priority int, after time.Duration)
}

// KeyFinder is what a queue offers if keys can be removed from it. Through it a pool learns that a failing key
// will not come again.
type KeyFinder[T comparable] interface {
	// Has reports whether key is in the queue: queued, waiting for its time or held by a worker.
	Has(key T) bool
}

// RequeueCounter is what a queue offers if it must ask a server for NumRequeues. The server may not answer, and then
// NumRequeues returns 0, which would mean that the key's failures are forgotten. Options.MaxRetries counts what the
// server counts.
type RequeueCounter[T comparable] interface {
	// NumRequeuesContext is NumRequeues that returns an error if the number is not known. It should wait no longer than
	// about a second, whatever ctx is.
	NumRequeuesContext(ctx context.Context, key T) (int, error)
}

// GiveUpRecorder is what a queue offers if it keeps the keys that are not tried any more, such as one that many processes
// share. A pool calls it for a key that it drops.
type GiveUpRecorder[T comparable] interface {
	// GiveUp is called after Forget and before Done of key, whose last attempt failed with err. It should not block.
	GiveUp(key T, attempts int, err error)
}
