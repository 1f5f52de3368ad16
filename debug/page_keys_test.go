package debug_test

import (
	"context"
	"errors"
	"fmt"
	"html"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/worker"
)

// All keys of a state can be paged, in the order of their times. Failing ones have the time of the next try,
// and with an error only those that have it.
func TestAllKeysOfAState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newAudited(t)
		q := newRateLimited[string](t, "q", h)
		pool := worker.New(q, func(_ context.Context, key string) error {
			if strings.HasPrefix(key, "odd") {
				return worker.Terminal(errors.New("odd: " + key))
			}
			return errors.New("broken")
		}, worker.Options[string]{Name: "q", Workers: 1, MetricsProvider: h})
		start(t, pool)
		for n := range 600 {
			q.Add(fmt.Sprintf("even %03d", n))
			if n < 3 {
				q.Add(fmt.Sprint("odd ", n))
			}
		}
		synctest.Wait()
		for query, want := range map[string]string{
			"failing":               "250 of 600 of 3 pages",
			"failing&page=3":        "100 of 600 of 3 pages",
			"failing&page=9":        "100 of 600 of 3 pages",
			"failing&error=nothing": "0 of 0 of 1 pages",
			"failing&error=broken":  "250 of 600 of 3 pages",
			"given_up":              "3 of 3 of 1 pages",
			"waiting&page=2":        "250 of 600 of 3 pages",
			"processing":            "0 of 0 of 1 pages",
		} {
			p := getJSON[keysPage](t, h, "?queue=q&state="+query)
			if got := fmt.Sprintf("%d of %d of %d pages", len(p.Keys), p.Total, p.Pages); got != want || p.More ||
				p.Error != "" {
				t.Errorf("%s: %s, %+v, want %s", query, got, p, want)
			}
		}
		p := getJSON[keysPage](t, h, "?queue=q&state=failing&page=3")
		if k := p.Keys[99]; k.Key != "even 599" || k.Error != "broken" || time.Until(k.Due) != time.Hour ||
			k.State != "waiting" {
			t.Errorf("the last one is %+v", k)
		}
		// No list of a state that does not exist says that no key is in it.
		if w := get(h, "?queue=q&state=running"); w.Code != http.StatusBadRequest {
			t.Errorf("an unknown state: status %d", w.Code)
		}
		wantBody(t, get(h, "?queue=q&state=what%3F"), "No such state", "given_up")
		wantBody(t, get(h, "?queue=q"), `25 of <a href="?queue=q&amp;state=failing">600</a>`)
		wantBody(t, get(h, "?queue=q&state=failing&page=2"), `data-refresh="5"`, "Failing</h2>",
			"250 of 600", `data-of="failing"`, "even 349", "Page 2 of 3")
		wantBody(t, get(h, "?queue=q&state=waiting"), "Waiting</h2>", "250 of 600", "even 000", `rel="next"`)
	})
}

// Errors that differ in names and numbers alone are counted together, and link to their keys.
func TestErrorsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newAudited(t)
		q := newRateLimited[string](t, "q", h)
		start(t, worker.New(q, func(_ context.Context, key string) error {
			switch key[0] {
			case 'a':
				return fmt.Errorf("writing %s: /srv/%s.part: no space left on device", key, key)
			case 'b':
				return fmt.Errorf("dial tcp 10.0.0.%d:443: connection refused", len(key))
			case 'c':
				return worker.Terminal(fmt.Errorf("got %d after %v", 500+len(key),
					time.Duration(len(key))*time.Millisecond))
			}
			return errors.New(key)
		}, worker.Options[string]{Name: "q", MetricsProvider: h}))
		for _, key := range []string{"acme/web", "acme/db", "acme/x y", "bb", "bbb", "cc", "cc2", "cc3", "1"} {
			q.Add(key)
		}
		synctest.Wait()
		want := []errorGroup{
			{"writing …: …: no space left on device", 3, 0, "no space left on device"},
			{"dial tcp …:…: connection refused", 2, 0, "connection refused"},
			{"got 503 after …", 0, 2, "got 503 after"},
			{"got 502 after …", 0, 1, "got 502 after"},
			{"…", 1, 0, ""},
		}
		d := getJSON[detail](t, h, "?queue=q")
		if got, want := fmt.Sprintf("%+v", d.Errors), fmt.Sprintf("%+v", want); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		wantBody(t, get(h, "?queue=q"), "Errors</h2>",
			`<a href="?error=no&#43;space&#43;left&#43;on&#43;device&amp;queue=q&amp;state=failing">3</a>`)
		for n := range 150 {
			q.Add(fmt.Sprint("bb", n))
		}
		synctest.Wait()
		if d := getJSON[detail](t, h, "?queue=q"); d.Errors[0].Failing != 152 {
			t.Errorf("%+v", d.Errors)
		}
		wantBody(t, get(h, "?queue=q"),
			"of all keys that fail or were given up, as far as they are known, … where they differ, the most frequent first</p>")
		// A short key is left out where it is a word, and not where it is a part of one.
		short := newRateLimited[int](t, "short", h)
		start(t, worker.New(short, func(_ context.Context, key int) error {
			return fmt.Errorf("%c: status 503", 'a'+rune(key))
		}, worker.Options[int]{MetricsProvider: h}))
		letters := newRateLimited[string](t, "letters", h)
		start(t, worker.New(letters, func(_ context.Context, key string) error {
			return fmt.Errorf("%s: not ready", key)
		}, worker.Options[string]{MetricsProvider: h}))
		for n := range 10 {
			short.Add(n)
			letters.Add(string('a' + rune(n)))
		}
		synctest.Wait()
		if e := getJSON[detail](t, h, "?queue=letters").Errors; len(e) != 1 || e[0].Error != "…: not ready" ||
			e[0].Failing != 10 {
			t.Errorf("%+v", e)
		}
		for _, e := range getJSON[detail](t, h, "?queue=short").Errors {
			if !strings.HasSuffix(e.Error, ": status 503") {
				t.Errorf("%+v", e)
			}
		}
		if p := getJSON[keysPage](t, h, "?queue=q&state=failing&error=tcp"); p.Total != 152 {
			t.Errorf("%+v", p)
		}
	})
}

