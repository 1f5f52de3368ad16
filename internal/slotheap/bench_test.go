package slotheap

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/keyedqueue/workqueue/internal/keytable"
)

// BenchmarkPop puts n entries in, in the order of their ranks or in none, and takes them out, one by one or by
// TakeMost.
func BenchmarkPop(b *testing.B) {
	for _, way := range []string{"heap", "run"} {
		benchmarkPop(b, way)
	}
}

func benchmarkPop(b *testing.B, way string) {
	for _, n := range []int{1000, 100_000, 1_000_000} {
		for _, order := range []string{"sorted", "random"} {
			ranks := make([]int64, n)
			for i := range ranks {
				ranks[i] = int64(i)
				if order == "random" {
					ranks[i] = rand.Int64()
				}
			}
			b.Run(fmt.Sprintf("way=%s/ranks=%s/n=%d", way, order, n), func(b *testing.B) {
				var h Heap[uint32]
				for b.Loop() {
					for i, rank := range ranks {
						h.Push(Entry[uint32]{Rank: rank, Slot: keytable.Slot(i + 1)})
					}
					var r Run[uint32]
					if way == "run" {
						r = h.TakeMost(math.MaxInt64)
					}
					for r.Len() > 0 {
						r.Pop()
					}
					for h.Len() > 0 {
						h.Pop()
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/entry")
			})
		}
	}
}
