package wait

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"
)

// largestShare is the largest value that rand.Float64 returns.
var largestShare = math.Nextafter(1, 0)

func TestScale(t *testing.T) {
	const most = time.Duration(math.MaxInt64)
	tests := []struct {
		d      time.Duration
		factor float64
		want   time.Duration
	}{
		{0, 2, 0},
		{1, 2, 2},
		{3, 0.5, 1}, // truncated, not rounded
		{1, 0.5, 0},
		{time.Second, 1.5, 1500 * time.Millisecond},
		{1 << 61, 2, 1 << 62},
		{1 << 62, 2, most}, // 2^63: the first that does not fit
		{1 << 62, 1.9999999999999998, 1<<63 - 1024},
		{most, 1, most}, // as a float64, most is 2^63
		{most, 1e300, most},
		{most, math.Inf(1), most},
		{most, math.MaxFloat64, most},
		{1, math.Inf(1), most},
		{0, math.Inf(1), 0}, // 0·∞
		{most, 0, 0},
		{most, math.SmallestNonzeroFloat64, 0},
		{most, math.NaN(), 0},
		{time.Second, -2, 0},
		{time.Second, math.Inf(-1), 0},
	}
	for _, tt := range tests {
		if got := scale(tt.d, tt.factor); got != tt.want {
			t.Errorf("scale(%d, %g) = %d, want %d", tt.d, tt.factor, got, tt.want)
		}
	}
}

func TestStretch(t *testing.T) {
	const most = time.Duration(math.MaxInt64)
	tests := []struct {
		d             time.Duration
		factor, share float64
		want          time.Duration
	}{
		{time.Second, 0.5, 0, time.Second},
		{time.Second, 0.5, 0.5, 1250 * time.Millisecond},
		{time.Second, 2, 0.75, 2500 * time.Millisecond},
		{time.Second, 1, largestShare, 2*time.Second - 1},
		{0, 5, 0.5, 0},
		{-time.Second, 1, 0.5, 0},
		{most, 1, 0, most},
		{most, 1, largestShare, most},    // the sum would overflow
		{most - 5, 1e-18, 0.5, most - 1}, // adds 2^63 · 5e-19 = 4.6
		{most - 3, 1e-18, 0.5, most},     // and here overflows by one
		{most / 2, 1, largestShare, most/2 + (1<<62 - 512)},
		{1 << 62, 4, 0.5, most}, // the addition alone would
		{time.Second, math.Inf(1), 0.5, most},
		{time.Second, math.Inf(1), 0, time.Second},
		{0, math.Inf(1), 0.5, 0},
		{time.Second, math.MaxFloat64, largestShare, most},
	}
	for _, tt := range tests {
		if got := stretch(tt.d, tt.factor, tt.share); got != tt.want {
			t.Errorf("stretch(%d, %g, %g) = %d, want %d", tt.d, tt.factor, tt.share, got, tt.want)
		}
	}
}

// FuzzBackoff holds Step against what its godoc promises for any field values.
func FuzzBackoff(f *testing.F) {
	const most = math.MaxInt64
	f.Add(int64(time.Second), 2.0, 0.1, 10, int64(time.Minute))
	f.Add(int64(time.Second), 2.0, 0.0, 100, int64(0))
	f.Add(int64(most), 1.0, 1.0, 5, int64(most))
	f.Add(int64(most), math.MaxFloat64, math.MaxFloat64, math.MaxInt, int64(0))
	f.Add(int64(1), math.Inf(1), math.Inf(1), 3, int64(0))
	f.Add(int64(0), math.Inf(1), math.Inf(1), 3, int64(7))
	f.Add(int64(-5), -2.0, -1.0, -3, int64(-1))
	f.Add(int64(5), -2.0, 0.0, 3, int64(4))
	f.Add(int64(5), math.NaN(), math.NaN(), 3, int64(0))
	f.Add(int64(1000), 0.5, 0.0, 20, int64(0))
	f.Add(int64(100), 0.5, 0.0, 20, int64(10))
	f.Fuzz(func(t *testing.T, duration int64, factor, jitter float64, steps int, limit int64) {
		b := Backoff{
			Duration: time.Duration(duration),
			Factor:   factor,
			Jitter:   jitter,
			Steps:    steps,
			Cap:      time.Duration(limit),
		}
		for range 70 { // enough to double 1 ns to the end
			before := b
			got := b.Step()
			checkStep(t, before, b, got)
		}
	})
}

// checkStep fails t unless before.Step() may have returned got and left after.
func checkStep(t *testing.T, before, after Backoff, got time.Duration) {
	t.Helper()
	due := max(before.Duration, 0)
	longest := due
	if before.Jitter > 0 {
		longest = stretch(due, before.Jitter, 1)
	}
	if got < due || got > longest {
		t.Fatalf("%+v: delay %d not within [%d, %d]", before, got, due, longest)
	}

	next := due
	grows := before.Steps > 0 && before.Factor > 0
	if grows {
		next = scale(due, before.Factor)
	}
	steps := max(before.Steps-1, 0)
	if before.Steps <= 0 {
		steps = 0
	}
	if grows && before.Cap > 0 && next > before.Cap {
		next, steps = before.Cap, 0
	}
	if after.Duration != next || after.Steps != steps {
		t.Fatalf("%+v: left duration %d and steps %d, want %d and %d", before, after.Duration, after.Steps, next, steps)
	}
	if next < 0 {
		t.Fatalf("%+v: negative duration %d", before, next)
	}
	// Growth only grows. (Compared as floats, since a factor of exactly 1 may round
	// the last bits of a delay of several months.)
	if grows && before.Factor >= 1 && next != before.Cap && float64(next) < float64(due) {
		t.Fatalf("%+v: shrank to %d", before, next)
	}
}

// TestScaleExactly compares scale with exact arithmetic: float64 may cost the last bit
// of its 53, the truncation less than a nanosecond, and nothing else may be lost.
func TestScaleExactly(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		d := time.Duration(random.Int64() >> random.IntN(63))
		factor := math.Ldexp(random.Float64(), random.IntN(80)-15)

		exact := new(big.Float).SetPrec(300).SetInt64(int64(d))
		exact.Mul(exact, new(big.Float).SetFloat64(factor))
		if limit := new(big.Float).SetInt64(math.MaxInt64); exact.Cmp(limit) > 0 {
			exact.Set(limit)
		}
		off := new(big.Float).SetPrec(300).SetInt64(int64(scale(d, factor)))
		off.Sub(off, exact).Abs(off)
		allowed := new(big.Float).SetPrec(300).SetMantExp(exact, -52)
		allowed.Add(allowed, big.NewFloat(1))
		if off.Cmp(allowed) > 0 {
			t.Fatalf("scale(%d, %g) = %d, exactly %.3f", d, factor, scale(d, factor), exact)
		}
	}
}
