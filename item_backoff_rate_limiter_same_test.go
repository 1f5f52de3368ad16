package workqueue_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
)

// failure is a call of a limiter at a time, and what becomes of it.
type failure struct {
	at, delay time.Duration
	requeues  int
}

func wantFailures(t *testing.T, l workqueue.TypedRateLimiter[string], c *testingclock.FakeClock,
	failures ...failure) {
	t.Helper()
	for _, f := range failures {
		c.SetTime(testkit.Epoch.Add(f.at))
		if d := l.When("key"); d != f.delay {
			t.Errorf("at %v: When() = %v, want %v", f.at, d, f.delay)
		}
		if n := l.NumRequeues("key"); n != f.requeues {
			t.Errorf("at %v: NumRequeues() = %d, want %d", f.at, n, f.requeues)
		}
	}
}

const second = time.Second

func bySecond(c *testingclock.FakeClock) workqueue.TypedRateLimiter[string] {
	return workqueue.NewTypedItemBackoffRateLimiter(workqueue.BackoffConfig[string]{Base: second,
		Max: 10 * second, Clock: c})
}

// A call that fails before the delay of the failure before it has passed is the same failure.
func TestSameFailure(t *testing.T) {
	c := testkit.NewFakeClock()
	l := bySecond(c)
	wantFailures(t, l, c,
		failure{0, second, 1}, failure{0, second, 1}, failure{second - 1, 1, 1},
		failure{second, 2 * second, 2}, failure{2 * second, second, 2}, failure{3*second - 1, 1, 2},
		failure{4 * second, 4 * second, 3}, failure{5 * second, 3 * second, 3}, failure{5 * second, 3 * second, 3},
	)
	l.When("another")
	l.Forget("key")
	wantFailures(t, l, c, failure{5 * second, second, 1})
	if n := l.NumRequeues("another"); n != 1 {
		t.Errorf("NumRequeues of the other key = %d", n)
	}
	// A clock that is set back does not make the delay longer than it was.
	c.SetTime(testkit.Epoch)
	if d := l.When("key"); d != second {
		t.Errorf("after the clock was set back: %v", d)
	}
}

// A key without end, and one that is kept forever, have their delays too.
func TestSameFailureOfKeysThatAreKept(t *testing.T) {
	c := testkit.NewFakeClock()
	l := workqueue.NewTypedItemBackoffRateLimiter(workqueue.BackoffConfig[string]{Base: second,
		ForgetAfter: math.MaxInt64, Clock: c})
	wantFailures(t, l, c, failure{0, second, 1}, failure{second / 4, 3 * second / 4, 1},
		failure{second, 2 * second, 2},
		failure{century / 4, 4 * second, 3}, failure{century/4 + second, 3 * second, 3})
	l = workqueue.NewTypedItemBackoffRateLimiter(workqueue.BackoffConfig[string]{Base: second,
		ForgetAfter: math.MaxInt64, Clock: c, Bucket: rate.NewLimiter(1, 0)})
	wantFailures(t, l, c, failure{century / 4, math.MaxInt64, 1})
	c.Step(century / 4)
	if d := l.When("key"); d < century || l.NumRequeues("key") != 1 {
		t.Errorf("When() = %v of a key that is never to come", d)
	}
}

// The same failure takes no token, also if it is the bucket that makes the key wait.
func TestSameFailureTakesNoToken(t *testing.T) {
	c := testkit.NewFakeClock()
	tokens := rate.NewLimiter(rate.Every(32*second), 2)
	l := workqueue.NewTypedItemBackoffRateLimiter(workqueue.BackoffConfig[string]{Base: second,
		Max: 10 * second, Clock: c, Bucket: tokens})
	wantFailures(t, l, c, failure{0, second, 1}, failure{0, second, 1}, failure{second / 2, second / 2, 1},
		failure{second, 2 * second, 2},      // the second token
		failure{3 * second, 29 * second, 3}, // the token of 32 s; the key's own delay is 4 s
		failure{31 * second, second, 3},
		failure{32 * second, 32 * second, 4})
	if left := tokens.TokensAt(c.Now()); left < -1.01 || left > -.99 {
		t.Errorf("%v tokens are left, want -1", left)
	}
}

// NewTypedControllerRateLimiter has the numbers of client-go's default.
func TestControllerRateLimiter(t *testing.T) {
	c := testkit.NewFakeClock()
	l, theirs := workqueue.NewTypedControllerRateLimiter[int](c),
		workqueue.DefaultTypedControllerRateLimiter[int]()
	for range 25 {
		d := l.When(1)
		if want := theirs.When(1); d != want {
			t.Errorf("When() = %v, client-go's default says %v", d, want)
		}
		c.Step(d)
	}
	synctest.Test(t, func(t *testing.T) { // their bucket has the real clock
		l, theirs := workqueue.NewTypedControllerRateLimiter[int](nil),
			workqueue.DefaultTypedControllerRateLimiter[int]()
		for key := range 200 {
			if d, want := l.When(key), theirs.When(key); d != want {
				t.Errorf("When(%d) = %v, client-go's default says %v", key, d, want)
			}
		}
	})
}

// Base and Max of a key come from a function. What it leaves out is that of all.
func TestBackoffForKey(t *testing.T) {
	c := testkit.NewFakeClock()
	calls := 0
	for _, jitter := range []workqueue.Jitter{workqueue.NoJitter, workqueue.EqualJitter} {
		var l workqueue.TypedRateLimiter[string]
		l = workqueue.NewTypedItemBackoffRateLimiter(workqueue.BackoffConfig[string]{
			Base: second, Max: 4 * second, Jitter: jitter, Clock: c,
			ForKey: func(key string) (base, longest time.Duration) {
				calls++
				l.NumRequeues(key) // No lock is held.
				switch key {
				case "quick":
					return second / 10, second / 5
				case "slow":
					return time.Minute, time.Hour
				case "later":
					return 2 * second, 0
				case "short":
					return 0, second / 2
				case "odd":
					return -5, -5
				}
				return 0, 0
			},
		})
		for key, want := range map[string][]time.Duration{
			"quick": {second / 10, second / 5, second / 5},
			"slow": {60 * second, 120 * second, 240 * second, 480 * second, 960 * second, 1920 * second,
				3600 * second, 3600 * second},
			"later": {2 * second, 4 * second, 4 * second},
			"short": {second / 2, second / 2},
			"odd":   {second, 2 * second, 4 * second, 4 * second},
			"none":  {second, 2 * second, 4 * second, 4 * second},
		} {
			for i, w := range want {
				d := l.When(key)
				low, high := w, w
				if jitter == workqueue.EqualJitter {
					low = w / 2
				}
				if d < low || d > high {
					t.Errorf("%v, %s: delay %d = %v, want %v to %v", jitter, key, i, d, low, high)
				}
				c.Step(d - 1)
				if left := l.When(key); left != 1 {
					t.Errorf("%v, %s: %v is left of delay %d", jitter, key, left, i)
				}
				c.Step(1)
			}
		}
	}
	if calls != 2*2*24 {
		t.Errorf("%d calls", calls)
	}
}
