package compat

import (
	"testing"
	"testing/synctest"
	"time"

	peer "k8s.io/client-go/util/workqueue"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
)

// The tests in this file and in differences_limiter_test.go show client-go doing one thing and us another,
// beyond what knownOfClientGo lists. Each is a difference that the documentation describes, and that a
// program may depend on when it changes its import path.

// slowQueue is a queue whose Add takes as long as the test says.
type slowQueue struct {
	peer.TypedInterface[int]
	gate chan struct{}
}

func (q slowQueue) Add(key int) {
	<-q.gate
	q.TypedInterface.Add(key)
}

// TestAddAfterBlocks: client-go hands keys to its waiting loop over a channel with room for a thousand.
// While the queue below keeps the loop waiting, the next AddAfter also waits. Ours never blocks.
func TestAddAfterBlocks(t *testing.T) {
	const keys = 1200
	synctest.Test(t, func(t *testing.T) {
		clock := testingclock.NewFakeClock(epoch)
		gate := make(chan struct{})
		theirs := peer.NewTypedDelayingQueueWithConfig(peer.TypedDelayingQueueConfig[int]{
			Clock: clock, Queue: slowQueue{peer.NewTyped[int](), gate},
		})
		ours := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[int]{
			Clock: clock, Queue: slowQueue{workqueue.NewTyped[int](), gate},
		})
		fill := func(q peer.TypedDelayingInterface[int]) (ended bool) {
			q.AddAfter(0, time.Millisecond)
			synctest.Wait()
			clock.Step(time.Millisecond)
			all := testkit.Start(func() bool {
				for key := range keys {
					q.AddAfter(key, time.Duration(1+key)*time.Millisecond)
				}
				return true
			})
			synctest.Wait()
			return all.Returned()
		}
		if fill(theirs) {
			t.Error("client-go: AddAfter did not block")
		}
		if !fill(ours) {
			t.Error("ours: AddAfter blocks")
		}
		close(gate)
		synctest.Wait()
		clock.Step(keys * time.Millisecond)
		synctest.Wait()
		for _, q := range []peer.TypedDelayingInterface[int]{theirs, ours} {
			if n := q.Len(); n != keys {
				t.Errorf("%d keys came, want %d", n, keys)
			}
			q.ShutDown()
		}
	})
}

// TestLongestRunningAfterJump: when the clock was set back while keys were held, client-go looks for the
// key with the longest time by the new clock. Ours takes the key that was handed out first, which it
// knows without looking. No clock of the standard library goes back while a process runs.
func TestLongestRunningAfterJump(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup{Named: true}
		theirs, ours := newTheirs(s, stringKeys()), newOurs(s, stringKeys())
		for _, q := range []*subject[string]{theirs, ours} {
			synctest.Wait() // until the clock ticks for client-go
			q.queue.Add("key0")
			q.queue.Add("key1")
			q.queue.Get()
			q.clock.SetTime(epoch.Add(-time.Minute))
			q.queue.Get()
			q.clock.SetTime(epoch.Add(time.Hour))
			synctest.Wait()
			q.queue.ShutDown()
		}
		const unfinished = 2*3600 + 60
		theirs.metrics.Want(t, "client-go", testkit.Values{"longest": 3660, "unfinished": unfinished})
		ours.metrics.Want(t, "ours", testkit.Values{"longest": 3600, "unfinished": unfinished})
	})
}

// metered returns a queue of each package with these metrics.
func metered(provider workqueue.MetricsProvider) (theirs, ours peer.TypedInterface[string]) {
	theirs = peer.NewTypedWithConfig(peer.TypedQueueConfig[string]{Name: "metered",
		MetricsProvider: theirProvider{provider}})
	ours = workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: "metered",
		MetricsProvider: provider})
	return theirs, ours
}

// TestMetricIsMissing: a provider that leaves a metric out makes every Add to client-go's queue panic.
func TestMetricIsMissing(t *testing.T) {
	theirs, ours := metered(&testkit.Recorder{LeaveOut: "depth"})
	defer theirs.ShutDown()
	defer ours.ShutDown()
	if testkit.PanicOf(func() { theirs.Add("a") }) == nil {
		t.Error("client-go: Add did not panic")
	}
	if v := testkit.PanicOf(func() { ours.Add("a") }); v != nil || ours.Len() != 1 {
		t.Errorf("ours: Add panicked with %v, queued: %d, want 1", v, ours.Len())
	}
}
