package bench

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkAddAfter makes n keys wait, for times in no particular order, in a queue in which none does.
func BenchmarkAddAfter(b *testing.B) {
	for _, n := range sizes(1000, 100_000, 1_000_000) {
		keys := keysOf(n, stringKey)
		delays := delaysOf(n)
		b.Run(fmt.Sprintf("key=string/keys=%d", n), func(b *testing.B) {
			everyMake(b, impls[string](), func(b *testing.B, newQueue func() queue[string]) {
				for range b.N {
					b.StopTimer()
					q := newQueue()
					b.StartTimer()
					makeWait(q, keys, delays)
					b.StopTimer()
					q.ShutDown()
					b.StartTimer()
				}
				reportPerKey(b, n)
			})
		})
	}
}

// BenchmarkAddAfterWaiting makes a thousand keys wait in a queue in which at least n others do, and at most
// twice as many: then a new queue takes its place.
func BenchmarkAddAfterWaiting(b *testing.B) {
	const batch = 1000
	for _, n := range sizes(1000, 100_000, 1_000_000) {
		keys := keysOf(2*n, stringKey)
		delays := delaysOf(2 * n)
		b.Run(fmt.Sprintf("key=string/keys=%d", n), func(b *testing.B) {
			everyMake(b, impls[string](), func(b *testing.B, newQueue func() queue[string]) {
				q, waiting := newQueue(), 0
				for range b.N {
					if waiting == 0 || waiting == len(keys) {
						b.StopTimer()
						q.ShutDown()
						q, waiting = newQueue(), n
						makeWait(q, keys[:n], delays)
						b.StartTimer()
					}
					makeWait(q, keys[waiting:waiting+batch], delays[waiting:])
					waiting += batch
				}
				b.StopTimer()
				q.ShutDown()
				reportPerKey(b, batch)
			})
		})
	}
}

// makeWait makes keys wait that did not.
func makeWait(q queue[string], keys []string, delays []time.Duration) {
	for k, key := range keys {
		q.AddAfter(key, delays[k])
	}
	settle(q, "the last")
}

// settle returns when the queue, in which no key is queued, knows all that it was told: client-go's and
// controller-runtime's take delayed keys from a buffer, on a goroutine of their own. One more key, which is
// due at once, comes when all before it are in.
func settle[T comparable](q queue[T], last T) {
	q.AddAfter(last, 1)
	q.Get()
	q.Done(last)
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

// BenchmarkRequeue has n keys come, fail once and be forgotten. They come from a worker because our priority
// queue does not ask the limiter for a key that waits for its retry already.
func BenchmarkRequeue(b *testing.B) {
	const n = 1000
	keys := keysOf(n, stringKey)
	b.Run(fmt.Sprintf("key=string/keys=%d", n), func(b *testing.B) {
		everyImpl(b, impls[string](), func(b *testing.B, q queue[string]) {
			measureWarm(b, n, func() {
				for _, key := range keys {
					q.Add(key)
				}
				for range keys {
					key, _ := q.Get()
					q.AddRateLimited(key)
					q.Forget(key)
					q.Done(key)
				}
				settle(q, "the last")
			})
		})
	})
}
