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
	var b strings.Builder
	keys := make([]string, n)
	for i := range keys {
		fmt.Fprintf(&b, "namespace/%08d", i)
	}
	for i, all, size := 0, b.String(), b.Len()/max(n, 1); i < n; i++ {
		keys[i] = all[i*size : (i+1)*size]
	}
	return keys
}

// Object is something that a key points to. It is not tiny: the collector groups tiny objects, and keeps all
// of a group as long as one of them is in use.
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
	Eventually(t, fmt.Sprintf("%s: %d objects are freed", what, n), func() bool { return g.Collect() >= n })
}

// Collect runs the collector and returns how many objects have been freed.
func (g *Garbage) Collect() int64 {
	runtime.GC()
	return g.freed.Load()
}
