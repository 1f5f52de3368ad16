package workqueue

import (
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/internal/expiring"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
)

// limiterEpoch is where the fake clocks of the limiters' tests begin.
var limiterEpoch = time.Date(2026, time.March, 1, 0, 0, 0, 0, time.UTC)

func newPassiveClock() *testingclock.FakePassiveClock {
	return testingclock.NewFakePassiveClock(limiterEpoch)
}

func stepClock(c *testingclock.FakePassiveClock, d time.Duration) { c.SetTime(c.Now().Add(d)) }

// expiringLimiter is a limiter with its clock and the table of its keys, which die with the key i that failed
// once within the given time.
type expiringLimiter struct {
	TypedRateLimiter[int]
	c    *testingclock.FakePassiveClock
	keys *expiring.Keys[int, uint32]
	life time.Duration
}

func everyExpiringLimiter(t *testing.T, f func(*testing.T, expiringLimiter)) {
	for _, jitter := range []Jitter{NoJitter, FullJitter} {
		t.Run("backoff,"+jitter.String(), func(t *testing.T) {
			c := newPassiveClock()
			l := NewTypedItemBackoffRateLimiter(BackoffConfig[int]{
				Base: time.Second, Max: time.Hour, Jitter: jitter, ForgetAfter: 4 * time.Second, Clock: c,
			}).(*itemBackoffRateLimiter[int])
			f(t, expiringLimiter{l, c, &l.keys, 7 * time.Second})
		})
	}
}

