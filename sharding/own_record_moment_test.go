package sharding

import "testing"

// A wall clock that was set back does not leave a later reading of it behind: validity would end too late
// after a suspension.
func TestLatestMoment(t *testing.T) {
	before, after := moment{mono: 1, wall: 100}, moment{mono: 2, wall: 40}
	if before.latest(after) != after || after.latest(before) != after || before.latest(before) != before {
		t.Error("the later moment is not the one of the monotonic clock")
	}
}
