package e2e

import (
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// looks are the screens and readers for whom the pages are made.
var looks = []look{
	{"desktop-light", 1280, 500, false}, {"desktop-dark", 1280, 500, true},
	{"phone-light", 360, 700, false}, {"phone-dark", 360, 700, true},
	{"tablet-light", 800, 700, false}, {"tablet-dark", 800, 700, true},
}

// pages are those that tests look at, by name.
func (p *program) pages(t *testing.T) map[string]string {
	return map[string]string{
		"list": "", "queue": "?queue=uploads", "stuck": "?queue=orders",
		"found": "?queue=uploads&key=2026-11-20/camera-57.raw", "none": "?queue=none",
		"reports": "?queue=reports", "search": "?queue=orders&key=acme",
		"errors":  "?queue=uploads&state=failing&error=space",
		"allkeys": "?queue=uploads&state=waiting", "key": p.keyPage(t, "uploads", "2026-11-20/phone-14.heic"),
		"stuckkey":  p.keyPage(t, "uploads", "ubuntu-26.04.iso"),
		"queuedkey": p.keyPage(t, "reports", "initech/monthly-02"),
	}
}

// keyPage returns the address of a key's page.
func (p *program) keyPage(t *testing.T, queue, key string) string {
	query := url.Values{"queue": {queue}, "key": {key}, "format": {"json"}}
	response, err := http.Get(p.url + "?" + query.Encode())
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var answer struct {
		Keys []struct{ ID string }
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || len(answer.Keys) != 1 {
		t.Fatalf("%v %+v", err, answer)
	}
	return "?" + url.Values{"queue": {queue}, "key": {key}, "id": {answer.Keys[0].ID}}.Encode()
}

// The pages fit the screen: nothing needs scrolling sideways, no tile is empty, and text stands out from
// its ground.
func TestFits(t *testing.T) {
	p := newProgramWith(t, debug.Options{Actions: true, Audit: func(*http.Request, debug.Action) {}})
	p.reports(t)
	invoices := operate.Inspect(p.invoice)
	p.page.InspectPool("thumbnails", worker.Inspector{Queue: invoices, Stats: func() worker.Stats {
		return worker.Stats{Name: "thumbnails", Wanted: 1000, Living: 1000, Busy: 1000, Stuck: 100,
			GivenUpKeys: 1_234_567}
	}, Keys: func(worker.KeyState) iter.Seq[worker.KeySnapshot[any]] {
		return func(func(worker.KeySnapshot[any]) bool) {}
	}})
	debug.Register(p.page, strings.Repeat("long-name", 20), workqueue.NewTyped[string]())
	fail(t, p.orders, strings.Repeat("unbreakable", 100_000))
	b := newBrowser(t)
	all := slices.Clone(looks)
	for _, width := range []int64{320, 390, 700, 750, 850, 900, 1000, 1900} {
		all = append(all, look{"", width, 800, width%20 == 0})
	}
	for _, l := range all {
		b.be(l)
		for name, query := range p.pages(t) {
			b.open(p.url + query)
			if wide := eval[int64](b, `document.documentElement.scrollWidth`); wide > l.width {
				t.Errorf("%s is %d wide on a screen of %d", name, wide, l.width)
			}
			if over := eval[string](b,
				`[...document.querySelectorAll("td, dd")].filter((cell) => cell.scrollWidth > cell.clientWidth + 1).map((cell) => cell.innerText).join()`); over != "" {
				t.Errorf("in %s at %d these are wider than their cells: %s", name, l.width, over)
			}
			// The tiles of each row reach from edge to edge.
			if gaps := eval[int](b, `[...document.querySelectorAll(".tiles")].filter((tiles) => {
				const last = tiles.lastElementChild.getBoundingClientRect();
				return tiles.getBoundingClientRect().right - last.right > 4 || last.height === 0 || [...tiles.children].some((tile) => tile.innerText.trim() === "");
			}).length`); gaps > 0 {
				t.Errorf("%s has %d rows with an empty tile at %d", name, gaps, l.width)
			}
			if pale := eval[string](b, paleText); pale != "" {
				t.Errorf("%s at %d, dark %t: hard to read: %s", name, l.width, l.dark, pale)
			}
		}
	}
}

// paleText returns a text whose contrast to the ground is below 4.5, what WCAG asks for at least, or "".
const paleText = `(() => {
	const light = (color) => {
		const [r, g, b] = color.match(/[\d.]+/g).slice(0, 3).map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const groundOf = (node) => {
		for (; node !== null; node = node.parentElement) {
			const ground = getComputedStyle(node).backgroundColor;
			if (ground !== "rgba(0, 0, 0, 0)") return ground;
		}
		return getComputedStyle(document.body).backgroundColor;
	};
	for (const node of document.querySelectorAll("body *")) {
		if (node.children.length > 0 || node.textContent.trim() === "" || node.closest("svg, script") !== null || node.getClientRects().length === 0) continue;
		const [a, b] = [light(getComputedStyle(node).color), light(groundOf(node))].sort((a, b) => b - a);
		if ((a + 0.05) / (b + 0.05) < 4.5) return node.className + " " + node.textContent;
	}
	return "";
})()`

// reports is a priority queue that is paused, and has a group at its limit.
func (p *program) reports(t *testing.T) {
	q := priorityqueue.New(priorityqueue.Config[string]{
		Name: "reports", Clock: p.clock, MetricsProvider: p.page,
		Group: func(key string) string { return key[:strings.Index(key, "/")] },
		Limit: func(string) int { return 2 },
	})
	t.Cleanup(q.ShutDown)
	for i := range 6 {
		q.AddWithOpts(priorityqueue.AddOpts{Priority: 10}, fmt.Sprintf("acme/yearly-%d", 2020+i))
	}
	q.Get()
	q.Get()
	for i, group := range []string{"globex", "initech", "globex", "umbrella"} {
		q.AddWithOpts(priorityqueue.AddOpts{Priority: i - 2}, fmt.Sprintf("%s/monthly-%02d", group, i+1))
	}
	q.AddAfter("initech/daily", time.Hour)
	for _, what := range []string{"ConfigMap initech/report changed", "Secret initech/mail changed",
		"ConfigMap initech/report changed"} {
		q.AddCause("initech/monthly-02", workqueue.Cause{Reason: what,
			TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})
	}
	q.Pause(operate.UntilResumed)
	q.PauseGroup("globex", operate.UntilResumed)
}
