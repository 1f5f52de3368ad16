package testkit

import (
	"fmt"
	"runtime"
	"strings"
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

// Keys returns n keys that share the memory of one string.
func Keys(n int) []string {
	const size = len("namespace/00000000")
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, "namespace/%08d", i)
	}
	keys := make([]string, n)
	for i := range keys {
		keys[i] = all.String()[i*size:][:size]
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
