package debug_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/foreign"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

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
	slashed  struct{ Namespace, Name string }
	stringer int
	evil     int
	id       string
)

func (n slashed) String() string { return n.Namespace + "/" + n.Name }
func (s stringer) Error() string { return fmt.Sprint("error ", int(s)) }
func (e evil) String() string {
	panic("no")
}

func TestKeysOfOtherTypes(t *testing.T) {
	texts := func(keys ...any) (texts []string) {
		for _, key := range keys {
			text, _, _ := shown(t, key)
			texts = append(texts, text)
		}
		return texts
	}
	got := texts(pair{"a", "b"}, slashed{"a", "b"}, stringer(4), id("named string"), math.Inf(1), nil,
		[2]string{"<a>", "\n"},
		errors.New("an error"), evil(0), (*slashed)(nil))
	want := []string{"{Namespace:a Name:b}", "a/b", "error 4", "named string", "+Inf", "<nil>", `[<a> \n]`,
		"an error", "%!v(PANIC=String method: no)", "<nil>"}
	if !slices.Equal(got, want) {
		t.Errorf("shown as %q, want %q", got, want)
	}
	// What a pointer leads to may be changing.
	if text, _, _ := shown(t, &pair{"a", "b"}); !strings.HasPrefix(text, "(*debug_test.pair)(0x") {
		t.Errorf("a pointer is shown as %q", text)
	}
	if text, _, _ := shown(t, slashed{"in", "its type"}); text != "in/its type" {
		t.Errorf("in a queue of one type a key is shown as %q", text)
	}
}

var offer = regexp.MustCompile(`data-action="([a-z_]*)"`)

// wantOffered asserts which actions a page offers.
func wantOffered(t *testing.T, h http.Handler, link, want string) {
	t.Helper()
	var offered []string
	for _, match := range offer.FindAllStringSubmatch(get(h, link).Body.String(), -1) {
		offered = append(offered, match[1])
	}
	if got := strings.Join(offered, " "); got != want {
		t.Errorf("%s offers %s, want %s", link, got, want)
	}
}

// A key's page has its life: who added it, its attempts with their errors and stacks, and when it comes next.
func TestKeyPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newAudited(t)
		q := priorityqueue.New(priorityqueue.Config[string]{
			Name: "q", MetricsProvider: h, Group: func(key string) string { return key[:1] },
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Minute, time.Hour),
		})
		pool := worker.New(q, func(ctx context.Context, key string) error {
			switch {
			case key == "runs":
				<-ctx.Done()
				return nil
			case worker.CallOf(ctx).Attempt() == 2:
				panic("a bug <b>")
			}
			time.Sleep(2 * time.Second)
			return fmt.Errorf("no answer to call %d <i>", worker.CallOf(ctx).Attempt())
		}, worker.Options[string]{Workers: 2, MaxRetries: 4, StuckAfter: time.Minute, MetricsProvider: h})
		start(t, pool)
		began := time.Now()
		q.AddCause("fails", workqueue.Cause{Reason: "Secret <u> changed",
			TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})
		q.AddCause("runs", workqueue.Cause{Reason: "it is time"})
		time.Sleep(3*time.Minute + 5*time.Second) // "fails" was tried at 0, 62 and 182 s.

		page := func(link string) story { return getJSON[story](t, h, link) }
		link := linksToKeys(h, "?queue=q&key=fails")[0]
		s := page(link)
		k := s.Key
		if s.Queue.ID != "q" || k.Key != "fails" || k.State != "waiting" || k.Attempt != 3 || k.MaxAttempts != 5 ||
			k.Requeues != 3 ||
			k.Group != "f" || k.Error != "no answer to call 3 <i>" || k.Due.Sub(began) != 424*time.Second ||
			k.Since.IsZero() {
			t.Errorf("%+v", s)
		}
		wantBody(t, get(h, link), "<title>fails · Work queues</title>", `<a href="?queue=q">q</a>`,
			"It waits for its time: attempt 4 of 5 comes in 3m 59s.",
			"<dd>3 of 5</dd>", "<dt>Last error</dt>", "call 3 &lt;i&gt;", `data-action="retry"`,
			`data-action="forget"`, `data-action="pause_group"`)

		wantOffered(t, h, link, "retry remove forget pause_group")
		wantOffered(t, h, linksToKeys(h, "?queue=q&key=runs")[0], "retry remove cancel pause_group")

		running := page(linksToKeys(h, "?queue=q&key=runs")[0]).Key
		if running.State != "processing" || !running.Stuck || !strings.Contains(running.Stack, "TestKeyPage") ||
			running.Attempt != 1 ||
			len(running.Causes.Last) != 1 || running.Causes.Last[0].Reason != "it is time" ||
			!running.Causes.Last[0].Time.Equal(began) {
			t.Errorf("%+v", running)
		}
		wantBody(t, get(h, linksToKeys(h, "?queue=q&key=runs")[0]),
			"A worker has had it for 3m 05s: attempt 1 of 5.", `data-action="cancel"`,
			"Stack</h2>", "<pre>", "TestKeyPage", "Why it was added</h2>", "it is time")
		// The list of running keys also has the stack, folded, and why the key was added.
		wantBody(t, get(h, "?queue=q"), "Running</h2>", "<code>runs</code>",
			`<span class="cause">it is time</span>`, "<details", "<summary>Stack</summary>", "TestKeyPage")

		q.AddCause("fails", workqueue.Cause{Reason: "Secret <u> changed",
			TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})
		synctest.Wait()
		k = page(link).Key // It runs, because of that add.
		if k.State != "processing" || k.Attempt != 4 || len(k.Causes.Last) != 1 ||
			k.Causes.Last[0].TraceParent == "" {
			t.Errorf("%+v", k)
		}
		wantBody(t, get(h, link), "Secret &lt;u&gt; changed",
			"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
		time.Sleep(2 * time.Hour)
		if k = page(link).Key; k.State != "given_up" || k.Attempt != 5 {
			t.Errorf("%+v", k)
		}
		wantBody(t, get(h, link), "It was given up after attempt 5 of 5")
		wantOffered(t, h, link, "retry forget")
		pool.Forget("fails")
		q.Forget("fails")
		if s := page(link); len(s.Keys) > 0 || !s.Exact || s.Incomplete {
			t.Errorf("%+v", s)
		}
		wantBody(t, get(h, link), "No key in this queue is called <code>fails</code>: it is not queued")
	})
}

