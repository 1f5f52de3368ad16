package workqueue

import (
	"context"
	"sync"
	"sync/atomic"
)

// DoWorkPieceFunc does the piece of work with that number.
type DoWorkPieceFunc func(piece int)

type options struct{ chunkSize int }

// Options are options of [ParallelizeUntil].
type Options func(*options)

// WithChunkSize makes a worker take c pieces at a time. It pays for pieces of less than a microsecond.
func WithChunkSize(c int) func(*options) {
	return func(o *options) { o.chunkSize = c }
}

// ParallelizeUntil calls doWorkPiece for each piece from 0 to pieces-1, in up to workers goroutines, and
// waits for these calls. When ctx, which may be nil, is done, no further call begins.
func ParallelizeUntil(ctx context.Context, workers, pieces int, doWorkPiece DoWorkPieceFunc, opts ...Options) {
	if pieces <= 0 {
		return
	}
	if ctx == nil {
		ctx = context.Background()
	}
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	chunkSize := min(max(o.chunkSize, 1), pieces)
	chunks := (pieces-1)/chunkSize + 1

	var next atomic.Int64
	work := func() {
		for {
			chunk := int(next.Add(1)) - 1
			if chunk >= chunks {
				return
			}
			first := chunk * chunkSize
			for piece := first; piece < first+min(chunkSize, pieces-first); piece++ {
				if ctx.Err() != nil {
					return
				}
				doWorkPiece(piece)
			}
		}
	}
	var wg sync.WaitGroup
	for range min(max(workers, 1), chunks) {
		wg.Go(work)
	}
	wg.Wait()
}
