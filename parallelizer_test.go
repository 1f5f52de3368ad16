package workqueue_test

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
)

func TestParallelizeUntilDoesEachPieceOnce(t *testing.T) {
	for _, pieces := range []int{math.MinInt, -1, 0, 1, 2, 7, 100, 1000} {
		for _, workers := range []int{math.MinInt, -1, 0, 1, 3, 2000, math.MaxInt} {
			for _, chunk := range []int{math.MinInt, 0, 1, 3, 7, 999, 1000, 1001, math.MaxInt} {
				t.Run(fmt.Sprint(pieces, workers, chunk), func(t *testing.T) {
					done := make([]atomic.Int32, max(pieces, 0))
					workqueue.ParallelizeUntil(t.Context(), workers, pieces, func(piece int) {
						done[piece].Add(1)
					}, workqueue.WithChunkSize(chunk))
					for piece := range done {
						if n := done[piece].Load(); n != 1 {
							t.Errorf("piece %d was done %d times", piece, n)
						}
					}
				})
			}
		}
	}
}

func TestParallelizeUntilUsesItsWorkers(t *testing.T) {
	for _, tt := range []struct{ workers, pieces, chunk, want int }{
		{1, 10, 1, 1}, {3, 10, 1, 3}, {20, 10, 1, 10}, {0, 10, 1, 1}, {-5, 10, 1, 1}, {10, 10, 5, 2},
		{10, 11, 5, 3},
		{10, 10, math.MaxInt, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			var now, most atomic.Int32
			//lint:ignore SA1012 a nil context is allowed
			workqueue.ParallelizeUntil(nil, tt.workers, tt.pieces, func(int) {
				most.Store(max(most.Load(), now.Add(1)))
				time.Sleep(time.Second)
				now.Add(-1)
			}, workqueue.WithChunkSize(tt.chunk))
			if now.Load() != 0 {
				t.Error("returned while pieces were being done")
			}
			if got := int(most.Load()); got != tt.want {
				t.Errorf("%+v: %d pieces at once", tt, got)
			}
		})
	}
}

func TestParallelizeUntilContextIsDone(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	workqueue.ParallelizeUntil(canceled, 3, 100, func(int) { t.Error("a piece is done though the context is") })

	for _, chunk := range []int{1, 7, 100} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
			defer cancel()
			var begun, ended atomic.Int32
			workqueue.ParallelizeUntil(ctx, 4, 400, func(int) {
				begun.Add(1)
				time.Sleep(time.Second)
				ended.Add(1)
			}, workqueue.WithChunkSize(chunk))
			// Each worker was in the middle of its third piece.
			if begun.Load() != 12 || ended.Load() != 12 {
				t.Errorf("chunks of %d: %d pieces were begun and %d ended, want 12", chunk, begun.Load(), ended.Load())
			}
		})
	}
}
