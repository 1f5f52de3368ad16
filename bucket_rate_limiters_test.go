package workqueue

import (
	"math"
	"testing"
	"time"

	"golang.org/x/time/rate"
)

// On a fake clock, the bucket is the one of x/time/rate.
func TestBucketOnFakeClock(t *testing.T) {
	c := newPassiveClock()
	l, twin := NewTypedBucketRateLimiter[string](rate.NewLimiter(10, 2), c), rate.NewLimiter(10, 2)
	for i, step := range []time.Duration{0, 0, 0, 50 * ms, 50 * ms, time.Hour, 0, 0} {
		stepClock(c, step)
		want := twin.ReserveN(c.Now(), 1).DelayFrom(c.Now())
		if d := l.When("key"); d != want {
			t.Errorf("delay %d = %v, want %v", i, d, want)
		}
		if l.Forget("key"); l.NumRequeues("key") != 0 { // gives no token back
			t.Errorf("NumRequeues = %d", l.NumRequeues("key"))
		}
	}
	if n := testing.AllocsPerRun(1000, func() { l.When("key") }); n != 0 {
		t.Errorf("%v allocations a run", n)
	}
}

func TestBucketEdges(t *testing.T) {
	for name, c := range map[string]struct {
		limiter *rate.Limiter
		want    []time.Duration
	}{
		"nil":                   {nil, []time.Duration{0, 0, 0}},
		"zero":                  {&rate.Limiter{}, []time.Duration{math.MaxInt64}},
		"burst 0":               {rate.NewLimiter(1, 0), []time.Duration{math.MaxInt64, math.MaxInt64}},
		"limit 0":               {rate.NewLimiter(0, 1), []time.Duration{0, math.MaxInt64, math.MaxInt64}},
		"infinite":              {rate.NewLimiter(rate.Inf, 0), []time.Duration{0, 0}},
		"negative burst":        {rate.NewLimiter(1, -1), []time.Duration{math.MaxInt64}},
		"once a hundred years":  {rate.NewLimiter(rate.Every(100*365*24*time.Hour), 1), []time.Duration{0}},
		"not a number, 1 token": {rate.NewLimiter(rate.Limit(math.NaN()), 1), []time.Duration{0}},
	} {
		l := NewTypedBucketRateLimiter[string](c.limiter, newPassiveClock())
		for i, want := range c.want {
			if d := l.When("key"); d != want {
				t.Errorf("%s: delay %d = %d, want %d", name, i, d, want)
			}
		}
		for range 100 {
			if d := l.When("key"); d < 0 {
				t.Errorf("%s: delay %d", name, d)
			}
		}
	}
	if d := NewTypedBucketRateLimiter[string](rate.NewLimiter(1, 1), nil).When("key"); d != 0 {
		t.Errorf("nil clock: first delay = %v", d)
	}
}
