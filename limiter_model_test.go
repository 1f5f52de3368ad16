package workqueue

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/time/rate"
	testingclock "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
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
		keys.tick() // Two steps between readings, forth and back, would count as one.
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

// backoffModel is the formula of BackoffConfig, taken literally.
type backoffModel struct {
	*modelTime
	base, longest int64
	factor        float64
	jitter        Jitter
	forgetAfter   int64
	rand          *rand.Rand
	keys          map[int]*backoffModelKey
	ceilings      []time.Duration
}

type backoffModelKey struct {
	failures int
	last     time.Duration
	gone     *big.Int // nil: never
}

func newBackoffModel(config BackoffConfig, r *rand.Rand) *backoffModel {
	m := &backoffModel{
		modelTime: &modelTime{}, base: int64(config.Base), longest: int64(config.Max), factor: config.Factor,
		jitter: config.Jitter, forgetAfter: int64(config.ForgetAfter), rand: r, keys: map[int]*backoffModelKey{},
	}
	if m.longest <= 0 {
		m.longest = 1000e9
	}
	if m.base <= 0 {
		m.base = 5e6
	}
	m.base = min(m.base, m.longest)
	if m.factor == 0 || math.IsNaN(m.factor) {
		m.factor = 2
	}
	return m
}

func (m *backoffModel) find(key int) *backoffModelKey {
	k := m.keys[key]
	if k == nil || k.gone != nil && k.gone.Cmp(&m.now) <= 0 {
		k = &backoffModelKey{last: time.Duration(m.base)}
		m.keys[key] = k
	}
	return k
}

func (m *backoffModel) when(key int) time.Duration {
	k := m.find(key)
	ceiling := m.ceiling(k.failures)
	low, high := big.NewInt(int64(ceiling)), big.NewInt(int64(ceiling))
	switch m.jitter {
	case FullJitter:
		low.SetInt64(0)
	case EqualJitter:
		low.Add(low, big.NewInt(1)).Rsh(low, 1)
	case DecorrelatedJitter:
		low.SetInt64(m.base)
		high.Mul(big.NewInt(3), big.NewInt(int64(k.last)))
		if longest := big.NewInt(m.longest); high.Cmp(longest) > 0 {
			high = longest
		}
	}
	if m.jitter >= FullJitter && m.jitter <= DecorrelatedJitter {
		width := high.Sub(high, low).Uint64() + 1
		low.Add(low, new(big.Int).SetUint64(m.rand.Uint64N(width)))
	}
	k.last = time.Duration(low.Int64())
	k.failures++
	life := new(big.Int).Lsh(big.NewInt(max(m.longest, 300e9)), 1)
	if m.forgetAfter > 0 {
		life.SetInt64(m.forgetAfter)
	}
	if life.Cmp(big.NewInt(math.MaxInt64)) > 0 {
		life.SetInt64(math.MaxInt64)
	}
	life.Add(life, low)
	k.gone = nil
	if life.Cmp(big.NewInt(1<<62)) < 0 {
		k.gone = m.after(life)
	}
	return k.last
}

// ceiling is the limiter's own. (TestItemBackoffCeilings compares it with exact products.)
func (m *backoffModel) ceiling(n int) time.Duration {
	if m.ceilings == nil {
		m.ceilings = ceilings(time.Duration(m.base), time.Duration(m.longest), m.factor)
	}
	return m.ceilings[min(n, len(m.ceilings)-1)]
}

func (m *backoffModel) requeues(key int) int { return m.find(key).failures }
func (m *backoffModel) forget(key int)       { delete(m.keys, key) }
func (m *backoffModel) expires(key int) *big.Int {
	if gone := m.find(key).gone; gone != nil {
		return new(big.Int).Set(gone)
	}
	return nil
}

func checkItemBackoff(t interface {
	Helper()
	Fatalf(string, ...any)
}, config BackoffConfig, seed uint64, script []byte) {
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
		checkItemBackoff(t, BackoffConfig{
			Base:        time.Duration(duration.Draw(t, "base")),
			Max:         time.Duration(duration.Draw(t, "max")),
			Factor:      rapid.OneOf(rapid.Float64Range(0, 4), rapid.Float64()).Draw(t, "factor"),
			Jitter:      Jitter(rapid.Uint8Range(0, 4).Draw(t, "jitter")),
			ForgetAfter: time.Duration(duration.Draw(t, "forgetAfter")),
		}, rapid.Uint64().Draw(t, "seed"), rapid.SliceOfN(rapid.Byte(), 200, 600).Draw(t, "script"))
	})
}

