package wait_test

import (
	"context"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/keyedqueue/workqueue/wait"
)

const most = time.Duration(math.MaxInt64)

// take returns the next n delays.
func take(n int, next func() time.Duration) []time.Duration {
	var delays []time.Duration
	for range n {
		delays = append(delays, next())
	}
	return delays
}

func equalDelays(t *testing.T, what string, got, want []time.Duration) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: delays %v, want %v", what, got, want)
	}
}

func TestBackoffSequence(t *testing.T) {
	tests := []struct {
		name  string
		b     wait.Backoff
		want  []time.Duration
		steps int // left after them
	}{
		{"cap ends the steps", wait.Backoff{Duration: 10, Factor: 2, Steps: 9, Cap: 50},
			[]time.Duration{10, 20, 40, 50, 50}, 0},
		{"cap equal to the next delay does not end them", wait.Backoff{Duration: 10, Factor: 2, Steps: 9, Cap: 40},
			[]time.Duration{10, 20}, 7},

		{"truncates", wait.Backoff{Duration: 3, Factor: 0.5, Steps: 9}, []time.Duration{3, 1, 0}, 6},

		// Beyond apimachinery, with which peers/compat compares all else.
		{"negative duration", wait.Backoff{Duration: -10, Factor: 2, Steps: 9}, []time.Duration{0, 0}, 7},
		{"negative duration, no steps", wait.Backoff{Duration: -10}, []time.Duration{0, 0}, 0},
		{"negative duration, jitter", wait.Backoff{Duration: -10, Jitter: 3}, []time.Duration{0, 0}, 0},
		{"negative factor", wait.Backoff{Duration: 10, Factor: -2, Steps: 9, Cap: 5}, []time.Duration{10, 10}, 7},
		{"factor is no number", wait.Backoff{Duration: 10, Factor: math.NaN(), Steps: 9},
			[]time.Duration{10, 10}, 7},
		{"jitter is no number", wait.Backoff{Duration: 10, Factor: 2, Steps: 9, Jitter: math.NaN()},
			[]time.Duration{10, 20}, 7},
		{"overflow", wait.Backoff{Duration: 1 << 61, Factor: 2, Steps: 9},
			[]time.Duration{1 << 61, 1 << 62, most, most, most}, 4},
		{"overflow at once", wait.Backoff{Duration: 1, Factor: math.Inf(1), Steps: 9},
			[]time.Duration{1, most, most}, 6},
		{"overflow of nothing", wait.Backoff{Duration: 0, Factor: math.Inf(1), Steps: 9}, []time.Duration{0, 0}, 7},
		{"overflow is capped", wait.Backoff{Duration: 1 << 62, Factor: 4, Steps: 9, Cap: 1<<62 + 1},
			[]time.Duration{1 << 62, 1<<62 + 1, 1<<62 + 1}, 0},
		{"jitter overflows", wait.Backoff{Duration: most, Jitter: 1e9}, []time.Duration{most, most}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := tt.b
			equalDelays(t, "DelayFunc", take(len(tt.want), b.DelayFunc()), tt.want)
			equalDelays(t, "Step", take(len(tt.want), b.Step), tt.want)
			if b.Steps != tt.steps {
				t.Errorf("%d steps left, want %d", b.Steps, tt.steps)
			}
		})
	}
}

func TestStepOfNil(t *testing.T) {
	var b *wait.Backoff
	if d := b.Step(); d != 0 {
		t.Errorf("Step() = %v, want 0", d)
	}
}

// TestJitters: each addition is within bounds and drawn anew, and they do not add up.
func TestJitters(t *testing.T) {
	const n = 200
	b := wait.Backoff{Duration: time.Second, Factor: 1, Jitter: 0.5, Steps: n}
	c := newTimerClock()
	all := map[string][]time.Duration{"Step": take(n, b.Step)}
	for name, m := range map[string]wait.BackoffManager{
		"NewJitteredBackoffManager": wait.NewJitteredBackoffManager(time.Second, 0.5, c),
		"NewExponentialBackoffManager": wait.NewExponentialBackoffManager(time.Second, time.Second, time.Minute, 1,
			0.5, c),
	} {
		all[name] = take(n, func() time.Duration { return c.pause(m) })
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		last := time.Now()
		wait.JitterUntilWithContext(ctx, func(got context.Context) {
			if got != ctx {
				t.Error("f was given another context")
			}
			pauses := all["JitterUntilWithContext"]
			if now := time.Now(); now != last { // not in the first call
				pauses, last = append(pauses, now.Sub(last)), now
			}
			if all["JitterUntilWithContext"] = pauses; len(pauses) == n {
				cancel()
			}
		}, time.Second, 0.5, true)
	})
	for name, pauses := range all {
		low, high := slices.Min(pauses), slices.Max(pauses)
		// The chance that a uniform draw fails the second and third is 2 · 0.8^200, 8e-20.
		if low < time.Second || low > 1100*time.Millisecond || high < 1400*time.Millisecond ||
			high > 1500*time.Millisecond {
			t.Errorf("%s: pauses between %v and %v, want 1s to 1.5s", name, low, high)
		}
	}
	if b.Duration != time.Second {
		t.Errorf("jitter has changed the duration to %v", b.Duration)
	}
}

