package bench

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkContended has producers add keys while workers get and finish them. An iteration is an add, until
// its key is Done.
func BenchmarkContended(b *testing.B) {
	keys := keysOf(1<<16, stringKey)
	for _, load := range []struct{ producers, workers int }{{1, 1}, {4, 4}, {16, 16}, {1, 64}, {64, 1}} {
		b.Run(fmt.Sprintf("producers=%d/workers=%d", load.producers, load.workers), func(b *testing.B) {
			b.Run("adds=distinct", func(b *testing.B) {
				everyMake(b, impls[string](), func(b *testing.B, newQueue func() queue[string]) {
					contend(b, newQueue(), load.producers, load.workers, &distinct{keys: keys, ahead: len(keys) - load.producers})
				})
			})
			b.Run("adds=counted", func(b *testing.B) {
				everyMake(b, impls[*counter](), func(b *testing.B, newQueue func() queue[*counter]) {
					contend(b, newQueue(), load.producers, load.workers, newCounted(100))
				})
			})
		})
	}
}

// contest is which keys are added, and how many adds each hand-out of a key answers.
type contest[T comparable] interface {
	// add returns the key of the ith add, when it may be added, after so many were answered.
	add(i int64, answered *atomic.Int64) T
	// answer says how many adds of the key its worker answers.
	answer(key T) int64
}

// distinct are adds of keys that are not in the queue. One that is would merge.
type distinct struct {
	keys  []string
	ahead int
}

func (d *distinct) add(i int64, answered *atomic.Int64) string {
	for i-answered.Load() > int64(d.ahead) {
		runtime.Gosched()
	}
	return d.keys[i%int64(len(d.keys))]
}

func (d *distinct) answer(string) int64 { return 1 }

// counted are adds of few keys, which are often there already. Each key counts its adds, and a worker answers
// those that it finds. If one is never answered, the queue has lost it.
type counted []*counter

type counter struct{ atomic.Int64 }

func newCounted(n int) counted {
	return keysOf(n, func(int) *counter { return new(counter) })
}

func (c counted) add(i int64, _ *atomic.Int64) *counter {
	key := c[i%int64(len(c))]
	key.Add(1)
	return key
}

func (c counted) answer(key *counter) int64 { return key.Swap(0) }

func contend[T comparable](b *testing.B, q queue[T], producers, workers int, c contest[T]) {
	var working sync.WaitGroup
	var added, answered atomic.Int64
	all := make(chan struct{})
	for range workers {
		working.Go(func() {
			for key, shutdown := q.Get(); !shutdown; key, shutdown = q.Get() {
				n := c.answer(key)
				q.Done(key)
				if n > 0 && answered.Add(n) == int64(b.N) {
					close(all)
				}
			}
		})
	}
	var producing sync.WaitGroup
	b.ResetTimer()
	for range producers {
		producing.Go(func() {
			for i := added.Add(1); i <= int64(b.N); i = added.Add(1) {
				q.Add(c.add(i, &answered))
			}
		})
	}
	producing.Wait()
	select {
	case <-all:
	case <-time.After(time.Minute):
		b.Errorf("%d of %d adds are lost", int64(b.N)-answered.Load(), b.N)
	}
	b.StopTimer()
	q.ShutDown()
	working.Wait()
	if n := answered.Load(); n > int64(b.N) {
		b.Errorf("%d adds were answered, %d were made", n, b.N)
	}
}
