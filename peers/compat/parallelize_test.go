package compat

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	peer "k8s.io/client-go/util/workqueue"

	"github.com/keyedqueue/workqueue"
)

// TestParallelizeAgrees: both do every piece once, or none if there is no time left to begin.
func TestParallelizeAgrees(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, workers := range []int{1, 2, 7, 100} {
		for _, pieces := range []int{0, 1, 2, 33} {
			for _, chunkSize := range []int{-1, 0, 1, 4, 33, 34} {
				for _, ctx := range []context.Context{nil, t.Context(), cancelled} {
					theirs, ours := make([]int32, pieces), make([]int32, pieces)
					peer.ParallelizeUntil(ctx, workers, pieces, func(piece int) {
						atomic.AddInt32(&theirs[piece], 1)
					}, peer.WithChunkSize(chunkSize))
					workqueue.ParallelizeUntil(ctx, workers, pieces, func(piece int) {
						atomic.AddInt32(&ours[piece], 1)
					}, workqueue.WithChunkSize(chunkSize))
					want := slices.Repeat([]int32{1}, pieces)
					if ctx == cancelled {
						want = make([]int32, pieces)
					}
					if !slices.Equal(theirs, want) || !slices.Equal(ours, want) {
						t.Errorf("%d workers, %d pieces in chunks of %d: client-go %v, ours %v, want %v",
							workers, pieces, chunkSize, theirs, ours, want)
					}
				}
			}
		}
	}
}
