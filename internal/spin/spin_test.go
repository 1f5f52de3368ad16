package spin

import (
	"sync"
	"testing"
	"time"
)

func TestTryLock(t *testing.T) {
	var mu sync.Mutex
	if !TryLock(&mu) {
		t.Error("a mutex that is free is not locked")
	}
	start := time.Now()
	if TryLock(&mu) {
		t.Error("a mutex is locked twice")
	}
	// The time of one cycle a step, on a processor of 10 GHz.
	if took := time.Since(start); took < tries*stepsBetween*time.Nanosecond/10 {
		t.Errorf("gave up after %v", took)
	}
	mu.Unlock()
}

// What many goroutines do under the lock is not lost, whether they got it here or, having given up, from Lock.
func TestTryLockExcludes(t *testing.T) {
	var mu sync.Mutex
	var done sync.WaitGroup
	const goroutines, rounds = 8, 10_000
	n, gotIt := 0, 0
	for range goroutines {
		done.Go(func() {
			for range rounds {
				got := TryLock(&mu)
				if !got {
					mu.Lock()
				}
				n++
				if got {
					gotIt++
				}
				mu.Unlock()
			}
		})
	}
	done.Wait()
	if n != goroutines*rounds {
		t.Errorf("%d of %d increments", n, goroutines*rounds)
	}
	if gotIt == 0 {
		t.Error("nobody got the lock here")
	}
}
