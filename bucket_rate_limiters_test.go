package workqueue

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/internal/expiring"
	"golang.org/x/time/rate"
	"pgregory.net/rapid"
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

func TestItemBucketDelays(t *testing.T) {
	const never = math.MaxInt64
	for name, c := range map[string]struct {
		limit rate.Limit
		burst int
		want  []time.Duration // all at once
	}{
		"10, 1":          {10, 1, []time.Duration{0, 100e6, 200e6, 300e6}},
		"10, 3":          {10, 3, []time.Duration{0, 0, 0, 100e6, 200e6}},
		"3, 1":           {3, 1, []time.Duration{0, 333333334, 666666667, 1000000000, 1333333334}},
		"0.3, 2":         {0.3, 2, []time.Duration{0, 0, 3333333334, 6666666667, 10000000000}},
		"every 3 s":      {rate.Every(3 * time.Second), 1, []time.Duration{0, 3e9, 6e9, 9e9}},
		"every 7 ns":     {rate.Every(7), 1, []time.Duration{0, 7, 14, 21}},
		"every 49 s":     {rate.Every(49 * time.Second), 1, []time.Duration{0, 49e9, 98e9}},
		"every 100 days": {rate.Every(2400 * time.Hour), 1, []time.Duration{0, 2400 * time.Hour}},
		"every 100 y":    {rate.Every(100 * 8766 * time.Hour), 1, []time.Duration{0, never, never}},
		"1e9":            {1e9, 1, []time.Duration{0, 1, 2, 3}},
		"3e9":            {3e9, 1, []time.Duration{0, 1, 1, 1, 2, 2, 2, 3}},
		"1e18":           {1e18, 1, []time.Duration{0, 1, 1, 1}},
		"1e300":          {1e300, 1, []time.Duration{0, 1, 1, 1}},
		"least":          {math.SmallestNonzeroFloat64, 2, []time.Duration{0, 0, never, never}},
		"zero":           {0, 2, []time.Duration{0, 0, never, never}},
		"negative":       {-5, 1, []time.Duration{0, never}},
		"-Inf":           {rate.Limit(math.Inf(-1)), 1, []time.Duration{0, never}},
		"NaN":            {rate.Limit(math.NaN()), 1, []time.Duration{0, never}},
		"rate.Inf":       {rate.Inf, 0, []time.Duration{0, 0, 0}},
		"+Inf":           {rate.Limit(math.Inf(1)), -1, []time.Duration{0, 0, 0}},
		"burst 0":        {10, 0, []time.Duration{never, never}},
		"burst -1":       {10, -1, []time.Duration{never, never}},
		"burst MaxInt":   {10, math.MaxInt, []time.Duration{0, 0, 0}},
		"burst MinInt":   {10, math.MinInt, []time.Duration{never}},
		"no tokens":      {0, 0, []time.Duration{never}},
	} {
		t.Run(name, func(t *testing.T) {
			l := NewTypedItemBucketRateLimiter[string](c.limit, c.burst, newPassiveClock())
			for round := range 2 {
				l.When("another")
				for i, want := range c.want {
					if d := l.When("key"); d != want {
						t.Errorf("round %d: delay %d = %d, want %d", round, i, d, want)
					}
					if n := l.NumRequeues("key"); n != 0 {
						t.Errorf("NumRequeues = %d", n)
					}
				}
				l.Forget("key") // the next bucket is full
			}
		})
	}
}

// An interval comes back from rate.Every.
func TestItemBucketEveryIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.OneOf(rapid.Int64Range(1, 1e6), rapid.Int64Range(1, 13*24*3600e9)).Draw(t, "interval"))
		if i := newTokenInterval(rate.Every(d)); i != tokenInterval(d) {
			t.Fatalf("the interval of Every(%d) is %v", d, i)
		}
	})
}

// Multiples of the interval are those of exact arithmetic: to the nanosecond up to 2⁵³ ns, and to float64's precision
// beyond.
func TestTokenIntervalTimes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.OneOf(
			rapid.Float64Range(math.SmallestNonzeroFloat64, math.Nextafter(math.MaxFloat64, 0)),
			rapid.Float64Range(1e-12, 1e-6), rapid.Float64Range(1e-6, 1e3),
			rapid.Float64Range(1e3, 1e12), rapid.Float64Range(1e12, 1e24),
		).Draw(t, "limit")
		n := rapid.Uint32Min(1).Draw(t, "n")
		if got, want := newTokenInterval(rate.Limit(limit)).times(n), intervals(rate.Limit(limit), int64(n)); !isNear(got, want) {
			t.Fatalf("%d intervals at %v/s = %d, want %d", n, limit, got, want)
		}
	})
}

