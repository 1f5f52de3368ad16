package sharding

import "testing"

// A table that goes back in time, and is then written past what a member knew, contradicts it.
func TestRelationTo(t *testing.T) {
	known := newTable("t", 3, 5)
	known.give(1, "b")
	known.epoch = 6
	known.give(2, "b")
	for _, c := range []struct {
		epoch int64
		slot  tableSlot
		want  relation
	}{
		{5, tableSlot{"a", "", 5}, older}, {6, tableSlot{"b", "", 6}, same}, {6, tableSlot{"a", "", 5}, contrary},
		{9, tableSlot{"a", "", 5}, contrary}, {9, tableSlot{"a", "", 6}, contrary},
		{9, tableSlot{"a", "", 7}, newer}, {9, tableSlot{"b", "", 6}, newer},
	} {
		other := known.clone()
		other.epoch, other.slots[2] = c.epoch, c.slot
		if got := other.relationTo(known); got != c.want {
			t.Errorf("FAILURE: %+v is %d, want %d", c, got, c.want)
		}
	}
}
