//go:build !race

package worker_test

// raceEnabled reports that the race detector is on, which itself takes memory.
const raceEnabled = false