func heapBytes() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // the first one takes the weak pointers of the table's stash
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A key a millisecond fails once, and is never forgotten by its caller (kubernetes/kubernetes#138743).
func TestExpiringLimitersStayBounded(t *testing.T) {
	everyExpiringLimiter(t, func(t *testing.T, l expiringLimiter) {
		const n = 100_000
		before := heapBytes()
		most := 0
		for i := range n {
			l.When(i)
			stepClock(l.c, time.Millisecond)
			most = max(most, l.keys.Table.Len())
		}
		grown := heapBytes() - before
		if bound := int(l.life / time.Millisecond); most > bound {
			t.Errorf("%d keys at a time, want no more than %d", most, bound)
		}
		if grown > 4<<20 {
			t.Errorf("%d keys have left %d bytes", n, grown)
		}
		t.Logf("%d of %d keys at a time, %d bytes are left", most, n, grown)
		runtime.KeepAlive(l)
	})
}

// Keys that failed at the same time, long ago, are dropped by the next hundred calls for one other key.
func TestExpiringLimitersRecoverFromBurst(t *testing.T) {
	everyExpiringLimiter(t, func(t *testing.T, l expiringLimiter) {
		const n = 300_000
		before := heapBytes()
		for i := range n {
			l.When(i)
		}
		if l.keys.Table.Len() != n {
			t.Fatalf("%d keys in the table, want %d", l.keys.Table.Len(), n)
		}
		stepClock(l.c, l.life)
		calls := 0
		for l.keys.Table.Len() > 1 {
			l.When(-1)
			if calls++; calls > 100 {
				t.Fatalf("%d keys are left after %d calls", l.keys.Table.Len(), calls)
			}
		}
		if grown := heapBytes() - before; grown > 1<<20 {
			t.Errorf("%d keys have left %d bytes", n, grown)
		}
		runtime.KeepAlive(l)
	})
}

// Keys come, fail and expire all the time.
func TestLimitersDoNotAllocate(t *testing.T) {
	everyExpiringLimiter(t, func(t *testing.T, l expiringLimiter) {
		i := 0
		call := func() {
			l.When(i)
			l.When(i / 2)
			l.NumRequeues(i)
			if i%5 == 0 {
				l.Forget(i - 1)
			}
			stepClock(l.c, l.life/1000)
			i++
		}
		for range 5000 {
			call()
		}
		if n := testing.AllocsPerRun(5000, call); n != 0 {
			t.Errorf("%v allocations a run", n)
		}
	})
}

// readCounter counts the readings of a clock.
type readCounter struct {
	clock.PassiveClock
	n int
}

func (c *readCounter) Now() time.Time {
	c.n++
	return c.PassiveClock.Now()
}

// A program in which no key fails, and that forgets each of them, does not pay for reading the clock.
func TestLimitersWithoutKeysDoNotReadTheClock(t *testing.T) {
	c := &readCounter{PassiveClock: newPassiveClock()}
	for name, l := range map[string]TypedRateLimiter[int]{
		"backoff": NewTypedItemBackoffRateLimiter(BackoffConfig[int]{Clock: c}),
	} {
		before := c.n
		l.Forget(1)
		l.NumRequeues(1)
		l.(RequeueLister[int]).Requeued()
		if c.n != before {
			t.Errorf("%s: the clock is read %d times", name, c.n-before)
		}
		l.When(1)
		l.Forget(1)
		if c.n == before {
			t.Errorf("%s: the clock is not read when a key has failed", name)
		}
	}
}

// Forget of a limiter that counts no failures any more takes no lock.
func TestForgetAfterTheLastKey(t *testing.T) {
	l := NewTypedItemExponentialFailureRateLimiter[int](1, 2).(*TypedItemExponentialFailureRateLimiter[int])
	for _, step := range []struct {
		call func(int)
		key  int
		some bool
	}{
		{func(key int) { l.When(key) }, 1, true}, {func(key int) { l.When(key) }, 2, true},
		{l.Forget, 2, true}, {l.Forget, 2, true}, {l.Forget, 1, false},
	} {
		if step.call(step.key); l.some.Load() != step.some {
			t.Errorf("with %d keys, some = %v", l.failureCounts.keys.Len(), !step.some)
		}
	}
}

// limiterModel is the obvious slow limiter: it has a map, and no heap.
type limiterModel interface {
	when(key int) time.Duration
	requeues(key int) int
	forget(key int)
	// expires returns when the limiter may drop key, or forever if it need not know key or never drops it.
	expires(key int) time.Duration
}

// modelTime is the time of a limiterModel.
type modelTime struct{ now time.Duration }

const scriptKeys = 4

// scripted runs script, two bytes a call, on a limiter and its model, which must agree at every step.
func scripted(t rapid.TB, script []byte, c *testingclock.FakePassiveClock, keys *expiring.Keys[int, uint32],
	l TypedRateLimiter[int], m limiterModel, now *modelTime) {
	t.Helper()
	elapse := func(d time.Duration) {
		stepClock(c, d)
		keys.TickLocked() // Two steps between readings, forth and back, would count as one.
		now.now += min(max(d, 0), expiring.Horizon-now.now)
	}
	for i := 0; i+1 < len(script); i += 2 {
		key, arg := int(script[i]>>4)%scriptKeys, script[i+1]
		switch script[i] % 16 {
		default: // more than half of the calls
			if got, want := l.When(key), m.when(key); got != want {
				t.Fatalf("call %d at %v: When(%d) = %d, want %d", i/2, now.now, key, got, want)
			}
		case 9:
			l.Forget(key)
			m.forget(key)
		case 10, 11: // a step of any size
			elapse(math.MaxInt64>>(arg%64) - time.Duration(arg>>6))
		case 12: // back
			elapse(-time.Duration(1) << (arg % 63))
		case 13, 14, 15: // to the very moment of a change, or just before or after it
			if at := m.expires(key); at != expiring.Forever && at > now.now {
				elapse(at - now.now + time.Duration(arg%3) - 1)
			}
		}
		if got, want := l.NumRequeues(key), m.requeues(key); got != want {
			t.Fatalf("call %d at %v: NumRequeues(%d) = %d, want %d", i/2, now.now, key, got, want)
		}
		if err := checkExpiring(keys); err != nil {
			t.Fatalf("call %d at %v: %v", i/2, now.now, err)
		}
	}
}

// checkExpiring returns an error if an invariant of k does not hold.
func checkExpiring[T comparable, V any](k *expiring.Keys[T, V]) error {
	if k.Now < 0 || k.Now > expiring.Horizon || k.Order.Len() != k.Table.Len() {
		return fmt.Errorf("now is %d, %d keys are in order of %d", k.Now, k.Order.Len(), k.Table.Len())
	}
	for e := range k.Order.InOrder() {
		key := k.Table.At(e.Slot).Key
		expires := time.Duration(e.Rank)
		if s, _ := k.Table.Find(keytable.HashOf(key), key); s != e.Slot || expires != expiring.Forever &&
			expires-k.Now >= expiring.Horizon {
			return fmt.Errorf("key %v of slot %d is found in slot %d, expires at %d, now is %d", key, e.Slot, s,
				expires, k.Now)
		}
	}
	return nil
}
