package workqueue

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/internal/expiring"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
)

const ms = time.Millisecond

func TestItemBackoffDelays(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for name, c := range map[string]struct {
		config BackoffConfig[string]
		want   []time.Duration
	}{
		"zero": {BackoffConfig[string]{}, []time.Duration{5 * ms, 10 * ms, 20 * ms, 40 * ms, 80 * ms}},
		"max": {BackoffConfig[string]{Base: 200 * time.Second},
			[]time.Duration{200e9, 400e9, 800e9, 1000e9, 1000e9}},
		"cap": {BackoffConfig[string]{Base: ms, Max: 5 * ms}, []time.Duration{1 * ms, 2 * ms, 4 * ms,
			5 * ms, 5 * ms}},
		"1.5": {BackoffConfig[string]{Base: 1, Max: 100, Factor: 1.5},
			[]time.Duration{1, 1, 2, 3, 5, 7, 11, 17, 25, 38, 57, 86, 100}},
		"3": {BackoffConfig[string]{Base: 7, Max: 1000, Factor: 3},
			[]time.Duration{7, 21, 63, 189, 567, 1000}},
		"1":        {BackoffConfig[string]{Base: 7, Max: 1000, Factor: 1}, []time.Duration{7, 7, 7}},
		"0.5":      {BackoffConfig[string]{Base: 7, Max: 1000, Factor: .5}, []time.Duration{7, 7, 7}},
		"-2":       {BackoffConfig[string]{Base: 7, Max: 1000, Factor: -2}, []time.Duration{7, 7, 7}},
		"-Inf":     {BackoffConfig[string]{Base: 7, Max: 1000, Factor: -inf}, []time.Duration{7, 7, 7}},
		"Inf":      {BackoffConfig[string]{Base: 7, Max: 1000, Factor: inf}, []time.Duration{7, 1000, 1000}},
		"1e308":    {BackoffConfig[string]{Base: 7, Max: 1e9, Factor: 1e308}, []time.Duration{7, 1e9, 1e9}},
		"NaN":      {BackoffConfig[string]{Base: 7, Max: 1000, Factor: nan}, []time.Duration{7, 14, 28}},
		"base>max": {BackoffConfig[string]{Base: 2000, Max: 1000}, []time.Duration{1000, 1000}},
		"base=max": {BackoffConfig[string]{Base: 1000, Max: 1000}, []time.Duration{1000, 1000}},
		"max<5ms":  {BackoffConfig[string]{Max: 1000}, []time.Duration{1000, 1000}},
		"negative": {BackoffConfig[string]{Base: -1, Max: -1, ForgetAfter: -1, Factor: -1},
			[]time.Duration{5 * ms, 5 * ms}},
		"min": {BackoffConfig[string]{Base: math.MinInt64, Max: math.MinInt64}, []time.Duration{5 * ms, 10 * ms}},
		"huge": {
			BackoffConfig[string]{Base: 1<<62 - 1, Max: math.MaxInt64, ForgetAfter: math.MaxInt64},
			[]time.Duration{1<<62 - 1},
		},
		"no such jitter": {BackoffConfig[string]{Jitter: 200}, []time.Duration{5 * ms, 10 * ms}},
	} {
		t.Run(name, func(t *testing.T) {
			clock := newPassiveClock()
			c.config.Clock = clock
			l := NewTypedItemBackoffRateLimiter(c.config)
			for round := range 2 {
				l.When("another")
				for i, want := range c.want {
					if got := l.When("key"); got != want {
						t.Errorf("round %d: delay %d = %d, want %d", round, i, got, want)
					}
					if n := l.NumRequeues("key"); n != i+1 {
						t.Errorf("round %d: NumRequeues = %d after %d failures", round, n, i+1)
					}
					stepClock(clock, want)
				}
				l.Forget("key")
				if n := l.NumRequeues("key"); n != 0 {
					t.Errorf("NumRequeues = %d after Forget", n)
				}
			}
			if n := l.NumRequeues("another"); c.want[0] < time.Minute && n != 2 {
				t.Errorf("NumRequeues of the other key = %d, want 2", n)
			}
		})
	}
}

// The ceilings are those of the formula in exact arithmetic, within the rounding of float64.
func TestItemBackoffCeilings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(1, math.MaxInt64).Draw(t, "max")
		base := rapid.Int64Range(1, limit).Draw(t, "base")
		factor := rapid.OneOf(
			rapid.Float64Range(1, 4), rapid.Float64Range(1, math.MaxFloat64),
			rapid.SampledFrom([]float64{1.5, 2, 3, 1.25, 10}),
		).Draw(t, "factor")
		l := NewTypedItemBackoffRateLimiter(BackoffConfig[int]{
			Base: time.Duration(base), Max: time.Duration(limit), Factor: factor,
		}).(*itemBackoffRateLimiter[int])
		exact := new(big.Rat).SetInt64(base)
		by := new(big.Rat).SetFloat64(factor)
		for n := range 60 {
			if got, want := l.ceiling(n, factor), wholeUpTo(exact, limit); !isClose(got, want) {
				t.Fatalf("ceiling(%d) = %d, want %d", n, got, want)
			}
			exact.Mul(exact, by)
		}
	})
}

