package worker

import "testing"

// A key that has failed again since it was found to be stale is not forgotten.
func TestForgetIf(t *testing.T) {
	var f failures[int]
	f.set(1, failureCount{calls: 2})
	f.forgetIf(1, failureCount{calls: 1})
	if f.of(1).calls != 2 || f.n.Load() != 1 {
		t.Error("forgotten")
	}
	f.forgetIf(1, failureCount{calls: 2})
	f.forgetIf(1, failureCount{})
	if f.of(1).calls != 0 || f.n.Load() != 0 {
		t.Error("not forgotten")
	}
}
