package bench

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// countedKey is a key that counts its adds. A worker answers those that it finds. If one is never answered,
// the queue has lost it.
type countedKey struct {
	name string
	adds *atomic.Int64
}

func newCountedKey(i int) countedKey { return countedKey{stringKey(i), new(atomic.Int64)} }

// BenchmarkContended has producers add keys while workers get and finish them. An iteration is an add, until
// a worker has answered it. Adds are distinct if no key is added that has an add to be answered. Otherwise
// they are of few keys, and many find their key queued or held.
func BenchmarkContended(b *testing.B) {
	for _, load := range []struct{ producers, workers int }{{1, 1}, {4, 4}, {16, 16}, {1, 64}, {64, 1}} {
		for _, adds := range []struct {
			name     string
			keys     int
			distinct bool
		}{{"distinct", 1 << 16, true}, {"counted", 100, false}} {
			name := fmt.Sprintf("producers=%d/workers=%d/adds=%s", load.producers, load.workers, adds.name)
			b.Run(name, func(b *testing.B) {
				everyMake(b, impls[countedKey](), func(b *testing.B, newQueue func() queue[countedKey]) {
					keys := keysOf(adds.keys, newCountedKey)
					contend(b, newQueue(), keys, load.producers, load.workers, adds.distinct)
				})
			})
		}
	}
}

func contend(b *testing.B, q queue[countedKey], keys []countedKey, producers, workers int, distinct bool) {
	var working sync.WaitGroup
	var added, answered atomic.Int64
	all := make(chan struct{})
	for range workers {
		working.Go(func() {
			for key, shutdown := q.Get(); !shutdown; key, shutdown = q.Get() {
				n := key.adds.Swap(0)
				q.Done(key)
				if n > 0 && answered.Add(n) == int64(b.N) {
					close(all)
				}
			}
		})
	}
	b.ResetTimer()
	for range producers {
		working.Go(func() {
			for i := added.Add(1); i <= int64(b.N); i = added.Add(1) {
				key := keys[i%int64(len(keys))]
				if !distinct {
					key.adds.Add(1)
				}
				for distinct && !key.adds.CompareAndSwap(0, 1) {
					runtime.Gosched()
				}
				q.Add(key)
			}
		})
	}
	select {
	case <-all:
	case <-time.After(5 * time.Minute): // no queue takes as long
		b.Fatalf("%d of %d adds are not answered", int64(b.N)-answered.Load(), b.N)
	}
	b.StopTimer()
	q.ShutDown()
	working.Wait()
}
