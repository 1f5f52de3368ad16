package e2e

import (
	"context"
	"fmt"
	"io/fs"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
)

const hostile = `<script>document.title='owned'</script><img src=x onerror="document.title='owned'">`

// program is one with a few queues, on a clock that stands still until it is stepped.
type program struct {
	clock *watchedClock
	page  *debug.Handler
	// orders has a stuck key.
	orders  workqueue.ExtendedRateLimiting[string]
	invoice workqueue.ExtendedRateLimiting[string]
	url     string
}

func newProgram(t *testing.T) *program { return newProgramWith(t, debug.Options{}) }

func newProgramWith(t *testing.T, o debug.Options) *program {
	start := time.Date(2026, 11, 20, 9, 14, 3, 0, time.UTC)
	p := &program{clock: &watchedClock{FakeClock: testingclock.NewFakeClock(start)}}
	// Samples are taken when the clock is stepped; here the lines come from real queues nevertheless.
	o.Clock = p.clock
	p.page = debug.NewHandler(o)
	t.Cleanup(p.page.Close)
	mux := http.NewServeMux()
	mux.Handle("/debug/workqueue", p.page)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	p.url = server.URL + "/debug/workqueue"

	p.orders = p.queue(t, "orders")
	p.invoice = p.queue(t, "invoices")
	mail := p.queue(t, "mail")
	p.queue(t, "thumbnails")
	for i, step := range []string{"acme/web", "acme/api", "globex/checkout"} {
		p.orders.Add(step)
		if key, _ := p.orders.Get(); key != step {
			t.Fatalf("got %q", key)
		}
		p.step(t, time.Duration(i+1)*45*time.Second)
	}
	for n := range 9 {
		fail(t, p.invoice, fmt.Sprintf("2026-11/%05d", 4711+n*17))
	}
	for n := range 90 {
		depth := int(40 + 35*math.Sin(float64(n)/9) + float64(n*n%11))
		for p.orders.Len() < depth {
			p.orders.Add(fmt.Sprintf("acme/order-%05d", 10000+n*200+p.orders.Len()))
		}
		for p.orders.Len() > depth {
			key, _ := p.orders.Get()
			p.clock.Step(20 * time.Millisecond)
			p.orders.Done(key)
		}
		for k := range n * n % 17 {
			mail.Add(fmt.Sprintf("reader-%d@example.org", k))
		}
		p.step(t, 5*time.Second)
		for mail.Len() > 0 {
			key, _ := mail.Get()
			mail.Done(key)
		}
	}
	p.uploads(t)
	p.orders.AddAfter("acme/later", 95*time.Second)
	p.orders.AddAfter("globex/renewal", 3*time.Hour)
	for _, key := range []string{hostile, "globex/checkout-17", "initech/refund-881"} {
		fail(t, p.orders, key)
	}
	return p
}

// fail says that a call for key has failed.
func fail(t *testing.T, q workqueue.ExtendedRateLimiting[string], key string) {
	t.Helper()
	if _, err := q.Fail(t.Context(), key, workqueue.Failure{}); err != nil {
		t.Error(err)
	}
}

// uploads is a queue with workers whose disk is full.
func (p *program) uploads(t *testing.T) {
	q := p.queue(t, "uploads")
	stuck := make(chan struct{})
	pool := worker.New(q, func(_ context.Context, key string) error {
		p.clock.Step(40 * time.Millisecond)
		switch {
		case strings.HasSuffix(key, ".iso"):
			<-stuck
		case strings.HasSuffix(key, ".heic"):
			panic("the thumbnail has no size")
		case strings.HasSuffix(key, ".mp4"):
			return worker.Terminal(&fs.PathError{Op: "write", Path: "/srv/uploads/" + key + ".part",
				Err: syscall.ENOSPC})
		case strings.HasSuffix(key, ".raw"):
			return fmt.Errorf("copying %s: %w", key, &fs.PathError{Op: "write", Path: "/srv/uploads/" + key + ".part",
				Err: syscall.ENOSPC})
		}
		return nil
	}, worker.Options[string]{Workers: 4, MaxRetries: 4, StuckAfter: time.Minute, Clock: p.clock,
		MetricsProvider: p.page})
	ended := make(chan error)
	go func() { ended <- pool.Run(t.Context()) }()
	t.Cleanup(func() {
		close(stuck)
		<-ended
	})
	handled := uint64(0)
	upload := func(name string, n int) {
		handled++
		key := fmt.Sprintf(name, n)
		q.(workqueue.Extended[string]).AddCause(key, workqueue.Cause{
			Reason: "upload of " + key + " ended", TraceParent: fmt.Sprintf("00-%032x-%016x-01",
				0x5be91c2d+n, 0x2a1f+n),
		})
		await(t, func() bool { return pool.Stats().Handled >= handled })
	}
	q.Add("ubuntu-26.04.iso")
	for n := range 60 {
		for k := range 3 + n%7 + n/20*n%5 {
			upload("2026-11-20/scan-%04d.pdf", n*10+k)
		}
		if n > 40 && n%3 == 0 {
			upload("2026-11-20/camera-%d.raw", n)
		}
		if n > 40 && n%8 == 0 {
			upload("2026-11-20/film-%d.mp4", n)
		}
		if n == 14 {
			upload("2026-11-20/phone-%d.heic", n)
		}
		p.step(t, 5*time.Second)
		if n == 20 {
			await(t, func() bool { return pool.Stats().Stuck > 0 })
		}
	}
}

