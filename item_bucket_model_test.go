package workqueue

import (
	"math"
	"math/big"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"pgregory.net/rapid"
)

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
