package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// isPlain reports whether s is visible, and does nothing to a terminal.
func isPlain(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) })
}

// escaped returns s with escapes for what is not plain, and for backslashes and quotes if these are quoted.
func escaped(s string, quotes bool) string {
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch part := s[:size]; {
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case quotes && (r == '\\' || r == '\''):
			b.WriteString(`\` + part)
		case isPlain(part):
			b.WriteString(part)
		default:
			for i := range size {
				fmt.Fprintf(&b, `\x%02x`, part[i])
			}
		}
		s = s[size:]
	}
	return b.String()
}

// quoted returns a key as it is or, if it could not be seen or would change the terminal, as a shell reads
// it: bash and others take what is behind $ in quotes for the same bytes.
func quoted(key string) string {
	if key == "" || !isPlain(key) || strings.HasPrefix(key, "$'") || strings.TrimSpace(key) != key {
		return `$'` + escaped(key, true) + `'`
	}
	return key
}

// message returns the text of an error, which may have come from the server, without what would change the
// terminal.
func message(err error) string {
	var all []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		all = append(all, escaped(strings.TrimPrefix(line, "redisqueue: "), false))
	}
	return strings.Join(all, "; ")
}

// age says how long ago t is, or in what time it comes.
func age(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	if d := time.Since(t); d >= 0 {
		return round(d) + " ago"
	}
	return "in " + round(time.Until(t))
}

func round(d time.Duration) string {
	if d > time.Minute {
		return d.Round(time.Second).String()
	}
	return d.Round(time.Millisecond).String()
}

// printJSON prints v in one line. JSON is printed to terminals too, so what is not visible is escaped.
func printJSON(w io.Writer, v any) error {
	var plain, b strings.Builder
	encoder := json.NewEncoder(&plain)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	for _, r := range plain.String() {
		if strconv.IsPrint(r) || r == '\n' {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	_, _ = io.WriteString(w, b.String())
	return err
}