// await waits until is returns true, but not forever.
func await(t *testing.T, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not come")
		}
	}
}

func (p *program) queue(t *testing.T, name string) workqueue.ExtendedRateLimiting[string] {
	return p.limited(t, name, time.Minute)
}

// limited returns a queue whose keys are retried after base.
func (p *program) limited(t *testing.T, name string,
	base time.Duration) workqueue.ExtendedRateLimiting[string] {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](base, 24*time.Hour)
	q := workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[string]{
		Name: name, Clock: p.clock, MetricsProvider: p.page,
	})
	t.Cleanup(q.ShutDown)
	return q.(workqueue.ExtendedRateLimiting[string])
}

// step lets time pass, by multiples of the five seconds at which the sampler looks, and lets it look.
func (p *program) step(t *testing.T, d time.Duration) {
	t.Helper()
	for ; d > 0; d -= 5 * time.Second {
		p.clock.awaitMore(t, 0)
		before := p.clock.waits.Load()
		p.clock.Step(5 * time.Second)
		p.clock.awaitMore(t, before)
	}
}

// watchedClock counts how often somebody is about to wait for the next tick: the sampler does so when it has
// looked at all queues.
type watchedClock struct {
	*testingclock.FakeClock
	waits atomic.Int64
}

// awaitMore waits until somebody has waited more often than n times.
func (c *watchedClock) awaitMore(t *testing.T, n int64) {
	t.Helper()
	for end := time.Now().Add(time.Minute); c.waits.Load() <= n; time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatal("the sampler does not look")
		}
	}
}

func (c *watchedClock) NewTicker(d time.Duration) clock.Ticker {
	return watchedTicker{c.FakeClock.NewTicker(d), &c.waits}
}

type watchedTicker struct {
	clock.Ticker
	waits *atomic.Int64
}

func (t watchedTicker) C() <-chan time.Time {
	t.waits.Add(1)
	return t.Ticker.C()
}

func TestPage(t *testing.T) {
	p := newProgram(t)
	b := newBrowser(t)
	b.be(look{"desktop", 1280, 900, false})

	b.open(p.url)
	if got := eval[string](b, `document.querySelector("tbody a").textContent`); got != "orders" {
		t.Errorf("the first queue is %q, want the one with the stuck key", got)
	}
	b.follow("tbody a")
	first := eval[string](b, `document.querySelector("[aria-labelledby=processing] tbody tr").textContent`)
	if !strings.Contains(first, "acme/web") || !strings.Contains(first, "17m") {
		t.Errorf("the first key that runs is %q, want the stuck one", first)
	}
	failing := eval[string](b, `document.querySelector("[aria-labelledby=failing] tbody code").textContent`)
	if failing != hostile {
		t.Errorf("the hostile key is shown as %q", failing)
	}
	if n := eval[int](b, `document.querySelectorAll("main script, main img").length`); n != 0 {
		t.Errorf("a key became %d elements", n)
	}
	if title := eval[string](b, `document.title`); title != "orders · Work queues" {
		t.Errorf("the title is %q", title)
	}
	// The style was let in, and with it the hash in the header is right. The refresh shows the same of the
	// script.
	if font := eval[string](b, `getComputedStyle(document.body).fontVariantNumeric`); font != "tabular-nums" {
		t.Errorf("numbers are %s", font)
	}
	b.wantNoComplaints()
}

