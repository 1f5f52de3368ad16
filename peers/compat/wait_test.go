//lint:file-ignore SA1019 deprecated functions are compared too

package compat

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	peer "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/keyedqueue/workqueue/wait"
)

// randomWaitBackoff returns a configuration as programs have them, with odd values mixed
// in. Values that this library treats otherwise than its peer, and says so, are left
// out: negative durations and factors, and what is not a number.
func randomWaitBackoff(random *rand.Rand) wait.Backoff {
	pick := func(choices ...float64) float64 { return choices[random.IntN(len(choices))] }
	b := wait.Backoff{
		Duration: time.Duration(random.Int64N(1 << random.IntN(50))),
		Factor:   pick(0, 0.5, 1, 1, 1.1, 1.5, 2, 2, 3, 10, 4*random.Float64(), 100*random.Float64()),
		Jitter:   pick(0, 0, 0, -1, 0.1, 1, 3*random.Float64()),
		Steps:    int(pick(-1, 0, 1, 2, 3, 5, 10, 30, math.MaxInt32)),
	}
	switch random.IntN(4) {
	case 0:
		b.Cap = b.Duration + time.Duration(random.Int64N(1+int64(b.Duration)*100))
	case 1:
		b.Cap = time.Duration(random.Int64N(1 << random.IntN(55)))
	case 2:
		b.Cap = -1
	}
	return b
}

// waitOverflows reports whether the next step is beyond what the peer can compute.
func waitOverflows(b peer.Backoff) bool {
	return b.Steps > 0 && float64(b.Duration)*b.Factor >= math.MaxInt64 ||
		float64(b.Duration)*(1+max(b.Jitter, 0)) >= math.MaxInt64
}

// sameWaitDelay fails t unless got and want may be the same delay. due is the part that is not
// random.
func sameWaitDelay(t *testing.T, got, want, due time.Duration, jitter float64) {
	t.Helper()
	if jitter <= 0 {
		if got != want {
			t.Fatalf("delay %d, want %d", got, want)
		}
		return
	}
	longest := due + time.Duration(float64(due)*jitter)
	if got < due || got > longest {
		t.Fatalf("delay %d, want one from %d to %d", got, due, longest)
	}
}

// manyWaitBackoffs calls f with n random configurations, and names the failing one.
func manyWaitBackoffs(t *testing.T, n int, f func(random *rand.Rand, b wait.Backoff)) {
	t.Helper()
	random := rand.New(rand.NewPCG(20, 26))
	var b wait.Backoff
	defer func() {
		if t.Failed() {
			t.Logf("with %+v", b)
		}
	}()
	for range n {
		b = randomWaitBackoff(random)
		f(random, b)
	}
}

func TestWaitBackoffSteps(t *testing.T) {
	compared := 0
	manyWaitBackoffs(t, 20_000, func(_ *rand.Rand, b wait.Backoff) {
		theirs := peer.Backoff(b)
		ours, function, theirFunction := b, b.DelayFunc(), theirs.DelayFunc()
		for range 40 {
			if waitOverflows(theirs) {
				return
			}
			due := theirs.Duration
			want := theirs.Step()
			sameWaitDelay(t, ours.Step(), want, due, b.Jitter)
			if peer.Backoff(ours) != theirs {
				t.Fatalf("left %+v, want %+v", ours, theirs)
			}
			theirFunction()
			sameWaitDelay(t, function(), want, due, b.Jitter)
			compared++
		}
	})
	if compared < 400_000 {
		t.Errorf("compared only %d steps", compared)
	}
}

func TestWaitDelayWithReset(t *testing.T) {
	compared := 0
	manyWaitBackoffs(t, 5_000, func(random *rand.Rand, b wait.Backoff) {
		b.Jitter = min(b.Jitter, 0)
		c := testingclock.NewFakeClock(time.Unix(0, 0))
		interval := time.Duration(random.Int64N(100)) - 5
		ours := b.DelayWithReset(c, interval)
		theirs := peer.Backoff(b).DelayWithReset(c, interval)
		for range 60 {
			c.Step(time.Duration(random.Int64N(12)))
			want := theirs()
			if got := ours(); want >= 0 && got != want { // a negative one has overflowed
				t.Fatalf("interval %d: delay %d, want %d", interval, got, want)
			} else if want < 0 || want > math.MaxInt64/128 {
				return
			}
			compared++
		}
	})
	if compared < 200_000 {
		t.Errorf("compared only %d delays", compared)
	}
}

// waitTrace is what a loop does: when it calls, when it returns, and what.
type waitTrace struct {
	calls []time.Duration
	ends  time.Duration
	err   string
}

type waitCondition = func(context.Context) (bool, error)

