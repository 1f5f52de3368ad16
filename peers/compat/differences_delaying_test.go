package compat

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	peer "k8s.io/client-go/util/workqueue"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/keyedqueue/workqueue"
)

// delayingQueues returns an empty delaying queue of each package, on one clock.
func delayingQueues[T comparable](clock *testingclock.FakeClock) (theirs, ours peer.TypedDelayingInterface[T]) {
	theirs = peer.NewTypedDelayingQueueWithConfig(peer.TypedDelayingQueueConfig[T]{Clock: clock})
	ours = workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[T]{Clock: clock})
	return theirs, ours
}

// loops returns how many goroutines of the bubble run code of the package with that path for themselves,
// and not because a test called it.
func loops(path string) (n int) {
	synctest.Wait()
	own := make([]byte, 1<<10)
	own = own[:runtime.Stack(own, false)]
	_, bubble, _ := strings.Cut(strings.SplitN(string(own), "\n", 2)[0], "synctest bubble ")
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		state, _, _ := strings.Cut(stack, "\n")
		// A queue that failed a case of the conformance suite may have left some in other bubbles.
		if strings.HasSuffix(state, "synctest bubble "+bubble) &&
			strings.Contains(stack, "\n"+path+".(") && !strings.Contains(stack, "/peers/compat.") {
			n++
		}
	}
	return n
}

// TestIdleGoroutines (kubernetes/kubernetes#94811, kubernetes/kubernetes#134323): a delaying queue of
// client-go has a goroutine from the start. Ours has one while a key waits.
func TestIdleGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := testingclock.NewFakeClock(epoch)
		theirs, ours := delayingQueues[string](clock)
		if n := loops(peerPath); n != 1 {
			t.Errorf("client-go: %d goroutines, want 1", n)
		}
		if n := loops(ourPath); n != 0 {
			t.Errorf("ours: %d goroutines, want none", n)
		}
		ours.AddAfter("a", time.Second)
		if n := loops(ourPath); n != 1 {
			t.Errorf("ours: %d goroutines while a key waits, want 1", n)
		}
		clock.Step(time.Second)
		if n := loops(ourPath); n != 0 {
			t.Errorf("ours: %d goroutines after a key has waited, want none", n)
		}
		theirs.ShutDown()
		ours.ShutDown()
	})
}

// TestLoopAfterDrain (kubernetes/kubernetes#134323): a drain leaves client-go's waiting loop behind,
// until its next look at the queue, which is up to ten seconds later. It ends ours at once.
func TestLoopAfterDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := testingclock.NewFakeClock(epoch)
		theirs, ours := delayingQueues[string](clock)
		for _, q := range []peer.TypedDelayingInterface[string]{theirs, ours} {
			q.AddAfter("a", time.Hour)
			synctest.Wait()
			q.ShutDownWithDrain()
		}
		if n := loops(ourPath); n != 0 {
			t.Errorf("ours: %d goroutines after the drain, want none", n)
		}
		for _, want := range []int{1, 0} {
			if n := loops(peerPath); n != want {
				t.Errorf("client-go: %d goroutines %v after the drain, want %d", n, clock.Since(epoch), want)
			}
			clock.Step(10 * time.Second)
		}
	})
}

// TestSecondShutDown: only the first ShutDown of a delaying queue of client-go reaches the queue below, so
// a drain that came after it cannot be ended. Any ShutDown ends a drain of ours.
func TestSecondShutDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		theirs, ours := delayingQueues[string](testingclock.NewFakeClock(epoch))
		for _, q := range []peer.TypedDelayingInterface[string]{theirs, ours} {
			q.Add("a")
			key, _ := q.Get()
			q.ShutDown()
			ended := began(q.ShutDownWithDrain)
			if ended.Load() {
				t.Error("the drain does not wait for the key that is held")
			}
			q.ShutDown()
			synctest.Wait()
			if q == theirs && ended.Load() {
				t.Error("client-go: the second ShutDown ended the drain")
			}
			if q == ours && !ended.Load() {
				t.Error("ours: the second ShutDown did not end the drain")
			}
			q.Done(key)
		}
	})
}

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
// While the queue below keeps the loop waiting, the next AddAfter does, too. Ours never blocks.
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
			return began(func() {
				for key := range keys {
					q.AddAfter(key, time.Duration(1+key)*time.Millisecond)
				}
			}).Load()
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

// TestUnhashableKey: client-go finds out in its own goroutine that AddAfter was called with a key that
// cannot be hashed, and ends the process. If that is turned off, no key comes any more. Ours panics
// where the mistake is, and nothing else happens.
func TestUnhashableKey(t *testing.T) {
	crash, handlers := utilruntime.ReallyCrash, utilruntime.PanicHandlers
	defer func() { utilruntime.ReallyCrash, utilruntime.PanicHandlers = crash, handlers }()
	synctest.Test(t, func(t *testing.T) {
		crashes := 0
		utilruntime.ReallyCrash = false
		utilruntime.PanicHandlers = []func(context.Context, any){func(context.Context, any) { crashes++ }}

		clock := testingclock.NewFakeClock(epoch)
		theirs, ours := delayingQueues[any](clock)
		if panicks(func() { theirs.AddAfter([]string{"unhashable"}, time.Second) }) {
			t.Error("client-go: AddAfter panicked")
		}
		synctest.Wait()
		if crashes != 1 {
			t.Errorf("client-go: %d goroutines panicked, want 1", crashes)
		}
		if !panicks(func() { ours.AddAfter([]string{"unhashable"}, time.Second) }) {
			t.Error("ours: AddAfter did not panic")
		}
		for _, q := range []peer.TypedDelayingInterface[any]{theirs, ours} {
			q.AddAfter("a", time.Second)
			synctest.Wait()
		}
		clock.Step(time.Minute)
		synctest.Wait()
		if n := theirs.Len(); n != 0 {
			t.Errorf("client-go: %d keys came, want none", n)
		}
		if n := ours.Len(); n != 1 {
			t.Errorf("ours: %d keys came, want 1", n)
		}
		theirs.ShutDown()
		ours.ShutDown()
	})
}
