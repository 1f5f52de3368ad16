package workqueuetest

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
)

// memoryCases are about what a queue keeps of what it was given.
func memoryCases() []testCase {
	return []testCase{
		unbubbled("ProcessedKeysAreGarbage", "A queue does not keep what keys point to that have left it.", tryProcessedKeysAreGarbage),
		unbubbled("MemoryIsGivenBack", "After a burst of keys a queue gives memory back.", tryMemoryIsGivenBack),
	}
}

func tryIdleQueueIsGarbage(r *run) {
	const n = 20
	var c collected
	for i := range n {
		if r.suite.NewAny == nil {
			r.lacks("NewAny")
		}
		q := r.suite.NewAny(Config[any]{Clock: r.clock})
		if d, ok := q.(workqueue.TypedDelayingInterface[any]); ok && i%2 == 0 {
			d.AddAfter(c.object(), time.Microsecond) // what it starts must end by itself
			key, _ := q.Get()
			q.Done(key)
		} else {
			q.Add(c.object()) // is still queued when the queue is dropped
		}
	}
	c.want(r, "dropped queues with their keys", n)
}

func tryProcessedKeysAreGarbage(r *run) {
	const n = 3000 // more than any buffer starts with
	q := r.anyQueue()
	var c collected
	for range n {
		q.Add(c.object())
	}
	process := func() {
		for range n {
			key, _ := q.Get()
			q.Done(key)
		}
	}
	process()
	c.want(r, "processed keys", n)
	if d, ok := q.(workqueue.TypedDelayingInterface[any]); ok {
		d.AddAfter("keeper", time.Hour) // so that the loop, with what it has in its hands, goes on
		for range n {
			d.AddAfter(c.object(), time.Microsecond)
		}
		process()
		c.want(r, "processed keys, delayed ones too", 2*n)
		for range n {
			d.AddAfter(c.object(), time.Hour)
		}
		q.ShutDown()
		c.want(r, "processed and dropped keys", 3*n)
	}
	runtime.KeepAlive(q)
}

// heap returns how much memory is in use.
func heap() int64 {
	for range 3 { // the first ends what goes on already, the last frees what cleanups gave up
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func tryMemoryIsGivenBack(r *run) {
	// A quarter of what the keys took, at most, may be kept.
	const n, most = 200_000, 4 << 20
	if raceEnabled {
		r.skip("the race detector takes memory of its own")
	}
	if testing.Short() {
		r.skip("a short run")
	}
	q := r.queue(Config[string]{})
	keys := allKeys(n)
	before := heap()
	for range 2 {
		for _, key := range keys {
			q.Add(key)
		}
		for range keys {
			key, _ := q.Get()
			q.Done(key)
		}
	}
	if kept := heap() - before; kept > most {
		r.Fatalf("%d KiB are kept after %d keys were queued and processed, at most %d are allowed", kept>>10, n, most>>10)
	}
	if d, ok := q.(delaying); ok {
		for _, key := range keys {
			d.AddAfter(key, time.Millisecond)
		}
		for range keys {
			key, _ := q.Get()
			q.Done(key)
		}
		if kept := heap() - before; kept > most {
			r.Fatalf("%d KiB are kept after %d keys were delayed and processed, at most %d are allowed", kept>>10, n, most>>10)
		}
	}
	runtime.KeepAlive(q)
	runtime.KeepAlive(keys)
}

// allKeys returns n keys, which share one string.
func allKeys(n int) []string {
	var b strings.Builder
	keys := make([]string, n)
	for i := range keys {
		fmt.Fprintf(&b, "%08d", i)
	}
	for i, all, size := 0, b.String(), b.Len()/n; i < n; i++ {
		keys[i] = all[i*size : (i+1)*size]
	}
	return keys
}
