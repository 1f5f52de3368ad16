package bench

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkAddAfter makes n keys wait that did not, for times in no particular order. A new queue for each
// iteration is made while the clock does not run.
func BenchmarkAddAfter(b *testing.B) {
	for _, n := range []int{1000, 100_000, 1_000_000} {
		keys := keysOf(n, stringKey)
		delays := delaysOf(n)
		b.Run(fmt.Sprintf("key=string/keys=%d", n), func(b *testing.B) {
			for _, i := range impls[string]() {
				b.Run("impl="+i.name, func(b *testing.B) {
					b.ReportAllocs()
					for range b.N {
						b.StopTimer()
						q := i.make()
						b.StartTimer()
						for k, key := range keys {
							q.AddAfter(key, delays[k])
						}
						b.StopTimer()
						q.ShutDown()
						b.StartTimer()
					}
					reportPerKey(b, n)
				})
			}
		})
	}
}

// delaysOf returns n delays between one and two hours, the same for everybody.
func delaysOf(n int) []time.Duration {
	delays := make([]time.Duration, n)
	x := uint64(1)
	for i := range delays {
		x = x*6364136223846793005 + 1442695040888963407
		delays[i] = time.Hour + time.Duration(x>>20)%time.Hour
	}
	return delays
}

// BenchmarkRequeue has n keys that fail once and are then forgotten.
func BenchmarkRequeue(b *testing.B) {
	const n = 1000
	keys := keysOf(n, stringKey)
	b.Run(fmt.Sprintf("key=string/keys=%d", n), func(b *testing.B) {
		everyImpl(b, impls[string](), func(b *testing.B, q queue[string]) {
			for b.Loop() {
				for _, key := range keys {
					q.AddRateLimited(key)
					q.Forget(key)
				}
			}
			reportPerKey(b, n)
		})
	})
}