func TestJitter(t *testing.T) {
	tests := []struct {
		d         time.Duration
		factor    float64
		low, high time.Duration
	}{
		{time.Second, 0.25, time.Second, 1250 * time.Millisecond},
		{time.Second, 3, time.Second, 4 * time.Second},
		{time.Second, 0, time.Second, 2 * time.Second},
		{time.Second, -4, time.Second, 2 * time.Second},
		{time.Second, math.NaN(), time.Second, 2 * time.Second},
		{0, 5, 0, 0},
		{-time.Second, 1, 0, 0},
		{most, 1, most, most},
		{1 << 62, 1e300, 1 << 62, most},
	}
	for _, tt := range tests {
		low, high := most, time.Duration(0)
		for range 200 {
			d := wait.Jitter(tt.d, tt.factor)
			low, high = min(low, d), max(high, d)
		}
		if low < tt.low || high > tt.high {
			t.Errorf("Jitter(%v, %g) between %v and %v, want %v to %v", tt.d, tt.factor, low, high, tt.low, tt.high)
		}
		// 200 draws miss the upper half of their range with a chance of 2^-200.
		if middle := tt.low + (tt.high-tt.low)/2; high < middle {
			t.Errorf("Jitter(%v, %g) at most %v of %v", tt.d, tt.factor, high, tt.high)
		}
	}
}

func TestDelayWithResetDegenerate(t *testing.T) {
	grows := wait.Backoff{Duration: 1, Factor: 2, Steps: 10}
	for name, next := range map[string]wait.DelayFunc{
		"no interval":       grows.DelayWithReset(nil, 0),
		"negative interval": grows.DelayWithReset(nil, -1),
		"no factor":         wait.Backoff{Duration: 1, Steps: 10}.DelayWithReset(nil, time.Hour),
		"negative factor":   wait.Backoff{Duration: 1, Factor: -1, Steps: 10}.DelayWithReset(nil, time.Hour),
	} {
		equalDelays(t, name, take(3, next), []time.Duration{1, 1, 1})
	}
}

// TestSharedDelays lets goroutines share one sequence. Under the race detector it
// fails if the sequence is not guarded; without, if a delay is lost or given twice.
func TestSharedDelays(t *testing.T) {
	const goroutines, each = 4, 10
	b := wait.Backoff{Duration: 1, Factor: 2, Steps: goroutines * each}
	still := b
	still.Factor = 0
	fakeClock := testingclock.NewFakeClock(time.Unix(0, 0))
	for name, next := range map[string]wait.DelayFunc{
		"Concurrent":                   b.DelayFunc().Concurrent(),
		"DelayWithReset":               b.DelayWithReset(fakeClock, time.Hour),
		"DelayWithReset, no factor":    still.DelayWithReset(fakeClock, time.Hour),
		"DelayWithReset, no intervals": b.DelayWithReset(fakeClock, 0),
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var all []time.Duration
			var group wait.Group
			for range goroutines {
				group.Start(func() {
					for range each {
						d := next()
						mu.Lock()
						all = append(all, d)
						mu.Unlock()
					}
				})
			}
			group.Wait()
			if all[0] == slices.Max(all) {
				return // the constant ones
			}
			slices.Sort(all)
			equalDelays(t, "all", all, take(len(all), b.DelayFunc()))
		})
	}
}

// A panic of the function blocks no other caller.
func TestConcurrentAfterAPanic(t *testing.T) {
	panics := true
	next := wait.DelayFunc(func() time.Duration {
		if panics {
			panics = false
			panic("broken")
		}
		return time.Second
	}).Concurrent()
	func() {
		defer func() { _ = recover() }()
		next()
	}()
	returned := make(chan time.Duration)
	go func() { returned <- next() }()
	select {
	case d := <-returned:
		if d != time.Second {
			t.Errorf("the second call returns %v", d)
		}
	case <-time.After(time.Minute):
		t.Fatal("the second call blocks")
	}
}

func TestDelaysDoNotAllocate(t *testing.T) {
	b := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 1 << 30, Cap: time.Hour}
	next := b.DelayFunc()
	shared := next.Concurrent()
	reset := b.DelayWithReset(nil, time.Nanosecond)
	for name, f := range map[string]func(){
		"Step":           func() { b.Step() },
		"DelayFunc":      func() { next() },
		"Concurrent":     func() { shared() },
		"DelayWithReset": func() { reset() },
		"Jitter":         func() { wait.Jitter(time.Second, 1) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

// TestExponentialBackoffTriesBeforeContext: without tries there is nothing to cancel.
func TestExponentialBackoffTriesBeforeContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	never := func(context.Context) (bool, error) { t.Error("called"); return true, nil }
	if err := wait.ExponentialBackoffWithContext(ctx, wait.Backoff{}, never); err != wait.ErrWaitTimeout {
		t.Errorf("without steps: %v", err)
	}
	if err := wait.ExponentialBackoffWithContext(ctx, wait.Backoff{Steps: 1}, never); err != context.Canceled {
		t.Errorf("with steps: %v", err)
	}
}
