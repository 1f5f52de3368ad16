package worker

import "testing"

// A key that has failed again since it was found to be stale is not forgotten.
func TestForgetIf(t *testing.T) {
	var f failures[int]
	f.mu.failing.max = 1
	f.add(1, FailedCall{}, failureCount{calls: 2})
	f.forgetIf(1, func(c failureCount) bool { return c.calls == 1 })
	if f.countOf(1).calls != 2 || f.numFailing.Load() != 1 {
		t.Error("forgotten")
	}
	f.forgetIf(1, func(c failureCount) bool { return c.calls == 2 })
	if f.countOf(1).calls != 0 || f.numFailing.Load() != 0 || f.numKnown.Load() != 0 {
		t.Error("not forgotten")
	}
}
