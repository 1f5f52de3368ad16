package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// text is a string of the server: a key, the reason of a failure, a name. In JSON it is a string, and
// {"base64": "…"} if it is not UTF-8: in a JSON string such bytes would be replaced, and the key would be
// another one.
type text string

func (t text) MarshalJSON() ([]byte, error) {
	if !utf8.ValidString(string(t)) {
		return json.Marshal(map[string][]byte{"base64": []byte(t)})
	}
	plain, err := object(string(t))
	var b strings.Builder
	for _, r := range plain {
		if strconv.IsPrint(r) {
			b.WriteRune(r)
		} else { // JSON is printed to terminals, too.
			for _, unit := range utf16.AppendRune(nil, r) {
				fmt.Fprintf(&b, `\u%04x`, unit)
			}
		}
	}
	return []byte(b.String()), err
}

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
func age(t *time.Time) string {
	if t == nil {
		return "-"
	}
	if d := time.Since(*t); d >= 0 {
		return round(d) + " ago"
	}
	return "in " + round(time.Until(*t))
}

func round(d time.Duration) string {
	if d > time.Minute {
		return d.Round(time.Second).String()
	}
	return d.Round(time.Millisecond).String()
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// known returns v as JSON has it: null if it is zero.
func known[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// printJSON prints v and a newline.
func printJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// object returns v as JSON in one line.
func object(v any) (string, error) {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return strings.TrimSuffix(b.String(), "\n"), err
}
