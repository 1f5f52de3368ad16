package bench

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// BenchmarkContended has producers add distinct keys while workers get and finish them. An iteration is a
// key, from before its add until after its Done.
func BenchmarkContended(b *testing.B) {
	keys := keysOf(1<<16, stringKey)
	for _, load := range []struct{ producers, workers int }{{1, 1}, {4, 4}, {16, 16}, {1, 64}, {64, 1}} {
		b.Run(fmt.Sprintf("producers=%d/workers=%d", load.producers, load.workers), func(b *testing.B) {
			for _, i := range impls[string]() {
				b.Run("impl="+i.name, func(b *testing.B) {
					b.ReportAllocs()
					contend(b, i.make(), keys, load.producers, load.workers)
				})
			}
		})
	}
}

func contend(b *testing.B, q queue[string], keys []string, producers, workers int) {
	var working sync.WaitGroup
	var added, done atomic.Int64
	all := make(chan struct{})
	for range workers {
		working.Go(func() {
			for key, shutdown := q.Get(); !shutdown; key, shutdown = q.Get() {
				q.Done(key)
				if done.Add(1) == int64(b.N) {
					close(all)
				}
			}
		})
	}
	b.ResetTimer()
	for range producers {
		working.Go(func() {
			for i := added.Add(1); i <= int64(b.N); i = added.Add(1) {
				// A key that is still queued when its turn comes again would merge.
				for i-done.Load() > int64(len(keys)-producers) {
					runtime.Gosched()
				}
				q.Add(keys[i%int64(len(keys))])
			}
		})
	}
	<-all
	b.StopTimer()
	q.ShutDown()
	working.Wait()
	if done.Load() != int64(b.N) {
		b.Fatalf("%d of %d keys came through", done.Load(), b.N)
	}
}
