package compat

import (
	"math"
	"runtime"
	"testing"
	"time"

	peer "k8s.io/client-go/util/workqueue"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
)

// delays returns what the limiters of both packages say to the nth failure of a key.
func delays(base, limit time.Duration, n int) (theirs, ours time.Duration) {
	t := peer.NewTypedItemExponentialFailureRateLimiter[string](base, limit)
	o := workqueue.NewTypedItemExponentialFailureRateLimiter[string](base, limit)
	for range n {
		theirs, ours = t.When("a"), o.When("a")
	}
	return theirs, ours
}

// TestDelaysAgree shows what the next test does not: where nothing is at its end, the delays are the
// same to the nanosecond.
func TestDelaysAgree(t *testing.T) {
	for _, base := range []time.Duration{1, 3, 5 * time.Millisecond, time.Hour} {
		for _, limit := range []time.Duration{0, 1, 1000 * time.Second, 24 * time.Hour} {
			for n := 1; n < 60; n++ {
				if theirs, ours := delays(base, limit, n); theirs != ours {
					t.Errorf("base %v, limit %v, failure %d: client-go %v, ours %v", base, limit, n, theirs, ours)
				}
			}
		}
	}
}

// TestDelaysAtTheEnd: client-go computes delays in floating point. A delay that is one too large for a
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
