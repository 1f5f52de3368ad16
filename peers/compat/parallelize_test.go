package compat

import (
	"context"
	"math"
	"slices"
	"sync/atomic"
	"testing"

	peer "k8s.io/client-go/util/workqueue"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
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

// TestParallelizeLimits: client-go does nothing without workers, and panics with fewer, with less than
// nothing to do, and with chunks of almost any size. Ours takes each for the nearest that makes sense.
func TestParallelizeLimits(t *testing.T) {
	for _, tt := range []struct {
		name                       string
		workers, pieces, chunkSize int
		// theirs is what is done before they return, or panics.
		theirs, ours int
	}{
		{"no workers", 0, 3, 1, 0, 3},
		{"fewer workers than none", -1, 3, 1, panicked, 3},
		{"fewer pieces than none", 1, -3, 1, panicked, 0},
		{"huge chunks", 1, 3, math.MaxInt, panicked, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var done atomic.Int64
			count := func(int) { done.Add(1) }
			ctx := context.Background()
			if testkit.PanicOf(func() {
				peer.ParallelizeUntil(ctx, tt.workers, tt.pieces, count, peer.WithChunkSize(tt.chunkSize))
			}) != nil {
				done.Store(panicked)
			}
			if n := int(done.Swap(0)); n != tt.theirs {
				t.Errorf("client-go: %d pieces, want %d", n, tt.theirs)
			}
			workqueue.ParallelizeUntil(ctx, tt.workers, tt.pieces, count, workqueue.WithChunkSize(tt.chunkSize))
			if n := int(done.Load()); n != tt.ours {
				t.Errorf("ours: %d pieces, want %d", n, tt.ours)
			}
		})
	}
}

// panicked stands for the number of pieces that were done by a call that panicked.
const panicked = -1
