package workqueue

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

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
		"3, 1":           {3, 1, []time.Duration{0, 333333333, 666666666, 999999999}},
		"0.3, 2":         {0.3, 2, []time.Duration{0, 0, 3333333333, 6666666666}},
		"every 3 s":      {rate.Every(3 * time.Second), 1, []time.Duration{0, 3e9, 6e9, 9e9}},
		"every 7 ns":     {rate.Every(7), 1, []time.Duration{0, 7, 14, 21}},
		"every 49 s":     {rate.Every(49 * time.Second), 1, []time.Duration{0, 49e9, 98e9}},
		"every 100 days": {rate.Every(2400 * time.Hour), 1, []time.Duration{0, 2400 * time.Hour}},
		"1e9":            {1e9, 1, []time.Duration{0, 1, 2, 3}},
		"3e9":            {3e9, 1, []time.Duration{0, 0, 0}},
		"1e300":          {1e300, 1, []time.Duration{0, 0, 0}},
		"least":          {math.SmallestNonzeroFloat64, 2, []time.Duration{0, 0, never, never}},
		"zero":           {0, 2, []time.Duration{0, 0, never, never}},
		"negative":       {-5, 1, []time.Duration{0, never}},
		"-Inf":           {rate.Limit(math.Inf(-1)), 1, []time.Duration{0, never}},
		"NaN":            {rate.Limit(math.NaN()), 1, []time.Duration{0, never}},
		"no tokens":      {0, 0, []time.Duration{never}},
		"rate.Inf":       {rate.Inf, 0, []time.Duration{0, 0, 0}},
		"+Inf":           {rate.Limit(math.Inf(1)), -1, []time.Duration{0, 0, 0}},
		"burst 0":        {10, 0, []time.Duration{never, never}},
		"burst -1":       {10, -1, []time.Duration{never, never}},
		"burst MaxInt":   {10, math.MaxInt, []time.Duration{0, 0, 0}},
		"burst MinInt":   {10, math.MinInt, []time.Duration{never}},
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

// itemBucketModel is a bucket as one knows it: tokens that come one in an interval, and are taken.
type itemBucketModel struct {
	*modelTime
	interval time.Duration
	burst    int
	taken    map[int][]time.Duration // when the tokens that the bucket lacks come back
}

func (m *itemBucketModel) when(key int) time.Duration {
	lacks := m.lacking(key)
	next := m.now
	if len(lacks) > 0 {
		next = lacks[len(lacks)-1]
	}
	m.taken[key] = append(lacks, next+m.interval)
	if late := len(m.taken[key]) - m.burst; late > 0 {
		return m.taken[key][late-1] - m.now
	}
	return 0
}

func (m *itemBucketModel) lacking(key int) []time.Duration {
	return slices.DeleteFunc(m.taken[key], func(at time.Duration) bool { return at <= m.now })
}

func (m *itemBucketModel) requeues(int) int { return 0 }
func (m *itemBucketModel) forget(key int)   { delete(m.taken, key) }

func (m *itemBucketModel) expires(key int) time.Duration {
	if at := m.taken[key]; len(at) > 0 {
		return at[len(at)-1]
	}
	return expiring.Forever
}

func checkItemBucket(t rapid.TB, interval time.Duration, burst int, script []byte) {
	t.Helper()
	c := newPassiveClock()
	l := NewTypedItemBucketRateLimiter[int](rate.Every(interval), burst, c).(*itemBucketRateLimiter[int])
	m := &itemBucketModel{modelTime: &modelTime{}, interval: interval, burst: burst,
		taken: map[int][]time.Duration{}}
	scripted(t, script, c, &l.keys, l, m, m.modelTime)
}

func TestItemBucketModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		interval := rapid.Int64Range(1, 13*24*3600e9).Draw(t, "interval")
		burst := rapid.IntRange(1, 8).Draw(t, "burst")
		checkItemBucket(t, time.Duration(interval), burst, rapid.SliceOfN(rapid.Byte(), 200, 600).Draw(t, "script"))
	})
}

func FuzzItemBucket(f *testing.F) {
	f.Add(int64(1e8), 2, []byte{0, 0, 0, 0, 0, 0, 10, 25, 0, 0, 13, 0, 0, 0, 13, 1, 0, 0})
	f.Add(int64(3e9), 1, []byte{0, 0, 0, 0, 12, 40, 0, 0, 10, 62, 0, 0, 10, 62, 0, 0})
	f.Add(int64(1), 8, []byte{0, 0, 0, 0, 13, 0, 0, 0})
	f.Fuzz(func(t *testing.T, interval int64, burst int, script []byte) {
		interval, burst = max(1, interval%1e15), max(1, burst)
		checkItemBucket(t, time.Duration(interval), burst, script[:min(len(script), 1000)])
	})
}
