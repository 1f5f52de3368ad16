package compat

import (
	"context"
	"math"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	peer "k8s.io/client-go/util/workqueue"
	testingclock "k8s.io/utils/clock/testing"
	crpriority "sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
)

// The tests in this file show client-go doing one thing and us another, beyond what knownOfClientGo lists. Each
// is a difference that the documentation describes, and that a program may depend on when it changes its import
// path.

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

// delays returns what the limiters of both packages say to the nth failure of a key.
func delays(base, limit time.Duration, n int) (theirs, ours time.Duration) {
	t := peer.NewTypedItemExponentialFailureRateLimiter[string](base, limit)
	o := workqueue.NewTypedItemExponentialFailureRateLimiter[string](base, limit)
	for range n {
		theirs, ours = t.When("a"), o.When("a")
	}
	return theirs, ours
}

// TestDelaysAtTheEnd: client-go computes delays in floating point. (TestDifferential has other delays.) A delay that is one too large for a
// Duration becomes what the processor makes of it, on amd64 a negative number, and the key of a
// controller that backs off comes back at once, again and again. Ours are exact or the limit.
func TestDelaysAtTheEnd(t *testing.T) {
	const limit = 1000 * time.Second
	for _, tt := range []struct {
		name         string
		base, limit  time.Duration
		failure      int
		theirs, ours time.Duration
		amd64        bool // theirs is so on this kind of processor
	}{
		// 2^63 is not greater than math.MaxInt64 when both are floating-point numbers.
		{"63 doublings", 1, limit, 64, math.MinInt64, limit, true},
		{"60 doublings of 8", 8, limit, 61, math.MinInt64, limit, true},
		// 0 times infinity is no number.
		{"no base, 1024 doublings", 0, limit, 1025, math.MinInt64, 0, true},
		{"more digits than a float64 has", 1<<53 + 1, math.MaxInt64, 1, 1 << 53, 1<<53 + 1, false},
		{"negative base", -time.Second, limit, 1, -time.Second, 0, false},
		{"negative limit", time.Second, -limit, 1, -limit, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			theirs, ours := delays(tt.base, tt.limit, tt.failure)
			if ours != tt.ours {
				t.Errorf("ours: %v, want %v", ours, tt.ours)
			}
			if theirs != tt.theirs && (!tt.amd64 || runtime.GOARCH == "amd64") {
				t.Errorf("client-go: %v, want %v", theirs, tt.theirs)
			}
		})
	}
}

// TestZeroLimiters: the zero values of client-go's limiters panic at the first failure. Ours never delay.
func TestZeroLimiters(t *testing.T) {
	for name, l := range map[string][2]peer.TypedRateLimiter[string]{
		"exponential": {
			new(peer.TypedItemExponentialFailureRateLimiter[string]),
			new(workqueue.TypedItemExponentialFailureRateLimiter[string]),
		},
		"fast and slow": {
			new(peer.TypedItemFastSlowRateLimiter[string]),
			new(workqueue.TypedItemFastSlowRateLimiter[string]),
		},
	} {
		if testkit.PanicOf(func() { l[0].When("a") }) == nil {
			t.Errorf("client-go: %s does not panic", name)
		}
		if d := l[1].When("a"); d != 0 || l[1].NumRequeues("a") != 1 {
			t.Errorf("ours: %s says %v, and counts %d failures", name, d, l[1].NumRequeues("a"))
		}
	}
}

// TestNoLimiter: a queue of client-go without a limiter panics when a key fails. Ours has the default one.
func TestNoLimiter(t *testing.T) {
	theirs := peer.NewTypedRateLimitingQueue[string](nil)
	ours := workqueue.NewTypedRateLimitingQueue[string](nil)
	defer theirs.ShutDown()
	defer ours.ShutDown()
	if testkit.PanicOf(func() { theirs.AddRateLimited("a") }) == nil {
		t.Error("client-go: AddRateLimited does not panic")
	}
	ours.AddRateLimited("a")
	if n := ours.NumRequeues("a"); n != 1 {
		t.Errorf("ours: %d requeues, want 1", n)
	}
}

// TestOneLineMends: a key is broken for ten seconds, during which an event every 50 ms adds it. With the
// peers' default limiters it succeeds a quarter of an hour after its repair, because each event doubles its
// delay (kubernetes/kubernetes#132805). With ours in their queues it succeeds as if there were no events.
func TestOneLineMends(t *testing.T) {
	for name, tt := range map[string]struct {
		queue    func() peer.TypedRateLimitingInterface[string]
		min, max time.Duration
	}{
		"client-go": {func() peer.TypedRateLimitingInterface[string] {
			return peer.NewTypedRateLimitingQueue(peer.DefaultTypedControllerRateLimiter[string]())
		}, 15 * time.Minute, 17 * time.Minute},
		"client-go, our limiter": {func() peer.TypedRateLimitingInterface[string] {
			return peer.NewTypedRateLimitingQueue[string](workqueue.NewTypedControllerRateLimiter[string](nil))
		}, 0, 10 * time.Second},
		"controller-runtime": {func() peer.TypedRateLimitingInterface[string] {
			return crpriority.New[string]("")
		}, 15 * time.Minute, 17 * time.Minute},
		"controller-runtime, our limiter": {func() peer.TypedRateLimitingInterface[string] {
			return crpriority.New("", func(o *crpriority.Opts[string]) {
				o.RateLimiter = workqueue.NewTypedControllerRateLimiter[string](nil)
			})
		}, 0, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := tt.queue()
				repair := time.Now().Add(10 * time.Second)
				ctx, succeeded := context.WithCancel(t.Context())
				go func() {
					for {
						key, shutdown := q.Get()
						if shutdown {
							return
						}
						if time.Now().Before(repair) {
							q.AddRateLimited(key)
						} else {
							q.Forget(key)
							succeeded()
						}
						q.Done(key)
					}
				}()
				for time.Now().Before(repair) {
					q.Add("key")
					time.Sleep(50 * time.Millisecond)
				}
				<-ctx.Done()
				if late := time.Since(repair); late < tt.min || late > tt.max {
					t.Errorf("succeeded %v after the repair, want %v to %v", late, tt.min, tt.max)
				}
				q.ShutDown()
			})
		})
	}
}
