package bench

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"
)

// inUse returns how much memory is in use when the collector has run, stacks of goroutines included.
func inUse() float64 {
	for range 3 { // the first ends a running collection, the last frees what cleanups gave up
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}

// atRest waits until the number of goroutines has been the same for a while, but no longer than some seconds:
// those that have begun wait for something then, and those that must end are gone.
func atRest() {
	const enough, most = 10, 5000
	for same, looks, before := 0, 0, -1; same < enough && looks < most; looks++ {
		time.Sleep(time.Millisecond)
		if n := runtime.NumGoroutine(); n == before {
			same++
		} else {
			same, before = 0, n
		}
	}
}

// BenchmarkIdle makes queues that nobody uses.
func BenchmarkIdle(b *testing.B) {
	const n = 1000
	everyMake(b, impls[string](), func(b *testing.B, newQueue func() queue[string]) {
		var size, goroutines float64
		queues := make([]queue[string], n)
		for b.Loop() {
			goroutines -= float64(runtime.NumGoroutine())
			size -= inUse()
			for i := range queues {
				queues[i] = newQueue()
			}
			atRest()
			size += inUse()
			goroutines += float64(runtime.NumGoroutine())
			for _, q := range queues {
				q.ShutDown()
			}
			clear(queues)
			atRest()
		}
		b.ReportMetric(0, "ns/op") // says nothing
		b.ReportMetric(size/float64(b.N)/n, "B/queue")
		b.ReportMetric(goroutines/float64(b.N)/n, "goroutines/queue")
	})
}

// BenchmarkBytes measures the memory that a key takes in each state. What its string points to is there
// before.
func BenchmarkBytes(b *testing.B) {
	n := largest()
	keys := keysOf(n, stringKey)
	for _, state := range []struct {
		name string
		fill func(q queue[string])
	}{
		{"queued", func(q queue[string]) {
			for _, key := range keys {
				q.Add(key)
			}
			q.Len() // controller-runtime's puts the keys in their places when asked
		}},
		{"waiting", func(q queue[string]) {
			for _, key := range keys {
				q.AddAfter(key, time.Hour)
			}
			settle(q, "the last")
		}},
		{"failed", func(q queue[string]) { // waits for its retry, and the limiter counts
			for _, key := range keys {
				q.AddRateLimited(key)
			}
			settle(q, "the last")
		}},
	} {
		b.Run(fmt.Sprintf("state=%s/key=string/keys=%d", state.name, n), func(b *testing.B) {
			measureBytes(b, "B/key", float64(n), state.fill)
		})
	}
	runtime.KeepAlive(keys)
}

// BenchmarkKept measures what a queue keeps of the memory of a burst that is over.
func BenchmarkKept(b *testing.B) {
	n := largest()
	keys := keysOf(n, stringKey)
	b.Run(fmt.Sprintf("key=string/keys=%d", n), func(b *testing.B) {
		measureBytes(b, "B/kept", 1, func(q queue[string]) {
			for _, key := range keys {
				q.Add(key)
			}
			drain(q, n)
		})
	})
	runtime.KeepAlive(keys)
}

// largest is a million, or less with -short.
func largest() int { return slices.Max(sizes(100_000, 1_000_000)) }

// measureBytes reports what a new queue takes for each of its parts after fill.
func measureBytes(b *testing.B, unit string, parts float64, fill func(q queue[string])) {
	everyMake(b, impls[string](), func(b *testing.B, newQueue func() queue[string]) {
		var size float64
		for b.Loop() {
			size -= inUse()
			q := newQueue()
			fill(q)
			size += inUse()
			q.ShutDown()
		}
		b.ReportMetric(0, "ns/op") // says nothing
		b.ReportMetric(size/float64(b.N)/parts, unit)
	})
}
