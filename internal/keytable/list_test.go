package keytable

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Slots come and go in two lists as they would in two slices.
func TestLists(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all Lists
		var lists [2]List
		var want [2][]Slot
		in := map[Slot]int{}
		t.Repeat(map[string]func(*rapid.T){
			"move": func(t *rapid.T) {
				s := Slot(rapid.IntRange(1, 12).Draw(t, "slot") * 300)
				if i, ok := in[s]; ok {
					all.Remove(&lists[i], s)
					want[i] = slices.DeleteFunc(want[i], func(other Slot) bool { return other == s })
					delete(in, s)
					return
				}
				i := rapid.IntRange(0, 1).Draw(t, "list")
				all.Append(&lists[i], s)
				want[i], in[s] = append(want[i], s), i
			},
			"": func(t *rapid.T) {
				for i := range lists {
					first := None
					if len(want[i]) > 0 {
						first = want[i][0]
					}
					if got := slices.Collect(all.All(&lists[i])); !slices.Equal(got, want[i]) ||
						lists[i].Len() != len(got) || lists[i].First() != first {
						t.Fatalf("list %d has %v, Len() %d, First() %d, want %v", i, got, lists[i].Len(),
							lists[i].First(), want[i])
					}
				}
			},
		})
	})
}
