package slotheap

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/keyedqueue/workqueue/internal/keytable"
)

// BenchmarkPop puts n entries in, in the order of their ranks or in none, and takes them out.
func BenchmarkPop(b *testing.B) {
	for _, n := range []int{1000, 100_000, 1_000_000} {
		for _, order := range []string{"sorted", "random"} {
			ranks := make([]int64, n)
			for i := range ranks {
				ranks[i] = int64(i)
				if order == "random" {
					ranks[i] = rand.Int64()
				}
			}
			b.Run(fmt.Sprintf("ranks=%s/n=%d", order, n), func(b *testing.B) {
				var h Heap
				for b.Loop() {
					for i, rank := range ranks {
						h.Push(Entry{Rank: rank, Slot: keytable.Slot(i + 1)})
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
