//go:build race

package workqueuetest

const raceEnabled = true
