package notes

import (
	"testing"

	"github.com/keyedqueue/workqueue/internal/keytable"
)

func plus(n int) func(int) int { return func(before int) int { return before + n } }

func wantCauses(t *testing.T, n *Notes[int], s keytable.Slot, current, next int) {
	t.Helper()
	value := func(p *int) int {
		if p == nil {
			return 0
		}
		return *p
	}
	if c, x := n.Causes(s); value(c) != current || value(x) != next {
		t.Errorf("Causes(%d) = %d, %d, want %d, %d", s, value(c), value(x), current, next)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A note goes through a key's life, and is removed when nothing is left of it.
func TestNote(t *testing.T) {
	var n Notes[int]
	n.Remove(7)
	n.Added(7)
	n.Canceled(7)
	if n.Taken(7) || n.Done(7) || n.Has(7) || n.Len() != 0 {
		t.Error("there is a note that was never made")
	}
	n.AddCause(7, plus(1))
	first, _ := n.Causes(7)
	n.AddCause(7, plus(2))
	n.AddCause(8, plus(10))
	wantCauses(t, &n, 7, 0, 3)
	if !n.Taken(7) || first != nil {
		t.Error("the note ends when the key is handed out")
	}
	wantCauses(t, &n, 7, 3, 0)
	n.AddCause(7, plus(4))
	wantCauses(t, &n, 7, 3, 4)
	again := n.Await(7)
	if n.Await(7) != again || isClosed(again) {
		t.Error("a second caller waits for something else, or not at all")
	}
	n.Added(7)
	n.Added(7)
	if !isClosed(again) || isClosed(n.Await(7)) {
		t.Error("Added does not close the channel, or closes the next one")
	}
	if !n.Done(7) {
		t.Error("the note ends although there are causes for the next hand-out")
	}
	wantCauses(t, &n, 7, 0, 4)
	n.Taken(7)
	n.AddCause(7, plus(5))
	n.Canceled(7)
	wantCauses(t, &n, 7, 4, 0)
	after := n.Await(7)
	if n.Done(7) || n.Has(7) || isClosed(after) {
		t.Error("a note stays without causes, or Done closes a channel")
	}
	if n.Len() != 1 || !n.Has(8) {
		t.Errorf("%d notes, want the one of the other key", n.Len())
	}
	n.Remove(8)
	if n.Len() != 0 || n.bySlot != nil {
		t.Error("an empty map stays")
	}
}

// Somebody who waits keeps no note beyond the hand-out.
func TestNoteOfAnAwaitedKey(t *testing.T) {
	var n Notes[int]
	n.Await(7)
	if n.Done(7) || n.Has(7) {
		t.Error("the note stays after Done")
	}
	n.Await(7)
	n.Added(7)
	if n.Taken(7) || n.Has(7) {
		t.Error("the note stays at the next hand-out")
	}
}
