package testkit

import (
	"fmt"
	"runtime"
	"sync/atomic"
)

// Heap returns how many bytes of memory are in use.
func Heap() int64 {
	for range 3 { // The first ends a collection that is going on, the last frees what cleanups gave up.
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Keys returns n keys.
func Keys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("namespace/%08d", i)
	}
	return keys
}

// Object is something that a key points to. Tiny objects would be kept by the collector in groups.
type Object [64]byte

// Garbage counts the objects that the collector has freed.
type Garbage struct{ freed atomic.Int64 }

// Object returns a new object that is counted when it is freed.
func (g *Garbage) Object() *Object {
	o := new(Object)
	runtime.AddCleanup(o, func(g *Garbage) { g.freed.Add(1) }, g)
	return o
}

// Want fails the test unless the collector has soon freed n objects.
func (g *Garbage) Want(t TB, what string, n int64) {
	t.Helper()
	Eventually(t, fmt.Sprintf("%s: %d objects are freed", what, n), func() bool {
		runtime.GC()
		return g.freed.Load() >= n
	})
}