// isClose allows for the rounding of float64.
func isClose(got, want time.Duration) bool { return (got - want).Abs() <= 1+want>>40 }

// wholeUpTo returns the whole part of d, or limit if d is above it.
func wholeUpTo(d *big.Rat, limit int64) time.Duration {
	whole := new(big.Int).Quo(d.Num(), d.Denom())
	if whole.Cmp(big.NewInt(limit)) >= 0 {
		return time.Duration(limit)
	}
	return time.Duration(whole.Int64())
}

// A key's failures stop being counted before they turn negative on any platform.
func TestItemBackoffCountsToMaxInt32(t *testing.T) {
	c := newPassiveClock()
	l := NewTypedItemBackoffRateLimiter(BackoffConfig[int]{Clock: c}).(*itemBackoffRateLimiter[int])
	l.When(1)
	l.keys.Table.At(1).Value = math.MaxInt32 - 1
	for range 3 {
		stepClock(c, 1000*time.Second)
		if d := l.When(1); d != 1000*time.Second || l.NumRequeues(1) != math.MaxInt32 {
			t.Errorf("When = %v, NumRequeues = %d", d, l.NumRequeues(1))
		}
	}
}

// The two ends of what the formulas allow are possible.
func TestItemBackoffJitterEnds(t *testing.T) {
	for _, c := range []struct {
		jitter    Jitter
		max       time.Duration
		low, high time.Duration
	}{
		{FullJitter, 1000, 0, 1000},
		{EqualJitter, 1000, 500, 1000},
		{EqualJitter, 1001, 501, 1001},
		{EqualJitter, 1, 1, 1},
		{FullJitter, math.MaxInt64, 0, math.MaxInt64},
		{EqualJitter, math.MaxInt64, 1 << 62, math.MaxInt64},
	} {
		l := NewTypedItemBackoffRateLimiter(BackoffConfig[int]{Base: c.max, Max: c.max,
			Jitter: c.jitter}).(*itemBackoffRateLimiter[int])
		l.random = func(uint64) uint64 { return 0 }
		if d := l.When(0); d != c.low {
			t.Errorf("%v up to %d: %d, want %d", c.jitter, c.max, d, c.low)
		}
		l.random = func(n uint64) uint64 { return n - 1 }
		if d := l.When(1); d != c.high {
			t.Errorf("%v up to %d: %d, want %d", c.jitter, c.max, d, c.high)
		}
	}
}

// backoffModel is the formula of BackoffConfig, taken literally, with the limiter's own ceilings.
// (TestItemBackoffCeilings compares these with exact products.)
type backoffModel struct {
	*modelTime
	config  BackoffConfig[int] // without zeros
	rand    *rand.Rand
	keys    map[int]*backoffModelKey
	ceiling func(failures int) time.Duration
}

type backoffModelKey struct {
	failures int
	gone     time.Duration
}

func newBackoffModel(config BackoffConfig[int], r *rand.Rand) *backoffModel {
	if config.Max <= 0 {
		config.Max = 1000 * time.Second
	}
	if config.Base <= 0 {
		config.Base = 5 * ms
	}
	config.Base = min(config.Base, config.Max)
	if config.ForgetAfter <= 0 {
		config.ForgetAfter = expiring.Forever
		if config.Max <= expiring.Forever/2 {
			config.ForgetAfter = max(2*config.Max, 10*time.Minute)
		}
	}
	config.ForgetAfter = min(config.ForgetAfter, maxForgetAfter)
	l := NewTypedItemBackoffRateLimiter(config).(*itemBackoffRateLimiter[int])
	return &backoffModel{
		modelTime: &modelTime{}, config: config, rand: r, keys: map[int]*backoffModelKey{},
		ceiling: func(failures int) time.Duration { return l.ceiling(failures, l.factor) },
	}
}

func (m *backoffModel) find(key int) *backoffModelKey {
	k := m.keys[key]
	if k == nil || k.gone <= m.now {
		k = &backoffModelKey{gone: expiring.Forever}
		m.keys[key] = k
	}
	return k
}

func (m *backoffModel) when(key int) time.Duration {
	k := m.find(key)
	if left := k.gone - m.config.ForgetAfter - m.now; k.failures > 0 && left > 0 {
		return left
	}
	high := m.ceiling(k.failures)
	low := high
	switch m.config.Jitter {
	case FullJitter:
		low = 0
	case EqualJitter:
		low = high - high/2
	}
	if m.config.Jitter >= FullJitter && m.config.Jitter <= EqualJitter {
		low += time.Duration(m.rand.Uint64N(uint64(high-low) + 1))
	}
	k.failures++
	k.gone = expiring.Forever
	if m.config.ForgetAfter < expiring.Horizon-min(low, expiring.Horizon) {
		k.gone = m.now + low + m.config.ForgetAfter
	}
	return low
}

