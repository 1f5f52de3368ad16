package kubetest

import (
	"maps"
	"testing"
)

// Times are left out of the measure: what looks like a time in its name and its value, and nothing else.
func TestTimesAreNotMeasured(t *testing.T) {
	const now = "2026-11-29T10:00:00Z"
	measured := map[string]any{"runtime": "containerd", "lifetime": int64(3), "uptime": "3h", "time": "never",
		"name": now, "deletionTimestamp": now}
	content := maps.Clone(measured)
	maps.Copy(content, map[string]any{"lastTransitionTime": now, "creationTimestamp": nil, "renewTime": now,
		"uid": "1", "observedGeneration": int64(2)})
	withoutTimes(content)
	measured["deletionTimestamp"] = "set"
	if !maps.Equal(content, measured) {
		t.Errorf("%v is measured, want %v", content, measured)
	}
}
