//go:build race

package priorityqueue_test

// raceEnabled tells the tests that measure memory that the race detector would measure itself.
const raceEnabled = true
