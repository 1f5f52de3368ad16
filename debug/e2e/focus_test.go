package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/priorityqueue"
)

// After an action the focus is on the button that was pressed or, when that is gone, on the one in its place;
// at the end of a list on the section's last link or button, and with none left on the page itself. Buttons
// have names that say which key they are for, and a pause asks first. A foreign answer is not
// called silence.
func TestFocusAfterAnAction(t *testing.T) {
	p := newProgramWith(t, debug.Options{Actions: true, Audit: func(*http.Request, debug.Action) {}})
	q := priorityqueue.New(priorityqueue.Config[string]{Name: "exports", Clock: p.clock,
		MetricsProvider: p.page})
	t.Cleanup(q.ShutDown)
	for n := range 3 {
		q.Add(fmt.Sprint("key ", n))
	}
	b := newBrowser(t)
	b.open(p.url + "?queue=exports")
	if names := eval[string](b,
		`[...document.querySelectorAll("[data-action]")].map((button) => button.ariaLabel ?? button.innerText).join()`); names !=
		"Pause queue,Pause for 15 minutes,Remove: key 0,Remove: key 1,Remove: key 2" {
		t.Errorf("the buttons are called %q", names)
	}
	eval[bool](b, `window.asked = "", window.confirm = (q) => { asked = q; return true }, true`)
	press := func(selector, done, focus string) {
		t.Helper()
		eval[bool](b,
			fmt.Sprintf(
				`(() => { const button = document.querySelector(%q); button.focus(); button.click(); return true })()`,
				selector))
		b.wait(fmt.Sprintf(`document.getElementById("done").textContent === %q`, done))
		b.wait(`document.querySelector("[aria-disabled]") === null`)
		if got := eval[string](b,
			`document.activeElement.ariaLabel ?? document.activeElement.id + document.activeElement.innerText.slice(0, 20)`); got != focus {
			t.Errorf("after %q the focus is on %q, want %q", done, got, focus)
		}
	}
	press(`[data-action][data-key="key 1"]`, "Removed key 1, and forgot its failures.", "Remove: key 2")
	press(`[data-action][data-key="key 2"]`, "Removed key 2, and forgot its failures.", "Remove: key 0")
	press(`[data-action=pause]`, "Paused the queue.", "Resume queue")
	if asked := eval[string](b,
		`asked`); asked != "Pause queue exports? It hands out nothing meanwhile." {
		t.Errorf("asked %q", asked)
	}
	press(`[data-action=resume]`, "Resumed the queue.", "Pause queue")
	eval[bool](b, `document.getElementById("done").textContent = "", true`)
	// What answers is a login page, or a program whose actions were switched off: it has answered, and did
	// nothing. The page does not refresh itself meanwhile, which would say something else.
	b.click("#pause")
	eval[bool](b,
		`window.real = fetch, window.fetch = async () => new Response("", { status: 405, headers: { "Content-Type": "text/plain" } }), true`)
	b.click("[data-action=pause]")
	b.wait(`document.getElementById("note").textContent === "The program did not do it: status 405."`)
	eval[bool](b, `window.fetch = real, true`)
	b.click("#pause")
	press(`[data-action][data-key="key 0"]`, "Removed key 0, and forgot its failures.",
		"live"+eval[string](b, `document.getElementById("live").innerText.slice(0, 20)`))
	b.wantNoComplaints()
}