func (m *backoffModel) requeues(key int) int { return m.find(key).failures }
func (m *backoffModel) forget(key int)       { delete(m.keys, key) }

// expires alternates between the two moments at which something changes.
func (m *backoffModel) expires(key int) time.Duration {
	if k := m.find(key); k.gone == expiring.Forever || m.now >= k.gone-m.config.ForgetAfter {
		return k.gone
	} else {
		return k.gone - m.config.ForgetAfter
	}
}

func checkItemBackoff(t rapid.TB, config BackoffConfig[int], seed uint64, script []byte) {
	t.Helper()
	c := newPassiveClock()
	config.Clock = c
	l := NewTypedItemBackoffRateLimiter[int](config).(*itemBackoffRateLimiter[int])
	l.random = rand.New(rand.NewPCG(seed, 0)).Uint64N
	m := newBackoffModel(config, rand.New(rand.NewPCG(seed, 0)))
	scripted(t, script, c, &l.keys, l, m, m.modelTime)
}

func TestItemBackoffModel(t *testing.T) {
	duration := rapid.OneOf(rapid.Int64Range(-1, 1000), rapid.Int64Range(1, 1e12), rapid.Int64())
	rapid.Check(t, func(t *rapid.T) {
		checkItemBackoff(t, BackoffConfig[int]{
			Base:        time.Duration(duration.Draw(t, "base")),
			Max:         time.Duration(duration.Draw(t, "max")),
			Factor:      rapid.OneOf(rapid.Float64Range(0, 4), rapid.Float64()).Draw(t, "factor"),
			Jitter:      Jitter(rapid.Uint8Range(0, 3).Draw(t, "jitter")),
			ForgetAfter: time.Duration(duration.Draw(t, "forgetAfter")),
		}, rapid.Uint64().Draw(t, "seed"), rapid.SliceOfN(rapid.Byte(), 200, 600).Draw(t, "script"))
	})
}

func FuzzItemBackoff(f *testing.F) {
	f.Add(int64(1), int64(1000), 2.0, uint8(FullJitter), int64(10), uint64(1), []byte("0000@@PP0000"))
	f.Add(int64(5e6), int64(1e12), 1.5, uint8(EqualJitter), int64(0), uint64(2),
		[]byte{0, 0, 0, 0, 13, 0, 13, 1, 13, 2, 0, 0})
	f.Add(int64(math.MaxInt64), int64(math.MaxInt64), math.Inf(1), uint8(EqualJitter), int64(math.MaxInt64),
		uint64(3), []byte{0, 0, 10, 62, 0, 0, 10, 62, 10, 62, 0, 0})
	f.Add(int64(-1), int64(math.MinInt64), math.NaN(), uint8(9), int64(-1), uint64(4),
		[]byte{0, 0, 12, 62, 0, 0, 9, 0})
	f.Fuzz(func(t *testing.T, base, longest int64, factor float64, jitter uint8, forgetAfter int64, seed uint64,
		script []byte) {
		checkItemBackoff(t, BackoffConfig[int]{
			Base: time.Duration(base), Max: time.Duration(longest), Factor: factor,
			Jitter: Jitter(jitter), ForgetAfter: time.Duration(forgetAfter),
		}, seed, script[:min(len(script), 1000)])
	})
}

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
		t.Run("backoff,"+fmt.Sprint(jitter), func(t *testing.T) {
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

// onlyBucket returns a limiter whose own delay is a nanosecond.
func onlyBucket(bucket *rate.Limiter, c clock.PassiveClock) TypedRateLimiter[string] {
	return NewTypedItemBackoffRateLimiter(BackoffConfig[string]{Max: 1, Bucket: bucket, Clock: c})
}

// On a fake clock, the bucket is the one of x/time/rate.
func TestBucketOnFakeClock(t *testing.T) {
	c := newPassiveClock()
	l, twin := onlyBucket(rate.NewLimiter(10, 2), c), rate.NewLimiter(10, 2)
	for i, step := range []time.Duration{0, 0, 0, 50 * ms, 50 * ms, time.Hour, 0, 0} {
		stepClock(c, step)
		want := max(1, twin.ReserveN(c.Now(), 1).DelayFrom(c.Now()))
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
		l := onlyBucket(c.limiter, newPassiveClock())
		for i, want := range c.want {
			if d := l.When(fmt.Sprint(i)); d != max(1, want) {
				t.Errorf("%s: delay %d = %d, want %d", name, i, d, max(1, want))
			}
		}
		for i := range 100 {
			if d := l.When(fmt.Sprint(i)); d < 0 {
				t.Errorf("%s: delay %d", name, d)
			}
		}
	}
}
