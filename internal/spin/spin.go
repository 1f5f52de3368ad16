// Package spin takes a mutex from somebody who is about to give it back.
package spin

import (
	"runtime"
	"sync"
)

const (
	tries = 10
	// stepsBetween are steps of busy between two tries, some hundred nanoseconds together. With fewer of them, two
	// processors pass the memory of the mutex, and all that it guards, to and fro with every critical section.
	stepsBetween = 400
)

// TryLock locks mu, or gives up after a few microseconds and returns false. It is for critical sections of some
// ten nanoseconds, of which many callers on all processors have one after the other.
//
// A [sync.Mutex] spins too, but only if its processor has no other goroutine to run. Otherwise it puts the
// caller to sleep, and to do that and to wake it again takes longer than many such sections.
func TryLock(mu *sync.Mutex) bool {
	for range tries {
		if mu.TryLock() {
			return true
		}
		busy(stepsBetween)
	}
	return false
}

// busy takes n steps, each of which needs the result of the one before.
func busy(n int) {
	x := uint32(0)
	for range n {
		x = x*1664525 + 1013904223
	}
	runtime.KeepAlive(x) // or a compiler may take the steps for superfluous
}
