package wait

import (
	"math"
	"testing"
	"time"
)

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