func TestRefresh(t *testing.T) {
	p := newProgram(t)
	b := newBrowser(t)
	b.be(look{"phone", 390, 400, false})
	b.open(p.url + "?queue=orders")
	eval[bool](b, `window.kept = document.querySelector("[aria-labelledby=processing] tbody tr"),
		window.scrollTo(0, 500), document.querySelector("header a").focus({ preventScroll: true }), true`)
	p.orders.Done("acme/web")
	p.step(t, time.Minute)
	b.wait(`document.querySelector("[aria-labelledby=processing] code").textContent === "acme/api"`)
	// A row above has gone, so the browser scrolls by its height: what the reader looks at stays in its place.
	if !eval[bool](b, `kept.isConnected && scrollY > 400 && scrollY <= 500 &&
		document.activeElement.textContent === "Work queues"`) {
		t.Error("the page was made anew")
	}

	// It also asks when it comes to the front, and then at once: no need to wait for what must not happen.
	asks := func() bool {
		return eval[bool](b, `asked = 0, document.dispatchEvent(new Event("visibilitychange")), asked > 0`)
	}
	eval[bool](b,
		`window.asked = 0, window.fetch = (ask => (...of) => (asked++, ask(...of)))(window.fetch), true`)
	if !asks() {
		t.Error("it does not ask when it comes to the front")
	}
	eval[bool](b, `getSelection().selectAllChildren(document.querySelector("code")), true`)
	if asks() {
		t.Error("it is refreshed while a key is selected")
	}
	eval[bool](b, `getSelection().removeAllRanges(), true`)
	eval[bool](b, `document.getElementById("pause").click(), true`)
	if asks() {
		t.Error("it is refreshed while that is stopped")
	}
	p.orders.Done("acme/api")
	eval[bool](b, `document.getElementById("pause").click(), true`)
	b.wait(`document.querySelector("[aria-labelledby=processing] code").textContent === "globex/checkout"`)
	b.wantNoComplaints()

	p.page.Close()
	b.wait(`document.querySelector("main").textContent.includes("No queue orders is registered")`)
}

// When the order changes, the focus goes with the link that has it.
func TestFocus(t *testing.T) {
	p := newProgram(t)
	b := newBrowser(t)
	b.open(p.url)
	eval[bool](b, `document.querySelector("tbody a").focus(), true`)
	for _, key := range []string{"acme/web", "acme/api", "globex/checkout"} {
		p.orders.Done(key)
	}
	for p.orders.Len() > 0 {
		key, _ := p.orders.Get()
		p.orders.Done(key)
	}
	eval[bool](b, `document.dispatchEvent(new Event("visibilitychange"))`)
	b.wait(`document.querySelector("tbody a").textContent === "uploads"`)
	if at := eval[string](b, `document.activeElement.textContent`); at != "orders" {
		t.Errorf("the focus went from orders to %q", at)
	}
}

// next returns the next action that is reported.
func next(t *testing.T, actions <-chan debug.Action) debug.Action {
	t.Helper()
	select {
	case a := <-actions:
		return a
	case <-time.After(time.Minute):
		t.Fatal("no action comes")
		panic(nil)
	}
}

// What the page's script can do, a page of another site cannot, with or without the header.
func TestActionsFromAnotherSite(t *testing.T) {
	p := newProgramWith(t, debug.Options{Actions: true, Audit: func(*http.Request, debug.Action) {}})
	q := priorityqueue.New(priorityqueue.Config[string]{Name: "exports", Clock: p.clock,
		MetricsProvider: p.page})
	t.Cleanup(q.ShutDown)
	q.Add("key")
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w,
			`<!DOCTYPE html><link rel="icon" href="data:,"><form method="post" target="there"><input name="queue" value="exports"><input name="action" value="remove"><input name="key" value="key"></form><iframe name="there"></iframe>`)
	}))
	t.Cleanup(elsewhere.Close)
	b := newBrowser(t)
	b.open(strings.Replace(elsewhere.URL, "127.0.0.1", "localhost", 1))
	eval[bool](b, fmt.Sprintf(`document.forms[0].action = %q, document.forms[0].submit(), true`, p.url))
	for _, header := range []string{`{}`, `{"X-Workqueue-Action": "1"}`} {
		eval[bool](b, fmt.Sprintf(`window.ended = false, fetch(%q, {
			method: "POST", mode: %q, headers: %s, body: new URLSearchParams({queue: "exports", action: "remove", key: "key"}),
		}).catch(() => {}).then(() => ended = true), true`, p.url, map[bool]string{true: "no-cors", false: "cors"}[header == "{}"], header))
		b.wait(`ended`)
	}
	if q.Len() != 1 {
		t.Error("another site has removed a key")
	}
}

