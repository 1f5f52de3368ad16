package workqueue

import (
	"math"
	"math/big"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

// limiterModel is the obvious slow limiter: no table, no lists, no rounding before the end and no
// overflow.
type limiterModel interface {
	when(key int) time.Duration
	requeues(key int) int
	forget(key int)
	// expires returns when the limiter may drop key, or nil if it need not know key or never drops it.
	expires(key int) *big.Int
}

// modelTime is the time of a limiterModel in nanoseconds.
type modelTime struct{ now big.Int }

func (m *modelTime) after(d *big.Int) *big.Int { return new(big.Int).Add(&m.now, d) }

const scriptKeys = 4

// scripted runs script, two bytes a call, on a limiter and its model, which must agree at every step.
func scripted(t interface {
	Helper()
	Fatalf(string, ...any)
}, script []byte, c *testingclock.FakePassiveClock, keys *expiringKeys[int], l TypedRateLimiter[int], m limiterModel, now *modelTime) {
	t.Helper()
	elapse := func(d time.Duration) {
		stepClock(c, d)
		l.Forget(scriptKeys) // Reads the clock: a step between two readings back and forth does not count.
		if d > 0 {
			now.now.Add(&now.now, big.NewInt(int64(d)))
			if end := big.NewInt(int64(horizon)); now.now.Cmp(end) > 0 {
				now.now.Set(end)
			}
		}
	}
	for i := 0; i+1 < len(script); i += 2 {
		key, arg := int(script[i]>>4)%scriptKeys, script[i+1]
		switch script[i] % 16 {
		default: // more than half of the calls
			if got, want := l.When(key), m.when(key); got != want {
				t.Fatalf("call %d at %v: When(%d) = %d, want %d", i/2, &now.now, key, got, want)
			}
		case 9:
			l.Forget(key)
			m.forget(key)
		case 10, 11: // a step of any size
			elapse(math.MaxInt64>>(arg%64) - time.Duration(arg>>6))
		case 12: // back
			elapse(-time.Duration(1) << (arg % 63))
		case 13, 14, 15: // to the very moment of a change, or just before or after it
			at := m.expires(key)
			if at == nil {
				continue
			}
			if d := at.Sub(at, &now.now); d.IsInt64() && d.Sign() > 0 {
				elapse(time.Duration(d.Int64()) + time.Duration(arg%3) - 1)
			}
		}
		if got, want := l.NumRequeues(key), m.requeues(key); got != want {
			t.Fatalf("call %d at %v: NumRequeues(%d) = %d, want %d", i/2, &now.now, key, got, want)
		}
		if err := keys.checkInvariants(); err != nil {
			t.Fatalf("call %d at %v: %v", i/2, &now.now, err)
		}
	}
}