// Every key has its own page, however it is printed, and that page stays after the key has left the lists.
func TestPagesOfUnusualKeys(t *testing.T) {
	long := strings.Repeat("long", 100)
	keys := []any{"", "a\nb", `a\nb`, long + "1", long + "2", "\xff\x00", "</script>&\"'", "sp ace", nil, 17,
		"17", pair{"a", "b"}, pair{"a", "c"},
		slashed{"x/y", "z"}, slashed{"x", "y/z"}, evil(0), id("sp ace"), true, "a+b", "ä€"}
	h := newAudited(t)
	q := priorityqueue.New(priorityqueue.Config[any]{Name: "queue & more", MetricsProvider: h})
	defer q.ShutDown()
	for _, key := range keys {
		q.AddAfter(key, time.Hour)
	}
	links := linksToKeys(h, "?queue=queue+%26+more&state=waiting")
	if len(links) != len(keys) {
		t.Fatalf("%d links to %d keys", len(links), len(keys))
	}
	for n := range 2000 { // None of the keys is in a list any more.
		q.AddAfter(fmt.Sprint("filler ", n), time.Minute)
	}
	ids := make(map[string]bool)
	for i, link := range links {
		s := getJSON[story](t, h, link)
		if s.Key.State != "waiting" || s.Error != "" || s.Incomplete || ids[s.Key.ID+s.Key.Key] {
			t.Errorf("%v: %+v", keys[i], s)
		}
		ids[s.Key.ID+s.Key.Key] = true
		// What is done there is done to that key and to no other one.
		before := q.Len()
		if h.act(t, 200, s.Queue.ID, "retry", "key", s.Key.Key, "id", s.Key.ID); q.Len() != before+1 {
			t.Errorf("%v: after retry %d are queued", keys[i], q.Len())
		}
		if got := getJSON[story](t, h, link).Key.State; got != "queued" {
			t.Errorf("%v: after retry it is %s", keys[i], got)
		}
		if h.act(t, 200, s.Queue.ID, "remove", "key", s.Key.Key, "id", s.Key.ID); q.Len() != before {
			t.Errorf("%v: after remove %d are queued", keys[i], q.Len())
		}
		if got := getJSON[found](t, h, link); len(got.Keys) > 0 {
			t.Errorf("%v: after it was removed: %+v", keys[i], got)
		}
		h.act(t, 404, s.Queue.ID, "retry", "key", s.Key.Key, "id", s.Key.ID)
	}
	if f := getJSON[found](t, h, "?queue=queue+%26+more&key=filler&id=xyz"); len(f.Keys) > 0 {
		t.Errorf("%+v", f)
	}
	if w := get(h, "?queue=none&key=a&id=b"); w.Code != 404 {
		t.Errorf("%d", w.Code)
	}
}