// What an operator does: find a key in all queues, read its story, cancel a stuck handler, retry what fails
// with one error, forget what was given up, and pause the group of a broken tenant.
func TestOperator(t *testing.T) {
	actions := make(chan debug.Action, 10)
	p := newProgramWith(t, debug.Options{Actions: true, Audit: func(_ *http.Request,
		a debug.Action) {
		actions <- a
	}})
	p.reports(t)
	b := newBrowser(t)
	b.be(looks[2])
	// press returns what came of the press of a button that asks that question.
	press := func(selector, question string) debug.Action {
		t.Helper()
		eval[bool](b, `window.asked = [], window.confirm = (q) => { asked.push(q); return true }, true`)
		b.click(selector)
		a := next(t, actions)
		if got := eval[string](b, `asked.join()`); got != question || a.Err != nil {
			t.Errorf("%s: asked %q, did %+v", selector, got, a)
		}
		return a
	}
	b.open(p.url + "?queue=uploads")
	eval[bool](b, `document.querySelector("[name=key]").value = "ubuntu-26.04.iso", true`)
	b.follow("form:has([name=key]) button")
	b.follow("h1 a")
	if h := eval[string](b, `document.querySelector("h1").innerText`); h != "ubuntu-26.04.iso" {
		t.Errorf("the page of the key is about %q", h)
	}
	if stack := eval[string](b,
		`document.querySelector("[aria-labelledby=stack] pre").textContent`); !strings.Contains(stack, "uploads") {
		t.Errorf("the stack is %q", stack)
	}
	if a := press("[data-action=cancel]",
		"Cancel the handler of ubuntu-26.04.iso?"); a.Key != "ubuntu-26.04.iso" {
		t.Errorf("%+v", a)
	}
	b.wait(
		`document.getElementById("done").textContent.startsWith("Ended the context of the handler of ubuntu-26.04.iso.")`)

	b.open(p.url + "?queue=uploads")
	// A stack that was unfolded stays so while the page refreshes itself.
	eval[bool](b,
		`document.querySelector("details").open = true, document.querySelector("details summary").textContent = "old", document.dispatchEvent(new Event("visibilitychange"))`)
	b.wait(`document.querySelector("details summary").textContent === "Stack"`)
	if !eval[bool](b, `document.querySelector("details").open`) {
		t.Error("a refresh has folded the stack")
	}
	eval[bool](b, `document.querySelector("[name=error]").value = "no space left", true`)
	b.follow("form:has([name=error]) button")
	failing := eval[int](b, `document.querySelectorAll("[aria-labelledby=failing] tbody tr").length`)
	if a := press("[aria-labelledby=failing] .bulk [data-action=retry]",
		fmt.Sprintf("Retry %d keys?", failing)); a.Keys != failing || failing < 3 ||
		a.ErrorContains != "no space left" {
		t.Errorf("%d keys: %+v", failing, a)
	}
	b.wait(fmt.Sprintf(`document.getElementById("done").textContent === "Retried %d keys."`, failing))
	b.follow("main > .hint a")
	if a := press("[aria-labelledby=given_up] .bulk [data-action=forget]",
		"Forget the failures of 2 keys? Nothing else remembers a key that was given up."); a.Keys != 2 || a.Of != "given_up" {
		t.Errorf("%+v", a)
	}
	b.wait(
		`document.querySelector("[aria-labelledby=given_up]").textContent.includes("No key has such an error")`)

	b.open(p.url + p.keyPage(t, "reports", "initech/monthly-02"))
	if a := press(`[data-action=pause_group][data-group=initech]`,
		"Pause group initech?"); a.Group != "initech" {
		t.Errorf("%+v", a)
	}
	b.wait(`document.getElementById("done").textContent.startsWith("Paused group initech.")`)
	b.open(p.url)
	if list := eval[string](b, `document.querySelector(".queues").innerText`); !strings.Contains(list,
		"2 groups paused") {
		t.Errorf("the list says %q", list)
	}
	b.open(p.url + "?queue=reports")
	press(`[data-action=resume_group][data-group=initech]`, "")
	b.wait(`document.querySelector("[data-group=initech]") === null`)
	b.wantNoComplaints()
}
