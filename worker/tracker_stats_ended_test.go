package worker

import (
	"bytes"
	"context"
	"testing"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
)

// The Stats with Ended are the last ones: Stats that are being read while the last call is counted, and then
// Run returns, either do not say Ended or have the call. The test holds the lock that they wait for, and does
// what the pool would.
func TestStatsWithEndedHaveTheLastCall(t *testing.T) {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	p := New(queue, func(context.Context, string) error { return nil }, Options[string]{})
	p.mu.Lock()
	stats := make(chan Stats)
	go func() { stats <- p.Stats() }()
	testkit.Eventually(t, "Stats waits for a lock", func() bool {
		for goroutine := range bytes.SplitSeq(testkit.Stacks(), []byte("\n\n")) {
			if bytes.Contains(goroutine, []byte("readStats")) && bytes.Contains(goroutine, []byte("sync.Mutex.Lock")) {
				return true
			}
		}
		return false
	})
	p.tracker.mu.Lock()
	p.tracker.mu.counted.Handled++
	p.tracker.mu.Unlock()
	p.mu.phase = phaseReturned
	p.mu.Unlock()
	if s := <-stats; !s.Ended || s.Handled != 1 {
		t.Errorf("ended: %v, %d calls", s.Ended, s.Handled)
	}
}
