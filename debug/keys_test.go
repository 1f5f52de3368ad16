package debug_test

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/debug"
)

func queryEscape(s string) string { return url.QueryEscape(s) }

// shown returns how the page calls a key, in JSON and in HTML.
func shown[T comparable](t *testing.T, key T) (text string, bytes int, html string) {
	t.Helper()
	h := newHandler(t, debug.Options{})
	q := workqueue.NewTyped[T]()
	q.Add(key)
	debug.Register(h, "q", q)
	d := getJSON[detail](t, h, "?queue=q")
	if len(d.Queued) != 1 {
		t.Fatalf("%d keys", len(d.Queued))
	}
	w := get(h, "?queue=q")
	_, html, _ = strings.Cut(w.Body.String(), "<code>")
	html, _, _ = strings.Cut(html, "</th>")
	return d.Queued[0].Key, d.Queued[0].Bytes, html
}

func TestHostileKeys(t *testing.T) {
	for key, want := range map[string]string{
		"":                             "",
		"namespace/name":               "namespace/name",
		"käse 日本 😀":                    "käse 日本 😀",
		"a\nb\r\tc\x00\x1b[31m":        `a\nb\r\tc\x00\x1b[31m`,
		"\xff\xfe end":                 `\xff\xfe end`,
		"real \uFFFD":                  "real \uFFFD",
		"\u202egnp.exe\u2066":          `\u202egnp.exe\u2066`,
		"zero\u200bwidth\ufeff":        `zero\u200bwidth\ufeff`,
		"line\u2028and\u2029paragraph": `line\u2028and\u2029paragraph`,
		"\U000e0001":                   `\U000e0001`,
		`C:\temp`:                      `C:\temp`,
	} {
		text, bytes, _ := shown(t, key)
		if text != want || bytes != len(key) {
			t.Errorf("%q is shown as %q with %d bytes, want %q", key, text, bytes, want)
		}
	}
	for key, want := range map[string]string{
		"<script>alert(1)</script>": "&lt;script&gt;alert(1)&lt;/script&gt;",
		`"><img src=x onerror=x>`:   "&gt;&lt;img src=x onerror=x&gt;",
		"</code></table>{{.}}":      "&lt;/code&gt;&lt;/table&gt;{{.}}",
		"&amp;":                     "&amp;amp;",
	} {
		if _, _, html := shown(t, key); !strings.Contains(html, want) {
			t.Errorf("%q is %q in the page, want %q", key, html, want)
		}
	}
}

func TestLongKeys(t *testing.T) {
	key := strings.Repeat("x", 1<<20)
	text, bytes, html := shown(t, key)
	if text != key[:256] || bytes != 1<<20 || !strings.Contains(html, "… 1,048,576 bytes") || len(html) > 500 {
		t.Errorf("%d of %d bytes, in HTML %s", len(text), bytes, html)
	}
	if _, _, html := shown(t, key[:256]); strings.Contains(html, "bytes") {
		t.Errorf("a key of 256 bytes is cut: %s", html)
	}
	// Runes stay whole wherever the cut is, and what is no rune stays what it is.
	for n := range 5 {
		text, _, _ := shown(t, strings.Repeat("x", n)+strings.Repeat("€", 200))
		if !utf8.ValidString(text) || strings.Contains(text, `\x`) || len(text) < 253 {
			t.Errorf("cut after %d: %q", n, text)
		}
	}
	if text, _, _ := shown(t, strings.Repeat("\x80", 300)); text != strings.Repeat(`\x80`, 256) {
		t.Errorf("%q", text)
	}
}

type (
	pair     struct{ Namespace, Name string }
	named    struct{ Namespace, Name string }
	stringer int
	evil     int
	id       string
)

func (n named) String() string   { return n.Namespace + "/" + n.Name }
func (s stringer) Error() string { return fmt.Sprint("error ", int(s)) }
func (e evil) String() string {
	if e == 0 {
		panic("no")
	}
	panic(e) // which panics when it is printed
}

func TestKeysOfOtherTypes(t *testing.T) {
	check := func(text, want string) {
		t.Helper()
		if text != want {
			t.Errorf("shown as %q, want %q", text, want)
		}
	}
	text, _, _ := shown(t, pair{"a", "b"})
	check(text, "{Namespace:a Name:b}")
	text, _, _ = shown(t, named{"a", "b"})
	check(text, "a/b")
	text, _, _ = shown(t, stringer(4))
	check(text, "error 4")
	text, _, _ = shown(t, id("named string"))
	check(text, "named string")
	text, _, _ = shown(t, math.Inf(1))
	check(text, "+Inf")
	text, _, _ = shown[any](t, nil)
	check(text, "<nil>")
	text, _, _ = shown[any](t, named{"in", "any"})
	check(text, "in/any")
	text, _, _ = shown(t, [2]string{"<a>", "\n"})
	check(text, `[<a> \n]`)
	text, _, _ = shown(t, errors.New("an error"))
	check(text, "an error")
	text, _, _ = shown(t, evil(0))
	check(text, "%!v(PANIC=String method: no)")
	text, _, _ = shown(t, evil(1))
	check(text, "(debug_test.evil: cannot be printed)")
	// What a pointer leads to may be changing.
	if text, _, _ = shown(t, &pair{"a", "b"}); !strings.HasPrefix(text, "(*debug_test.pair)(0x") {
		t.Errorf("a pointer is shown as %q", text)
	}
	text, _, _ = shown[*named](t, nil)
	check(text, "<nil>")
}

// nosy is a key that uses its queue while it is printed.
type nosy struct{ q *workqueue.Typed[nosy] }

func (n nosy) String() string {
	n.q.Add(nosy{})
	n.q.Snapshot(10)
	return fmt.Sprint("queued: ", n.q.Len())
}

func TestKeyThatCallsItsQueue(t *testing.T) {
	h := newHandler(t, debug.Options{})
	q := workqueue.NewTyped[nosy]()
	q.Add(nosy{q})
	debug.Register(h, "q", q)
	wantBody(t, get(h, "?queue=q"), "queued: 2")
}
