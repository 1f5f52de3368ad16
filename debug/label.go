package debug

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// maxKey and maxName are how many bytes of a key and of a name are shown.
	maxKey  = 256
	maxName = 128
	// maxCauses is how many bytes of a key's causes are shown in a list.
	maxCauses = 80
	// maxError and maxStack are how many bytes of an error and of a stack are shown, which is what package worker keeps.
	maxError = 1024
	maxStack = 8 << 10
)

// cut returns the first bytes of a text from outside, at most limit, made harmless: valid UTF-8, and printable.
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

// printable returns s with what cannot be printed escaped as in Go: control characters, invalid UTF-8, and
// what changes the order of other characters, or is not seen.
func printable(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case strconv.IsPrint(r):
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return b.String()
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
