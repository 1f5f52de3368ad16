package debug_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/worker"
)

// selected returns the fields of an action on the keys with these texts, as the boxes of a page have them.
func selected(t *testing.T, h *audited, state, action string, texts ...string) (form []string) {
	t.Helper()
	form = []string{"queue", "q", "action", action}
	var pages strings.Builder
	for n := range 5 {
		pages.WriteString(get(h, fmt.Sprintf("?queue=q&state=%s&page=%d", state, n+1)).Body.String())
	}
	for _, text := range texts {
		_, box, found := strings.Cut(pages.String(), `type="checkbox" data-key="`+text+`" data-id="`)
		if !found {
			t.Fatalf("no box for %q", text)
		}
		id, _, _ := strings.Cut(box, `"`)
		form = append(form, "key", text, "id", id)
	}
	return form
}

// Several keys are retried, removed, forgotten, canceled or released at once, wherever on the page's lists
// they are, and the answer says how many were gone.
func TestSelectedKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newAudited(t)
		q := newPriorityQueue(t, h, "q")
		var mu sync.Mutex
		canceled, calls := make(map[string]bool), make(map[string]int)
		pool := worker.New(q, func(ctx context.Context, key string) error {
			mu.Lock()
			calls[key]++
			mu.Unlock()
			switch kind, _, _ := strings.Cut(key, " "); kind {
			case "runs":
				<-ctx.Done()
				mu.Lock()
				defer mu.Unlock()
				canceled[key] = true
			case "held":
				worker.CallOf(ctx).Hold("the test ends", time.Hour)
				return worker.RequeueAfter(0)
			case "bad":
				return worker.Terminal(errors.New("bad"))
			case "fails":
				return errors.New("broken")
			}
			return nil
		}, worker.Options[string]{Workers: 3, MetricsProvider: h, Logger: silent, Drain: worker.Nothing})
		start(t, pool)
		for n := range 600 { // More than the lists of a queue's page have.
			q.Add(fmt.Sprint("fails ", n))
			q.AddAfter(fmt.Sprint("later ", n), time.Hour)
		}
		for n := range 3 {
			q.Add(fmt.Sprint("bad ", n))
			q.Add(fmt.Sprint("held ", n))
			synctest.Wait()
			q.Add(fmt.Sprint("runs ", n))
		}
		synctest.Wait()
		act := func(state, action string, want answered, texts ...string) {
			t.Helper()
			before := len(h.actions)
			status, got := post(t, h, asPage, selected(t, h, state, action, texts...)...)
			if want.Action = action; status != 200 || got != want {
				t.Errorf("%s: %d %+v, want %+v", action, status, got, want)
			}
			if a := h.last(); len(h.actions) != before+1 || !slices.Equal(a.Selected, texts) || a.Keys != want.Keys ||
				a.Key != "" {
				t.Errorf("%s: the audit got %+v", action, a)
			}
			synctest.Wait()
		}
		act("processing", "cancel", answered{Text: "Canceled the handlers of 2 keys.", Keys: 2}, "runs 0", "runs 2")
		if len(canceled) != 2 || canceled["runs 1"] {
			t.Errorf("canceled: %v", canceled)
		}
		act("on_hold", "release", answered{Text: "Ended the holds of 2 keys.", Keys: 2}, "held 0", "held 1")
		act("given_up", "forget", answered{Text: "Forgot the failures of 2 keys.", Keys: 2}, "bad 0", "bad 2")
		if n := count(t, h, "given_up").Count; n != 1 {
			t.Errorf("%d are given up", n)
		}
		act("failing", "retry", answered{Text: "Retried 2 keys.", Keys: 2}, "fails 7", "fails 9")
		for key, attempts := range map[string]int{"fails 7": 2, "fails 8": 1, "fails 9": 2} {
			if calls[key] != attempts {
				t.Errorf("%s was handled %d times, want %d", key, calls[key], attempts)
			}
		}
		act("waiting", "remove", answered{Text: "Removed 2 keys.", Keys: 2}, "later 590", "later 591")

		// What has left meanwhile is gone, and nothing else is done in its place.
		form := selected(t, h, "waiting", "remove", "later 593", "later 594")
		h.act(t, 200, "q", "remove", "key", "later 594")
		before := q.Stats().Waiting
		if _, got := post(t, h, asPage, form...); got.Text != "Removed 1 key, 1 gone." ||
			q.Stats().Waiting != before-1 {
			t.Errorf("%+v, %d wait, %d before", got, q.Stats().Waiting, before)
		}
		if status, got := post(t, h, asPage, "queue", "q", "action", "remove", "key", "later 1", "key",
			"later 2"); status != 400 || !strings.Contains(got.Error, "id") {
			t.Errorf("keys without ids: %d %+v", status, got)
		}
		if got := fmt.Sprint(debug.Action{Name: "remove", Queue: "q", Selected: []string{"a b", "c"},
			Keys: 2}); got != `remove q selected=["a b" "c"] keys=2` {
			t.Error(got)
		}
	})
}

// Without actions a page has no boxes and no buttons.
func TestPageWithoutActions(t *testing.T) {
	h := newHandler(t, debug.Options{})
	newRateLimited[string](t, "q", h).AddAfter("a", time.Hour)
	if body := get(h, "?queue=q").Body.String(); strings.Contains(body, `type="checkbox"`) ||
		strings.Contains(body, "data-action=") {
		t.Error("there are boxes or buttons")
	}
}