func FuzzItemBackoff(f *testing.F) {
	f.Add(int64(1), int64(1000), 2.0, uint8(FullJitter), int64(10), uint64(1), []byte("0000@@PP0000"))
	f.Add(int64(5e6), int64(1e12), 1.5, uint8(DecorrelatedJitter), int64(0), uint64(2), []byte{0, 0, 0, 0, 13, 0, 13, 1, 13, 2, 0, 0})
	f.Add(int64(math.MaxInt64), int64(math.MaxInt64), math.Inf(1), uint8(EqualJitter), int64(math.MaxInt64), uint64(3), []byte{0, 0, 10, 62, 0, 0, 10, 62, 10, 62, 0, 0})
	f.Add(int64(-1), int64(math.MinInt64), math.NaN(), uint8(9), int64(-1), uint64(4), []byte{0, 0, 12, 62, 0, 0, 9, 0})
	f.Fuzz(func(t *testing.T, base, longest int64, factor float64, jitter uint8, forgetAfter int64, seed uint64, script []byte) {
		checkItemBackoff(t, BackoffConfig{
			Base: time.Duration(base), Max: time.Duration(longest), Factor: factor,
			Jitter: Jitter(jitter), ForgetAfter: time.Duration(forgetAfter),
		}, seed, script[:min(len(script), 1000)])
	})
}

// itemBucketModel is the formula of NewTypedItemBucketRateLimiter, taken literally. (TestTokenIntervalTimes compares the
// multiples of an interval with exact ones.)
type itemBucketModel struct {
	*modelTime
	limit rate.Limit
	burst int64
	keys  map[int]*itemBucketModelKey
}

type itemBucketModelKey struct {
	start *big.Int
	taken int64
	full  *big.Int // nil: never
}

func (m *itemBucketModel) when(key int) time.Duration {
	switch {
	case m.limit >= rate.Inf:
		return 0
	case m.burst <= 0:
		return math.MaxInt64
	}
	k := m.keys[key]
	if k == nil || k.full != nil && k.full.Cmp(&m.now) <= 0 {
		k = &itemBucketModelKey{start: new(big.Int).Set(&m.now), full: new(big.Int)}
		m.keys[key] = k
	}
	k.taken++
	if fill := newTokenInterval(m.limit).times(uint32(k.taken)); fill == forever {
		k.full = nil
	} else if k.full != nil {
		k.full = new(big.Int).Add(k.start, big.NewInt(int64(fill)))
	}
	switch {
	case k.taken <= m.burst:
		return 0
	case k.full == nil:
		return math.MaxInt64
	}
	there := new(big.Int).Add(k.start, big.NewInt(int64(newTokenInterval(m.limit).times(uint32(k.taken-m.burst)))))
	if there.Cmp(&m.now) <= 0 {
		return 0
	}
	return time.Duration(there.Sub(there, &m.now).Int64())
}

func (m *itemBucketModel) requeues(int) int { return 0 }
func (m *itemBucketModel) forget(key int)   { delete(m.keys, key) }
func (m *itemBucketModel) expires(key int) *big.Int {
	if k := m.keys[key]; k != nil && k.full != nil {
		return new(big.Int).Set(k.full)
	}
	return nil
}

func checkItemBucket(t interface {
	Helper()
	Fatalf(string, ...any)
}, limit rate.Limit, burst int, script []byte) {
	t.Helper()
	c := newPassiveClock()
	l := NewTypedItemBucketRateLimiter[int](limit, burst, c).(*itemBucketRateLimiter[int])
	m := &itemBucketModel{modelTime: &modelTime{}, limit: limit, burst: int64(burst), keys: map[int]*itemBucketModelKey{}}
	scripted(t, script, c, &l.keys, l, m, m.modelTime)
}

func TestItemBucketModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.OneOf(
			rapid.Float64Range(1e-12, 1e-6), rapid.Float64Range(1e-6, 1e3), rapid.Float64Range(1e3, 1e12), rapid.Float64(),
			rapid.Map(rapid.Int64Range(1, math.MaxInt64), func(d int64) float64 { return float64(rate.Every(time.Duration(d))) }),
		).Draw(t, "limit")
		burst := rapid.OneOf(rapid.IntRange(-1, 8), rapid.Int()).Draw(t, "burst")
		checkItemBucket(t, rate.Limit(limit), burst, rapid.SliceOfN(rapid.Byte(), 200, 600).Draw(t, "script"))
	})
}

func FuzzItemBucket(f *testing.F) {
	f.Add(10.0, 2, []byte{0, 0, 0, 0, 0, 0, 10, 25, 0, 0, 13, 0, 0, 0, 13, 1, 0, 0})
	f.Add(1.0/3, 1, []byte{0, 0, 0, 0, 12, 40, 0, 0, 10, 62, 0, 0, 10, 62, 0, 0})
	f.Add(0.0, 1, []byte{0, 0, 0, 0, 9, 0, 0, 0})
	f.Add(3e9, 1, []byte{0, 0, 0, 0, 13, 0, 0, 0})
	f.Add(1e-9, math.MaxInt, []byte{0, 0, 0, 0, 10, 61, 0, 0, 0, 0})
	f.Add(math.Inf(1), 0, []byte{0, 0})
	f.Fuzz(func(t *testing.T, limit float64, burst int, script []byte) {
		checkItemBucket(t, rate.Limit(limit), burst, script[:min(len(script), 1000)])
	})
}
