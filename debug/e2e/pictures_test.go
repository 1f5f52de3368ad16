package e2e

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/worker"
)

// rollouts is a queue in an outage: 5,000 keys are queued behind four busy workers, and one is stuck.
// Fifty keys fail because a database is down, and others since. Fifty are on hold, and some were given up.
func (p *program) rollouts(t *testing.T) {
	q := p.limited(t, "rollouts", time.Hour) // No retry comes, so that the pictures are always the same.
	gate := make(chan struct{})
	pool := worker.New(q, func(ctx context.Context, key string) error {
		p.clock.Step(20 * time.Millisecond)
		kind, name, _ := strings.Cut(key, "/")
		switch kind {
		case "held":
			worker.CallOf(ctx).Hold(name+" is rolled out", 2*time.Hour)
			return worker.RequeueAfter(0)
		case "shop":
			return errors.New("database is down")
		case "order":
			return fmt.Errorf("order %s conflicts", name)
		case "bad":
			return worker.Terminal(fmt.Errorf("parsing the manifest of %s: unexpected end of file", name))
		}
		<-gate
		return nil
	}, worker.Options[string]{
		Workers: 4, MaxRetries: 8, StuckAfter: 2 * time.Minute, Clock: p.clock, MetricsProvider: p.page,
		Logger: slog.New(slog.DiscardHandler), Drain: worker.Nothing,
	})
	ended := make(chan error)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- pool.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		close(gate)
		<-ended
	})
	handled := uint64(0)
	add := func(format string, n int) {
		for i := range n {
			q.Add(fmt.Sprintf(format, 100+i))
			handled++
			await(t, func() bool { return pool.Stats().Handled >= handled })
		}
		p.step(t, 30*time.Second)
	}
	q.Add("stuck/checkout")
	await(t, func() bool { return pool.Stats().Busy == 1 })
	add("held/web-%d", 50)
	add("shop/cart-%d", 50)
	add("order/%d", 100)
	add("bad/chart-%d", 12)
	for i := range 4 {
		q.Add(fmt.Sprintf("rollout/api-%d", i))
	}
	await(t, func() bool { return pool.Stats().Busy == 4 })
	for i := range 5000 {
		q.Add(fmt.Sprintf("rollout/web-%04d", i))
		if i%250 == 0 {
			p.step(t, 5*time.Second)
		}
	}
	await(t, func() bool { return pool.Stats().Stuck > 0 })
}

// structure returns the tiles, the charts, and the sections with their column heads of a page.
const structure = `[
	...[...document.querySelectorAll("main > .tiles dt")].map((e) => "tile " + e.textContent),
	...[...document.querySelectorAll("figcaption > b")].map((e) => "chart " + e.textContent),
	...[...document.querySelectorAll("main h2, main thead")].map((e) => e.nodeName === "H2" ? "section " + e.textContent
		: "columns " + [...e.querySelectorAll("th")].map((head) => head.textContent.replace(/\s+/g, " ")).join(" | ")),
].join("\n")`

// The pictures in docs/debug.md show pages as they are: their tiles, charts, sections and columns are those
// in pictures.txt. If they are not, make pictures and text anew. They are here so that they are not in the
// zip of the module that users download:
//
//	WORKQUEUE_PICTURES=1 go test -trimpath -run TestPictures .
func TestPictures(t *testing.T) {
	p := newProgramWith(t, debug.Options{Actions: true, Audit: func(*http.Request, debug.Action) {}})
	p.rollouts(t)
	b := newBrowser(t)
	var now strings.Builder
	for _, page := range []struct{ name, query string }{
		{"list", ""}, {"queue", "?queue=rollouts"}, {"allkeys", "?queue=uploads&state=failing"},
		{"key", p.keyPage(t, "uploads", "2026-11-20/phone-14.heic")},
	} {
		for _, l := range looks[:2] {
			b.be(l)
			b.open(p.url + page.query)
			if file := page.name + map[bool]string{true: "-dark"}[l.dark] +
				".png"; os.Getenv("WORKQUEUE_PICTURES") != "" {
				b.picture(filepath.Clean(file))
			}
		}
		fmt.Fprintf(&now, "== %s\n%s\n", page.name, eval[string](b, structure))
	}
	if os.Getenv("WORKQUEUE_PICTURES") != "" {
		if err := os.WriteFile("pictures.txt", []byte(now.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if then, err := os.ReadFile("pictures.txt"); err != nil || string(then) != now.String() {
		t.Errorf("the pictures are old (%v): make them anew. The pages have\n%s", err, now.String())
	}
	b.wantNoComplaints()
}

// What is wrong comes first, on a desk and on a phone: the stuck key is on the first screens, each tile leads
// to its section, and the forms leave room for the page.
func TestWhatIsWrongComesFirst(t *testing.T) {
	p := newProgramWith(t, debug.Options{Actions: true, Audit: func(*http.Request, debug.Action) {}})
	p.rollouts(t)
	b := newBrowser(t)
	for _, l := range []look{{"desktop", 1280, 900, false}, {"phone", 390, 844, true}} {
		b.be(l)
		b.open(p.url + "?queue=rollouts")
		const top = `document.querySelector("[aria-labelledby=processing] tbody tr").getBoundingClientRect().bottom`
		if y := eval[float64](b, top); y > float64(l.height) {
			t.Errorf("%s: the stuck key ends %v pixels down", l.name, y)
		}
		first := eval[string](b, `document.querySelector("[aria-labelledby=processing] tbody tr").innerText`)
		if !strings.Contains(first, "stuck/checkout") {
			t.Errorf("%s: the first key that runs is %q", l.name, first)
		}
		if y := eval[float64](b, `document.querySelector("main").getBoundingClientRect().top`); y > float64(
			l.height)/4 {
			t.Errorf("%s: the page begins %v pixels down", l.name, y)
		}
		lost := eval[string](b, `[...document.querySelectorAll(".tiles a[href^='#']")]
			.filter((a) => document.getElementById(a.hash.slice(1)) === null).map((a) => a.hash).join()`)
		if n := eval[int](b, `document.querySelectorAll(".tiles a[href^='#']").length`); lost != "" || n < 8 {
			t.Errorf("%s: %d tiles have links, these lead nowhere: %s", l.name, n, lost)
		}
		// The number of each section leads to all of its keys, those on hold too.
		if n := eval[int](b, `document.querySelectorAll("section .hint a[href*='state=']").length`); n < 4 {
			t.Errorf("%s: %d numbers of sections are links", l.name, n)
		}
		held := eval[string](b, `document.querySelector("[aria-labelledby=on_hold] .hint").innerText`)
		if !strings.HasPrefix(held, "25 of 50") {
			t.Errorf("%s: on hold: %q", l.name, held)
		}
		// Normal holds are no trouble: keys on hold wait on one line each, and no time that is red is theirs.
		if wraps := eval[bool](b,
			`document.querySelector("[aria-labelledby=on_hold] tbody th code").getClientRects().length > 1`); wraps {
			t.Errorf("%s: keys on hold wrap", l.name)
		}
	}
	b.wantNoComplaints()
}
