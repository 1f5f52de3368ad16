package notes

import (
	"runtime"
	"testing"

	"github.com/keyedqueue/workqueue/internal/keytable"
)

// What a note says of a key is compared with models where it is used: in the queues. Here is what they cannot
// see.
func TestNoNoteStays(t *testing.T) {
	var n Notes[int]
	n.Added(7)
	n.Canceled(7)
	n.Await(7)
	if n.Done(7) || n.Has(7) {
		t.Error("somebody who waited keeps a note beyond the hand-out")
	}
	n.AddCause(7, func(before int) int { return before + 1 })
	n.Taken(7)
	n.AddCause(7, func(before int) int { return before + 1 })
	n.Canceled(7)
	if n.Done(7) || n.Len() != 0 || n.bySlot != nil {
		t.Error("an empty note, or an empty map, stays")
	}
}

// Of many notes that are gone no memory is left, also while one of them stays.
func TestMemoryIsGivenBack(t *testing.T) {
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	const many = 500_000
	var n Notes[int]
	before := heap()
	for s := range keytable.Slot(many) {
		n.AddCause(s, func(int) int { return 1 })
	}
	for s := range keytable.Slot(many - 1) {
		n.Remove(s)
	}
	if left := heap() - before; left > 2<<20 || n.Len() != 1 {
		t.Errorf("%d bytes and %d notes are left", left, n.Len())
	}
	runtime.KeepAlive(n)
}
