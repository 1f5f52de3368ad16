package bench

import (
	"fmt"
	"testing"
)

// BenchmarkCycle adds n keys and drains them.
func BenchmarkCycle(b *testing.B) {
	cycle(b, "string", stringKey, impls[string]())
	cycle(b, "struct", structKey, impls[objectKey]())
}

// BenchmarkCycleMetrics is BenchmarkCycle with Prometheus metrics.
func BenchmarkCycleMetrics(b *testing.B) {
	cycle(b, "struct", structKey, implsWithMetrics[objectKey]())
}

func cycle[T comparable](b *testing.B, kind string, key func(i int) T, all []impl[T]) {
	for _, n := range sizes(1, 1000, 100_000, 1_000_000) {
		keys := keysOf(n, key)
		b.Run(fmt.Sprintf("key=%s/keys=%d", kind, n), func(b *testing.B) {
			everyImpl(b, all, func(b *testing.B, q queue[T]) { addAndDrain(b, q, keys) })
		})
	}
}

func addAndDrain[T comparable](b *testing.B, q queue[T], keys []T) {
	measureWarm(b, len(keys), func() {
		for _, key := range keys {
			q.Add(key)
		}
		drain(q, len(keys))
	})
	if q.Len() != 0 {
		b.Fatalf("%d keys are left", q.Len())
	}
}

func drain[T comparable](q queue[T], n int) {
	for range n {
		key, _ := q.Get()
		q.Done(key)
	}
}

// BenchmarkDuplicateAdd adds a key that is queued already.
func BenchmarkDuplicateAdd(b *testing.B) {
	for _, n := range sizes(1, 100_000) {
		keys := keysOf(n, structKey)
		b.Run(fmt.Sprintf("key=struct/keys=%d", n), func(b *testing.B) {
			everyImpl(b, impls[objectKey](), func(b *testing.B, q queue[objectKey]) {
				for _, key := range keys {
					q.Add(key)
				}
				measureWarm(b, n, func() {
					for _, key := range keys {
						q.Add(key)
					}
				})
				if q.Len() != n {
					b.Fatalf("%d keys are queued, want %d", q.Len(), n)
				}
			})
		})
	}
}
