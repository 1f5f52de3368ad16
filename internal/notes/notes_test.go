package notes

import "testing"

// What a note says of a key is compared with models where it is used: in the queues. Here is what they cannot see.
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