// isNear reports whether got differs from want by no more than float64 and rounding up can make it.
func isNear(got, want time.Duration) bool {
	if got == expiring.Forever || want == expiring.Forever {
		// Where the next step would be horizon, either is right.
		return got == want || min(got, want) > expiring.Horizon-expiring.Horizon>>50
	}
	return (got - want).Abs() <= 1+want>>51
}

// intervals returns the time in which a bucket gets n tokens, rounded up, or forever.
func intervals(limit rate.Limit, n int64) time.Duration {
	if !(limit > 0) || math.IsInf(float64(limit), 0) {
		return expiring.Forever
	}
	exact := new(big.Rat).SetFloat64(float64(limit))
	exact.Quo(big.NewRat(1e9, 1), exact)
	if d := math.Round(1e9 / float64(limit)); d > 0 && d < 1<<62 && rate.Every(time.Duration(d)) == limit {
		exact.SetInt64(int64(d))
	}
	exact.Mul(exact, new(big.Rat).SetInt64(n))
	whole, rest := new(big.Int).QuoRem(exact.Num(), exact.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		whole.Add(whole, big.NewInt(1))
	}
	if whole.Cmp(big.NewInt(1<<62)) >= 0 {
		return expiring.Forever
	}
	return time.Duration(whole.Int64())
}

// Apart from roundings, a key has the bucket of x/time/rate.
func TestItemBucketIsAsOfTimeRate(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, limit := range []rate.Limit{0.001, 0.3, 1, 3, 10, 1000, 12345.678} {
		for _, burst := range []int{1, 2, 10} {
			c := newPassiveClock()
			l := NewTypedItemBucketRateLimiter[int](limit, burst, c)
			twins := []*rate.Limiter{rate.NewLimiter(limit, burst), rate.NewLimiter(limit, burst)}
			for range 2000 {
				key := r.IntN(2)
				got, want := l.When(key), twins[key].ReserveN(c.Now(), 1).DelayFrom(c.Now())
				if off := got - want; off.Abs() > time.Microsecond {
					t.Fatalf("limit %v, burst %d: %v, in x/time/rate %v", limit, burst, got, want)
				}
				stepClock(c, time.Duration(r.Float64()*1.2e9/float64(limit)))
			}
		}
	}
}

// The bucket after the last token that can be counted is full.
func TestItemBucketCountsOn(t *testing.T) {
	l := NewTypedItemBucketRateLimiter[int](1e9, 2, newPassiveClock()).(*itemBucketRateLimiter[int])
	l.When(0)
	key := &l.keys.Table.At(1).Value
	key.Count, key.Span = math.MaxUint32-1, dueloop.Pack(math.MaxUint32-1)
	l.keys.SetLifeLocked(1, math.MaxUint32-1)
	for i, want := range []time.Duration{math.MaxUint32 - 2, 0, 0, 1} {
		if d := l.When(0); d != want {
			t.Errorf("delay %d = %d, want %d", i, d, want)
		}
	}
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
	start, full time.Duration
	taken       int64
}

func (m *itemBucketModel) when(key int) time.Duration {
	switch {
	case m.limit >= rate.Inf:
		return 0
	case m.burst <= 0:
		return math.MaxInt64
	}
	k := m.keys[key]
	if k == nil || k.full <= m.now {
		k = &itemBucketModelKey{start: m.now}
		m.keys[key] = k
	}
	k.taken++
	if fill := newTokenInterval(m.limit).times(uint32(k.taken)); fill == expiring.Forever {
		k.full = expiring.Forever
	} else if k.full != expiring.Forever {
		k.full = k.start + fill
	}
	switch {
	case k.taken <= m.burst:
		return 0
	case k.full == expiring.Forever:
		return expiring.Forever
	}
	return max(0, k.start+newTokenInterval(m.limit).times(uint32(k.taken-m.burst))-m.now)
}

func (m *itemBucketModel) requeues(int) int { return 0 }
func (m *itemBucketModel) forget(key int)   { delete(m.keys, key) }

func (m *itemBucketModel) expires(key int) time.Duration {
	if k := m.keys[key]; k != nil {
		return k.full
	}
	return expiring.Forever
}

func checkItemBucket(t rapid.TB, limit rate.Limit, burst int, script []byte) {
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