// The buttons for all keys with a certain error are for those that are listed, however long the text is.
func TestLongErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newAudited(t)
		q := newRateLimited[string](t, "q", h)
		long := strings.Repeat("no space left on device, ", 20)
		start(t, worker.New(q, func(_ context.Context, key string) error { return errors.New(long + key) },
			worker.Options[string]{MetricsProvider: h}))
		q.Add("a")
		q.Add("b")
		synctest.Wait()
		asked := queryEscape(long + "a")
		wantBody(t, get(h, "?queue=q&state=failing&error="+asked), "1 of 1", `data-error="`+long+`a"`)
	})
}

// The link of a search to itself as JSON finds the same, and what stands in its field finds the key again.
func TestLongSearch(t *testing.T) {
	h := newHandler(t, debug.Options{})
	q := newRateLimited[string](t, "q", h)
	long := strings.Repeat("x", 300)
	for i := range 3 {
		q.Add(fmt.Sprint(long, i))
	}
	w := get(h, "?queue=q&key="+long+"1")
	_, link, _ := strings.Cut(w.Body.String(), `role="status"></span><a href="`)
	link, _, _ = strings.Cut(link, `"`)
	f := getJSON[found](t, h, html.UnescapeString(link))
	if !f.Exact || len(f.Keys) != 1 {
		t.Errorf("%d keys, exact: %v", len(f.Keys), f.Exact)
	}
	wantBody(t, w, `name="key" value="`+long[:256]+`"`)
	if f := find(t, h, "q", long[:256]); !f.Exact || len(f.Keys) != 3 {
		t.Errorf("%d keys, exact: %v", len(f.Keys), f.Exact)
	}
}

// A page of few keys refreshes itself, and so does a search among them. A search of more than 10,000
// does not, and says so.
func TestPagesOfKeysRefresh(t *testing.T) {
	inBubble(t, func(t *testing.T, h *debug.Handler) {
		q := newRateLimited[string](t, "q", h)
		start(t, worker.New(q, func(_ context.Context, key string) error {
			return worker.Terminal(errors.New("never"))
		}, worker.Options[string]{MetricsProvider: h, Logger: silent}))
		for n := range 12 {
			q.Add(fmt.Sprint("key ", n))
		}
		synctest.Wait()
		refreshes := func(page string, want bool) {
			t.Helper()
			body := get(h, page).Body.String()
			if strings.Contains(body, `data-refresh="5"`) != want || strings.Contains(body, "does not refresh itself") == want {
				t.Errorf("%s refreshes itself: %t", page, !want)
			}
		}
		pages := []string{"?queue=q", "?queue=q&state=given_up", "?queue=q&state=failing&error=never", "?queue=q&key=key+7",
			"?queue=q&state=waiting", "?queue=q&key=key"}
		for _, page := range pages {
			refreshes(page, true)
		}
		for n := range 10_001 {
			q.AddAfter(fmt.Sprint("waits ", n), time.Hour)
		}
		for i, page := range pages {
			refreshes(page, i < 3) // The others go over all keys of the queue.
		}
		for n := range 10_001 {
			fail(t, q, fmt.Sprint("waits ", n))
		}
		refreshes("?queue=q&state=failing&error=never", false)
	})
}

// A failing key that is in the line already has no time at which it comes, and the page says where it is.
func TestNextTryOfQueuedKey(t *testing.T) {
	inBubble(t, func(t *testing.T, h *debug.Handler) {
		q := newRateLimited[string](t, "q", h)
		start(t, worker.New(q, func(ctx context.Context, key string) error {
			if key == "blocks" {
				<-ctx.Done()
				return nil
			}
			return errors.New("broken")
		}, worker.Options[string]{Workers: 1, MetricsProvider: h, Logger: silent}))
		q.Add("fails")
		synctest.Wait()
		q.Add("blocks")
		synctest.Wait()
		q.Add("fails")
		for _, page := range []string{"?queue=q", "?queue=q&state=failing", "?queue=q&state=failing&error=broken"} {
			wantBody(t, get(h, page), "Failing</h2>", `data-label="Next try in">queued</td>`)
		}
	})
}
