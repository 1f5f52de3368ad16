package debug

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// level is the class of a time: how much it deserves attention.
func level(d time.Duration) string {
	switch {
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

// perSecondText returns a rate for display.
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

const (
	// maxKey and maxName are how many bytes of a key and of a name are shown.
	maxKey  = 256
	maxName = 128
	// maxCauses is how many bytes of a key's causes are shown in a list.
	maxCauses = 80
	// longError is how many bytes of an error are shown in a list before it is unfolded.
	longError = 160
	// maxError and maxStack are how many bytes of an error and of a stack are shown, which is what package
	// worker keeps.
	maxError = 1024
	maxStack = 8 << 10
)

// cut returns the first bytes of a text from outside, at most limit, made harmless: valid UTF-8, and
// printable.
func cut(s string, limit int) string {
	if len(s) > limit {
		end := limit
		for i := range utf8.UTFMax {
			if utf8.RuneStart(s[limit-i]) { // Do not cut a rune in two.
				end = limit - i
				break
			}
		}
		s = s[:end]
	}
	return printable(s)
}

// short is cut, with a sign if something was cut off.
func short(s string, limit int) string {
	if len(s) > limit {
		return cut(s, limit) + "…"
	}
	return cut(s, limit)
}

// unquoted is what printable does not escape.
var unquoted = strings.NewReplacer(`\\`, `\`, `\"`, `"`)

// printable returns s with what cannot be printed escaped as in Go: control characters, invalid UTF-8, and
// what changes the order of other characters, or is not seen.
func printable(s string) string {
	quoted := strconv.Quote(s)
	return unquoted.Replace(quoted[1 : len(quoted)-1])
}

// stackText returns a stack, in lines that are printable.
func stackText(stack string) string {
	lines := strings.Split(strings.ReplaceAll(stack[:min(len(stack), maxStack)], "\t", "    "), "\n")
	for i, line := range lines {
		lines[i] = printable(line)
	}
	return strings.Join(lines, "\n")
}

// keyText returns what a key is called: a string itself, of other types what fmt says. It calls the
// methods of the key, so no lock may be held.
func keyText(key any) (s string) {
	defer func() {
		// fmt recovers from a panic of the key's methods, but not if printing the panic's value panics, too.
		if recover() != nil {
			s = fmt.Sprintf("(%T: cannot be printed)", key)
		}
	}()
	switch key := key.(type) {
	case string: // not by fmt, which copies it
		return key
	case error, fmt.Stringer, fmt.Formatter:
		return fmt.Sprint(key)
	}
	// fmt follows a pointer to a struct, which somebody may be changing.
	if v := reflect.ValueOf(key); v.Kind() == reflect.Pointer {
		return fmt.Sprintf("(%T)(%p)", key, key)
	}
	return fmt.Sprintf("%+v", key)
}

// mapped returns what to returns for each of all.
func mapped[From, To any](all []From, to func(From) To) []To {
	results := make([]To, len(all))
	for i, v := range all {
		results[i] = to(v)
	}
	return results
}

// between returns how long it is from one time to the other, or nil if one is not known.
func between(from, to time.Time) *seconds {
	if from.IsZero() || to.IsZero() {
		return nil
	}
	d := seconds(max(0, to.Sub(from)))
	return &d
}

// keyID distinguishes keys whose texts are alike. It is the same in each run of the program, except for
// pointers.
func keyID(key any) (id string) {
	defer func() {
		if recover() != nil { // See keyText.
			id = fmt.Sprintf("%T", key)
		}
	}()
	format := "%T %#v"
	if reflect.ValueOf(key).Kind() == reflect.Pointer {
		format = "%T %p"
	}
	sum := sha256.Sum256(fmt.Appendf(nil, format, key, key))
	return base64.RawURLEncoding.EncodeToString(sum[:4]) // The text must fit, too.
}
