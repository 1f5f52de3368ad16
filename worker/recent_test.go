package worker

import (
	"slices"
	"testing"
)

// What is put in last pushes out the oldest, as soon as the sizes exceed max, and nothing of what has gone is kept.
func TestRecent(t *testing.T) {
	r := recent[string, int]{max: 10}
	check := func(gone, wantGone []string, size int, values ...int) {
		t.Helper()
		if !slices.Equal(gone, wantGone) || r.size != size || !slices.Equal(r.first(100), values) || len(r.places) != len(values) {
			t.Errorf("%v gone, %v of size %d left", gone, r.first(100), r.size)
		}
	}
	check(r.put("a", 1, 3), nil, 3, 1)
	check(r.put("b", 2, 3), nil, 6, 2, 1)
	r.take("a")
	check(r.put("a", 3, 4), nil, 7, 3, 2)
	check(r.put("c", 4, 5), []string{"b"}, 9, 4, 3)
	check(r.put("d", 5, 10), []string{"a", "c"}, 10, 5)
	check(r.put("e", 6, 11), []string{"d", "e"}, 0)
	r.put("f", 7, 1)
	got, _ := r.get("f")
	taken, ok := r.take("f")
	if _, again := r.take("f"); got != 7 || taken != 7 || !ok || again || r.places != nil {
		t.Errorf("got %d, took %d, and again: %v", got, taken, again)
	}
}
