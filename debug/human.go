package debug

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// level is the class of a time: how much it deserves attention.
func level(s seconds) string {
	switch d := time.Duration(s); {
	case d >= 10*time.Minute:
		return "bad"
	case d >= time.Minute:
		return "warn"
	case d == 0:
		return "none"
	default:
		return ""
	}
}

// atMostText returns a bound for people.
func atMostText(bound *float64) string {
	if bound == nil {
		return "beyond all bounds"
	}
	return "≤ " + precise(*bound)
}

// precise returns a number of seconds with three digits, so that bounds and means are not rounded down.
func precise(s float64) string {
	if s >= 60 {
		return human(time.Duration(math.Round(min(s*1e9, math.MaxInt64))))
	}
	for _, unit := range []struct {
		name    string
		seconds float64
	}{{"ns", 1e-9}, {"µs", 1e-6}, {"ms", 1e-3}} {
		// Rounded first: 999.96 µs are 1 ms.
		n, _ := strconv.ParseFloat(strconv.FormatFloat(s/unit.seconds, 'g', 3, 64), 64)
		if n < 1000 {
			return strconv.FormatFloat(n, 'f', -1, 64) + " " + unit.name
		}
	}
	return strconv.FormatFloat(s, 'g', 3, 64) + " s"
}

// perSecondText returns a rate for people.
func perSecondText(r float64) string {
	switch {
	case r == 0:
		return "0"
	case r < 0.01:
		return "<0.01"
	case r < 100:
		return strconv.FormatFloat(r, 'g', 2, 64)
	default:
		return number(int64(math.Round(r)))
	}
}

// number returns n with its thousands apart.
func number(n any) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// human returns d in one or two units.
func human(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d <= 0:
		return "0 s"
	case d < time.Minute:
		return precise(d.Seconds())
	case d < time.Hour:
		return twoUnits(d, time.Minute, "m", time.Second, "s")
	case d < 2*day:
		return twoUnits(d, time.Hour, "h", time.Minute, "m")
	default:
		return twoUnits(d, day, "d", time.Hour, "h")
	}
}

func twoUnits(d, large time.Duration, l string, small time.Duration, s string) string {
	if rest := d % large / small; rest > 0 {
		return fmt.Sprintf("%d%s %02d%s", d/large, l, rest, s)
	}
	return fmt.Sprintf("%d%s", d/large, l)
}
