package main

import (
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// isPlain reports whether s is visible, and does nothing to a terminal.
func isPlain(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) })
}

// escaped returns s as it is or, if that is not plain, with Go's escapes.
func escaped(s string) string {
	if isPlain(s) {
		return s
	}
	text := strconv.Quote(s)
	return text[1 : len(text)-1]
}

// quoted returns a key as it is or, if it could not be seen or would change the terminal, as a shell reads
// it: bash and others take what is behind $ in quotes for the same bytes, in a locale with UTF-8.
func quoted(key string) string {
	if isPlain(key) && key != "" && !strings.HasPrefix(key, "$'") && strings.TrimSpace(key) == key {
		return key
	}
	text := strconv.Quote(key)
	return `$'` + strings.ReplaceAll(text[1:len(text)-1], `'`, `\'`) + `'`
}

// message returns the text of an error, which may have come from the server, without what would change the
// terminal.
func message(err error) string {
	var all []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		all = append(all, escaped(strings.TrimPrefix(line, "redisqueue: ")))
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

// printJSON prints v in one line.
func printJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}
