package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/priorityqueue"
)

// Keys whose boxes are ticked stay selected while a refresh moves their rows, and an action on them asks
// first, with their number. What leaves the page is not selected any more, and nothing takes its place.
func TestSelection(t *testing.T) {
	actions := make(chan debug.Action, 10)
	p := newProgramWith(t, debug.Options{Actions: true, Audit: func(_ *http.Request,
		a debug.Action) {
		actions <- a
	}})
	q := priorityqueue.New(priorityqueue.Config[string]{Name: "exports", Clock: p.clock,
		MetricsProvider: p.page})
	t.Cleanup(q.ShutDown)
	for n := range 6 {
		q.Add(fmt.Sprint("key ", n))
	}
	b := newBrowser(t)
	for _, l := range []look{{"desktop", 1280, 900, false}, {"phone", 390, 844, true}} {
		b.be(l)
		b.open(p.url + "?queue=exports")
		if shown := eval[bool](b,
			`[...document.querySelectorAll(".box, .all")].every((box) => box.getClientRects().length > 0)`); !shown {
			t.Errorf("%s: there are boxes that nobody sees", l.name)
		}
	}
	ticked := func() string {
		return eval[string](b,
			`[...document.querySelectorAll(".box:checked")].map((box) => box.dataset.key).join()`)
	}
	want := func(keys, button string) {
		t.Helper()
		if got := ticked(); got != keys {
			t.Errorf("selected are %q, want %q", got, keys)
		}
		const visible = `[...document.querySelectorAll("[data-selected]")].filter((b) => b.getClientRects().length > 0).map((b) => b.innerText).join()`
		if got := eval[string](b, visible); got != button {
			t.Errorf("the buttons for selected keys are %q, want %q", got, button)
		}
	}
	tick := func(selector string) {
		eval[bool](b, fmt.Sprintf(`document.querySelector(%q).click(), true`, selector))
	}
	want("", "")
	tick(`.all`)
	want("key 0,key 1,key 2,key 3,key 4,key 5", "Remove")
	tick(`.all`)
	want("", "")
	for _, n := range []int{1, 3, 4} {
		tick(fmt.Sprintf(`.box[data-key="key %d"]`, n))
	}
	if half := eval[bool](b, `document.querySelector(".all").indeterminate`); !half {
		t.Error("the box for all does not show that some are selected")
	}
	q.Remove("key 0") // The rows below move up.
	q.Remove("key 3")
	eval[bool](b, `document.dispatchEvent(new Event("visibilitychange"))`)
	b.wait(`document.querySelector("[data-key='key 0']") === null`)
	want("key 1,key 4", "Remove")
	eval[bool](b, `window.asked = "", window.confirm = (question) => { asked = question; return true }, true`)
	tick(`[data-selected]`)
	a := <-actions
	if asked := eval[string](b, `asked`); asked != "Remove 2 keys from the queue, and forget their failures?" {
		t.Errorf("asked %q", asked)
	}
	if !slices.Equal(a.Selected, []string{"key 1", "key 4"}) || a.Keys != 2 || q.Len() != 2 {
		t.Errorf("%+v, %d are left", a, q.Len())
	}
	b.wait(`document.getElementById("done").textContent === "Removed 2 keys."`)
	want("", "")
	// One selected key is asked for by its name.
	tick(`.box[data-key="key 5"]`)
	tick(`[data-selected]`)
	if a := <-actions; a.Key != "key 5" || q.Len() != 1 {
		t.Errorf("%+v", a)
	}
	if asked := eval[string](b, `asked`); asked != "Remove key 5 from the queue, and forget its failures?" {
		t.Errorf("asked %q", asked)
	}
	b.wait(`document.getElementById("done").textContent.startsWith("Removed key 5")`)
	want("", "")
	b.wantNoComplaints()
}
