//go:build !race

package testkit

// RaceEnabled reports whether the race detector is on. It allocates memory of its own, so tests that measure
// memory skip themselves.
const RaceEnabled = false
