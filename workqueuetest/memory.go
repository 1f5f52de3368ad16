package workqueuetest

import (
	"runtime"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
)

// memoryCases are about what a queue keeps, and keeps alive.
func memoryCases() []testCase {
	return []testCase{
		unbubbled("IdleQueueIsGarbage", "A queue without references is garbage, with its keys, even if it was not shut down.", tryIdleQueueIsGarbage),
		unbubbled("ProcessedKeysAreGarbage", "A queue does not keep alive what the keys that have left it point to.", tryProcessedKeysAreGarbage),
		unbubbled("MemoryIsGivenBack", "After a burst of keys a queue gives memory back.", tryMemoryIsGivenBack),
	}
}

func tryIdleQueueIsGarbage(r *run) {
	const n = 20
	var c testkit.Garbage
	for i := range n {
		q := r.newAny() // not anyQueue, which keeps it
		if d, ok := q.(workqueue.TypedDelayingInterface[any]); ok && i%2 == 0 {
			d.AddAfter(c.Object(), time.Microsecond) // the goroutine that it starts must end by itself
			key, _ := q.Get()
			q.Done(key)
		} else {
			q.Add(c.Object()) // is still queued when the queue is dropped
		}
	}
	r.wantFreed(&c, "dropped queues with their keys", n)
}

// wantFreed asserts that the collector has soon freed n objects.
func (r *run) wantFreed(c *testkit.Garbage, what string, n int64) {
	if !r.soon(func() bool { return c.Collect() >= n }) {
		r.Fatalf("%s: %d of %d are collected", what, c.Collect(), n)
	}
}

func tryProcessedKeysAreGarbage(r *run) {
	const n = 3000 // more than the initial capacity of any buffer
	q := r.anyQueue()
	var c testkit.Garbage
	for range n {
		q.Add(c.Object())
	}
	processAll(q, n)
	r.wantFreed(&c, "processed keys", n)
	if d, ok := q.(workqueue.TypedDelayingInterface[any]); ok {
		d.AddAfter("keeper", time.Hour) // so that the loop keeps running, with everything that it refers to
		for range n {
			d.AddAfter(c.Object(), time.Microsecond)
		}
		processAll(q, n)
		r.wantFreed(&c, "processed keys, delayed ones too", 2*n)
		for range n {
			d.AddAfter(c.Object(), time.Hour)
		}
		q.ShutDown()
		r.wantFreed(&c, "processed and dropped keys", 3*n)
	}
	runtime.KeepAlive(q)
}

func processAll[T comparable](q workqueue.TypedInterface[T], n int) {
	for range n {
		key, _ := q.Get()
		q.Done(key)
	}
}

func tryMemoryIsGivenBack(r *run) {
	// At most a quarter of what the keys took may be kept.
	const n, most = 200_000, 4 << 20
	if testkit.RaceEnabled {
		r.skip("the race detector takes memory of its own")
	}
	if testing.Short() {
		r.skip("a short run")
	}
	q := r.queue(Config[string]{})
	keys := testkit.Keys(n)
	before := testkit.Heap()
	adds := []func(key string){q.Add, q.Add}
	if d, ok := q.(delaying); ok {
		adds = append(adds, func(key string) { d.AddAfter(key, time.Millisecond) })
	}
	for round, add := range adds {
		for _, key := range keys {
			add(key)
		}
		processAll(q, n)
		if kept := testkit.Heap() - before; kept > most {
			r.Fatalf("round %d: %d KiB are kept after %d keys were processed, at most %d are allowed", round, kept>>10, n, most>>10)
		}
	}
	runtime.KeepAlive(q)
	runtime.KeepAlive(keys)
}
