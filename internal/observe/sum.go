package observe

import (
	"math"
	"math/bits"
	"time"
)

// durationSum is a sum of durations, in nanoseconds as a 128-bit number in two's complement. In 64 bits,
// 10,000 workers that are stuck for eleven days would overflow it.
type durationSum struct{ hi, lo uint64 }

func (s *durationSum) add(d time.Duration) { *s = s.plus(extended(d)) }

func (s *durationSum) sub(d time.Duration) { *s = s.minus(extended(d)) }

// since returns the sum of the times from each of the n summands of s to now.
func (s durationSum) since(now time.Duration, n int) durationSum {
	hi, lo := bits.Mul64(uint64(now), uint64(n))
	if now < 0 {
		hi -= uint64(n) // uint64(now) was now + 2⁶⁴.
	}
	return durationSum{hi, lo}.minus(s)
}

func extended(d time.Duration) durationSum { return durationSum{uint64(d >> 63), uint64(d)} }

func (s durationSum) plus(t durationSum) durationSum {
	lo, carry := bits.Add64(s.lo, t.lo, 0)
	hi, _ := bits.Add64(s.hi, t.hi, carry)
	return durationSum{hi, lo}
}

func (s durationSum) minus(t durationSum) durationSum {
	lo, borrow := bits.Sub64(s.lo, t.lo, 0)
	hi, _ := bits.Sub64(s.hi, t.hi, borrow)
	return durationSum{hi, lo}
}

func (s durationSum) seconds() float64 {
	if int64(s.hi) < 0 {
		return -durationSum{}.minus(s).seconds()
	}
	return (float64(s.hi)*(1<<64) + float64(s.lo)) / float64(time.Second)
}

// duration returns s, or the Duration that is nearest to it.
func (s durationSum) duration() time.Duration {
	switch d := time.Duration(s.lo); {
	case s == extended(d):
		return d
	case int64(s.hi) < 0:
		return math.MinInt64
	default:
		return math.MaxInt64
	}
}