// TestWaitLoops compares when the loops call, and when and with what they return, in
// virtual time, with random periods, running times and ends. A context ends at an odd
// time and all else happens at even ones: of two things at the same moment select, and
// so the peer, would take either.
func TestWaitLoops(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 8))
	for range 1_000 {
		var (
			period    = 2 * time.Duration(1+random.Int64N(1000))
			work      = make([]time.Duration, 5)
			limit     = 2*time.Duration(random.Int64N(8000)) + 1
			doneAfter = random.IntN(30)
			immediate = random.IntN(2) == 0
			sliding   = random.IntN(2) == 0
			backoff   = wait.Backoff{
				Duration: period,
				Factor:   float64(random.IntN(4)),
				Steps:    random.IntN(8) - 1,
				Cap:      2 * time.Duration(random.Int64N(5000)),
			}
		)
		for i := range work {
			if random.IntN(2) == 0 {
				work[i] = 2 * time.Duration(random.Int64N(2000))
			}
		}
		failure := error(nil)
		if random.IntN(2) == 0 {
			failure = fmt.Errorf("failed")
		}

		loops := map[string]struct {
			ours, theirs func(ctx context.Context, ask waitCondition) error
		}{
			"JitterUntilWithContext": {
				func(ctx context.Context, ask waitCondition) error {
					wait.JitterUntilWithContext(ctx, func(ctx context.Context) { ask(ctx) }, period, 0, sliding)
					return nil
				},
				func(ctx context.Context, ask waitCondition) error {
					peer.JitterUntilWithContext(ctx, func(ctx context.Context) { ask(ctx) }, period, 0, sliding)
					return nil
				},
			},
			"BackoffUntil": {
				func(ctx context.Context, ask waitCondition) error {
					m := wait.NewExponentialBackoffManager(period, 4*period, time.Hour, 2, 0, clock.RealClock{})
					wait.BackoffUntil(func() { ask(ctx) }, m, sliding, ctx.Done())
					return nil
				},
				func(ctx context.Context, ask waitCondition) error {
					m := peer.NewExponentialBackoffManager(period, 4*period, time.Hour, 2, 0, clock.RealClock{})
					peer.BackoffUntil(func() { ask(ctx) }, m, sliding, ctx.Done())
					return nil
				},
			},
			"PollUntilContextCancel": {
				func(ctx context.Context, ask waitCondition) error {
					return wait.PollUntilContextCancel(ctx, period, immediate, ask)
				},
				func(ctx context.Context, ask waitCondition) error {
					return peer.PollUntilContextCancel(ctx, period, immediate, ask)
				},
			},
			"PollUntilContextTimeout": {
				func(ctx context.Context, ask waitCondition) error {
					return wait.PollUntilContextTimeout(ctx, period, limit-2, immediate, ask)
				},
				func(ctx context.Context, ask waitCondition) error {
					return peer.PollUntilContextTimeout(ctx, period, limit-2, immediate, ask)
				},
			},
			"DelayFunc.Until": {
				func(ctx context.Context, ask waitCondition) error {
					return backoff.DelayFunc().Until(ctx, immediate, sliding, ask)
				},
				func(ctx context.Context, ask waitCondition) error {
					return peer.Backoff(backoff).DelayFunc().Until(ctx, immediate, sliding, ask)
				},
			},
			"ExponentialBackoffWithContext": {
				func(ctx context.Context, ask waitCondition) error {
					return wait.ExponentialBackoffWithContext(ctx, backoff, ask)
				},
				func(ctx context.Context, ask waitCondition) error {
					return peer.ExponentialBackoffWithContext(ctx, peer.Backoff(backoff), ask)
				},
			},
			"ExponentialBackoff": {
				func(ctx context.Context, ask waitCondition) error {
					return wait.ExponentialBackoff(backoff, func() (bool, error) { return ask(ctx) })
				},
				func(ctx context.Context, ask waitCondition) error {
					return peer.ExponentialBackoff(peer.Backoff(backoff), func() (bool, error) { return ask(ctx) })
				},
			},
		}
		for name, loop := range loops {
			record := func(loop func(context.Context, waitCondition) error) (r waitTrace) {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					defer cancel()
					begin := time.Now()
					err := loop(ctx, func(context.Context) (bool, error) {
						r.calls = append(r.calls, time.Since(begin))
						n := len(r.calls)
						time.Sleep(work[n%len(work)])
						if n < doneAfter {
							return false, nil
						}
						return failure == nil, failure
					})
					r.ends = time.Since(begin)
					r.err = fmt.Sprint(err, peer.Interrupted(err) || wait.Interrupted(err))
				})
				return r
			}
			got, want := record(loop.ours), record(loop.theirs)
			if !slices.Equal(got.calls, want.calls) || got.ends != want.ends || got.err != want.err {
				t.Fatalf(
					"%s, period %d, work %d, limit %d, immediate %t, sliding %t, %+v:\n\tcalls at %d, returns %s at %d\nwant\n\tcalls at %d, returns %s at %d",
					name, period, work, limit, immediate, sliding, backoff,
					got.calls, got.err, got.ends, want.calls, want.err, want.ends)
			}
		}
	}
}