// A page of a key that is a string asks for that key alone.
func TestKeyPageIsCheap(t *testing.T) {
	h := newHandler(t, debug.Options{})
	m := &manyKeys{n: 20_000}
	i := m.inspector()
	snapshots := 0
	i.Snapshot = func(limit int) workqueue.Snapshot[any] { snapshots++; return workqueue.Snapshot[any]{} }
	inspect(h, "q", i)
	link := linksToKeys(h, "?queue=q&key=key+18765")[0]
	wantBody(t, get(h, link), "<code>key 18765</code></a></h1>",
		`<main id="live" tabindex="-1" data-refresh="5">`)
	m.reads, snapshots = 0, 0
	for range 10 {
		if s := getJSON[story](t, h, link); s.Key.State != "queued" || s.Key.Key != "key 18765" {
			t.Errorf("%+v", s)
		}
	}
	if m.reads != 0 || snapshots != 0 {
		t.Errorf("10 pages have read all keys %d times, and %d snapshots", m.reads, snapshots)
	}
	m.n = 18_000 // The key is gone, so all others are looked at. Its page does not repeat that by itself.
	wantBody(t, get(h, link), `<main id="live" tabindex="-1">`, "This page does not refresh itself",
		"is called <code>key 18765</code>")
	m.n = 20_000
	wantBody(t, get(h, link), "<code>key 18765</code></a></h1>", `data-refresh="5"`)
	body := get(h, "?queue=q&key=none&id=none").Body.String()
	if strings.Contains(body, "data-refresh") || !strings.Contains(body, "does not refresh itself") {
		t.Error("a key that is never found is searched for again and again")
	}
}

// Of queues with one name, each shows what its own pool knows of a key, and hands on what is done to that
// one.
func TestPoolOfTheKeysQueue(t *testing.T) {
	h := newAudited(t)
	cancelled := make(map[string]int)
	for _, name := range []string{"one", "two"} {
		q := workqueue.NewTyped[string]()
		debug.Register(h.Handler, "tenant", q)
		q.Add("a")
		q.Get()
		pool := inspectorOf(func(int) worker.Snapshot[any] {
			return worker.Snapshot[any]{Stats: worker.Stats{Name: "tenant", Wanted: 1},
				Running: []worker.RunningKey[any]{{Key: "a"}},
				GivenUp: []worker.FailedKey[any]{{Key: "a", Err: name + " failed"}}}
		})
		pool.Queue.Queue = q
		pool.Cancel = func(any) bool { cancelled[name]++; return true }
		h.InspectPool("tenant", pool)
	}
	ids := strings.Fields(getJSON[list](t, h, "").ids())
	for i, id := range ids {
		want := []string{"one", "two"}[i]
		d := getJSON[detail](t, h, "?queue="+id)
		if len(d.Queue.Pools) != 1 {
			t.Errorf("%s shows %d pools", id, len(d.Queue.Pools))
		}
		s := getJSON[story](t, h, linksToKeys(h, "?queue="+id+"&key=a")[0])
		if s.Key.Error != want+" failed" {
			t.Errorf("%s: %+v", id, s.Key)
		}
		if h.act(t, 200, id, "cancel", "key", "a"); cancelled[want] != 1 {
			t.Errorf("%s: %v", id, cancelled)
		}
	}
}

// A foreign queue lists only the keys that are held. A failing key still has its page.
func TestFailingKeysOfForeignQueue(t *testing.T) {
	inBubble(t, func(t *testing.T, h *debug.Handler) {
		limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[any](time.Hour, time.Hour)
		q := foreign.RateLimiting[any](struct {
			workqueue.TypedRateLimitingInterface[any]
		}{workqueue.NewTypedRateLimitingQueue(limiter)})
		debug.Register(h, "q", q)
		start(t, worker.New(q, func(context.Context, any) error { return errors.New("broken") },
			worker.Options[any]{Name: "q", MetricsProvider: h, Drain: worker.Nothing, Logger: silent}))
		q.Add("a")
		q.Add(7)
		synctest.Wait()
		failing := getJSON[detail](t, h, "?queue=q").Failing
		if len(failing) != 2 {
			t.Fatalf("%+v", failing)
		}
		for _, k := range failing {
			if f := getJSON[found](t, h, "?queue=q&key="+k.Key+"&id="+k.ID); f.Keys[0].State != "failing" {
				t.Errorf("%+v", f)
			}
		}
	})
}
