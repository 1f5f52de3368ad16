package debug

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
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

// perSecondText returns a rate for display.
func perSecondText(r float64) string {
	if r >= 100 {
		return countText(r)
	}
	return strconv.FormatFloat(r, 'g', 2, 64)
}

// number returns n with its thousands apart, or a text as it is.
func number(n any) string {
	s := fmt.Sprint(n)
	if _, isText := n.(string); isText {
		return s
	}
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// plural returns a number of things, such as "1 key" and "2,000 keys".
func plural(n any, thing string) string {
	if text := number(n); text != "1" {
		return text + " " + thing + "s"
	}
	return "1 " + thing
}

func countText(v float64) string { return number(int64(math.Round(v))) }

// when returns text, or nothing if it is not so.
func when(isSo bool, text string) string {
	if isSo {
		return text
	}
	return ""
}

// called returns what a page calls a key or a group.
func called(text string) string { return cmp.Or(text, "(empty)") }

// secondsText returns a number of seconds for display.
func secondsText(s float64) string {
	return human(time.Duration(math.Round(min(s*1e9, math.MaxInt64))))
}

// human returns d with three digits or in two units.
func human(d time.Duration) string {
	const day = 24 * time.Hour
	unit := time.Nanosecond
	for d < time.Minute && d/unit >= 1000 {
		unit *= 10
	}
	switch d = max(d, 0).Round(unit); { // 59.97 s are 1m.
	case d < time.Minute:
		text, letters := d.String(), strings.IndexFunc(d.String(), unicode.IsLetter)
		return text[:letters] + " " + text[letters:]
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
	// maxKeyBytes and maxName are how many bytes of a key and of a name are shown.
	maxKeyBytes = 256
	maxName     = 128
	// maxCauses is how many bytes of a key's causes are shown in a list.
	maxCauses = 80
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

// short is cut, with … if something was cut off.
func short(s string, limit int) string {
	return cut(s, limit) + when(len(s) > limit, "…")
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
