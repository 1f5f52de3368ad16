package debug_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// bulk is the answer to an action on many keys.
type bulk struct {
	Action, Text, Error string
	Keys, Gone, Left    int
	LeftMore            bool `json:"left_more"`
}

// postMany asks for an action on many keys.
func postMany(t *testing.T, h http.Handler, form ...string) (status int, answer bulk) {
	t.Helper()
	values := url.Values{}
	for i := 0; i < len(form); i += 2 {
		values.Set(form[i], form[i+1])
	}
	r := httptest.NewRequest("POST", "http://internal:8080/debug/workqueue", strings.NewReader(values.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("X-Workqueue-Action", "1")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	return w.Code, answer
}

// count returns how many keys an action would be for.
func count(t *testing.T, h http.Handler, query string) int {
	t.Helper()
	return getJSON[struct{ Count int }](t, h, "?queue=q&count="+query).Count
}

// All failing keys, all that were given up, or all with an error can be retried and forgotten, with their number before.
func TestManyKeysAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var audit audited
		h := debug.NewHandler(debug.Options{Actions: true, Audit: audit.hook})
		defer h.Close()
		q := priorityqueue.New(priorityqueue.Config[string]{
			Name: "q", MetricsProvider: h, RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Hour, time.Hour),
		})
		repaired := false
		handled := make(map[string]string)
		pool := worker.New(q, func(ctx context.Context, key string) error {
			handled[key] = worker.Causes(ctx).String()
			switch kind, _, _ := strings.Cut(key, " "); {
			case repaired:
				return nil
			case kind == "disk":
				return errors.New("no space left\non device")
			case kind == "name":
				return worker.Terminal(errors.New("bad name"))
			default:
				return errors.New("timeout")
			}
		}, worker.Options[string]{MetricsProvider: h})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- pool.Run(ctx) }()
		defer func() {
			cancel()
			<-done
		}()
		for n := range 21 {
			q.Add(fmt.Sprint("disk ", n))
		}
		for n := range 3 {
			q.Add(fmt.Sprint("name ", n))
			q.Add(fmt.Sprint("time ", n))
		}
		synctest.Wait()
		for query, want := range map[string]int{
			"failing": 24, "given_up": 3, "all": 27, "failing&error=space": 21, `all&error=left%5Cnon`: 21, "all&error=bad+name": 3,
			"failing&error=bad": 0, "all&error=nothing+like+it": 0,
		} {
			if got := count(t, h, query); got != want {
				t.Errorf("%s: %d keys, want %d", query, got, want)
			}
		}
		// The page lists the keys with that error, and its buttons are for these.
		wantBody(t, get(h, "?queue=q&error=time"), `name="error" value="time"`, "Failing</h2>", "3 of 3, ", `data-action="retry" data-queue="q" data-of="failing" data-error="time"`,
			"time 2", "Given up</h2>", "No key has such an error.")
		d := getJSON[struct {
			Failing, Waiting []failedKey
			Matching         struct{ Failing, GivenUp int }
		}](t, h, "?queue=q&error=space&keys=5")
		if len(d.Failing) != 5 || !strings.HasPrefix(d.Failing[0].Key, "disk") || d.Matching.Failing != 21 || len(d.Waiting) != 5 {
			t.Errorf("%+v", d)
		}
		clear(handled)
		repaired = true
		status, b := postMany(t, h, "queue", "q", "action", "retry", "of", "failing", "error", "space", "count", "22")
		if status != 200 || b.Keys != 21 || b.Gone != 1 || b.Left != 0 || b.Text != "Retried 21 keys; one was gone." {
			t.Errorf("%d %+v", status, b)
		}
		if a := audit.last(); len(audit.actions) != 1 || a.Name != "retry" || a.Of != "failing" || a.ErrorContains != "space" || a.Keys != 21 || a.Err != nil {
			t.Errorf("%+v", audit.actions)
		}
		synctest.Wait()
		if len(handled) != 21 || handled["disk 7"] != "retried by hand" || count(t, h, "failing") != 3 {
			t.Errorf("handled: %v", handled)
		}
		if _, b = postMany(t, h, "queue", "q", "action", "forget", "of", "failing"); b.Text != "Forgot the failures of 3 keys." || q.NumRequeues("time 1") != 0 ||
			pool.SnapshotKey("time 1").Failing != nil || count(t, h, "failing") != 0 {
			t.Errorf("%+v, %d requeues", b, q.NumRequeues("time 1"))
		}
		if q.Stats().Waiting != 3 {
			t.Errorf("the keys themselves are forgotten: %+v", q.Stats())
		}
		if status, failure := post(t, h, asPage, "queue", "q", "action", "forget", "key", "name 1"); status != 200 || count(t, h, "given_up") != 2 {
			t.Errorf("%d %s", status, failure)
		}
		if _, b = postMany(t, h, "queue", "q", "action", "forget", "of", "all"); b.Keys != 2 || count(t, h, "all") != 0 || pool.SnapshotKey("name 2").Dropped != nil {
			t.Errorf("%+v", b)
		}
		for _, form := range [][]string{{"action", "retry", "of", "everything"}, {"action", "remove", "of", "all"}, {"action", "cancel", "of", "failing"}} {
			if status, b := postMany(t, h, append(form, "queue", "q")...); status != 400 || audit.last().Err == nil {
				t.Errorf("%v: %d %+v", form, status, b)
			}
		}
		if w := get(h, "?queue=q&count=everything"); w.Code != 400 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

// Failing keys of a queue without a pool are those that its limiter counts, in the queue or not.
func TestManyKeysOfALimiter(t *testing.T) {
	h := newHandler(t, debug.Options{Actions: true, Audit: new(audited).hook})
	q := workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.NewTypedItemExponentialFailureRateLimiter[int](time.Hour, time.Hour),
		workqueue.TypedRateLimitingQueueConfig[int]{Name: "q", MetricsProvider: h})
	defer q.ShutDown()
	for n := range 2000 {
		q.AddRateLimited(n)
	}
	q.AddAfter(5000, time.Hour) // has not failed
	if n := count(t, h, "failing"); n != 2000 {
		t.Errorf("%d keys", n)
	}
	if status, b := postMany(t, h, "queue", "q", "action", "retry", "of", "failing"); status != 200 || b.Keys != 2000 || q.Len() != 2000 {
		t.Errorf("%d %+v, %d queued", status, b, q.Len())
	}
	if _, b := postMany(t, h, "queue", "q", "action", "forget", "of", "failing"); b.Keys != 2000 || q.NumRequeues(1999) != 0 {
		t.Errorf("%+v", b)
	}
}

// many is a pool with failing keys that are made up one by one.
func many(h *debug.Handler, n int, q workqueue.Inspector) {
	h.InspectQueue("q", q)
	h.InspectPool("q", worker.Inspector{
		Snapshot: func(int) worker.Snapshot[any] {
			return worker.Snapshot[any]{Stats: worker.Stats{Name: "q", Failing: n}}
		},
		FailingKeys: func() iter.Seq[worker.FailedKey[any]] {
			return func(yield func(worker.FailedKey[any]) bool) {
				for i := range n {
					if !yield(worker.FailedKey[any]{Key: i, Err: "broken"}) {
						return
					}
				}
			}
		},
		DroppedKeys: func() iter.Seq[worker.FailedKey[any]] { return slices.Values([]worker.FailedKey[any]{}) },
		Forget:      func(any) {},
	})
}

// An action on very many keys keeps none of them, ends after ten seconds, and says how many are left.
func TestVeryManyKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var audit audited
		h := debug.NewHandler(debug.Options{Actions: true, Audit: audit.hook})
		defer h.Close()
		var added, slow atomic.Int64
		var before, kept int64
		many(h, 100_000, workqueue.Inspector{
			Stats: func() workqueue.Stats { return workqueue.Stats{Adds: uint64(added.Load())} },
			Add: func(any) {
				if added.Add(1) == 99_999 {
					kept = liveHeap() - before
				}
				time.Sleep(time.Duration(slow.Load()))
			},
		})
		if n := count(t, h, "failing"); n != 100_000 {
			t.Errorf("%d keys", n)
		}
		before = liveHeap()
		if _, b := postMany(t, h, "queue", "q", "action", "retry", "of", "failing"); b.Keys != 100_000 || b.Left != 0 || kept == 0 || kept > 2<<20 {
			t.Errorf("%+v, kept %d bytes", b, kept)
		}
		slow.Store(int64(time.Millisecond))
		began := time.Now()
		status, b := postMany(t, h, "queue", "q", "action", "retry", "of", "failing", "count", "100000")
		if d := time.Since(began); d < 10*time.Second || d > 11*time.Second {
			t.Errorf("it took %v", d)
		}
		if status != 200 || b.Keys < 9000 || b.Keys > 10_001 || b.Gone != 0 || b.Keys+b.Left != 100_000 || !strings.HasSuffix(b.Text, " are left.") {
			t.Errorf("%d %+v", status, b)
		}
		if audit.last().Keys != b.Keys || len(audit.actions) != 2 {
			t.Errorf("%+v", audit.last())
		}
	})
}

// A queue that is shut down meanwhile takes no more keys, and the answer says how many it took.
func TestRetryWhileShuttingDown(t *testing.T) {
	for _, at := range []int{0, 1, 300} {
		var audit audited
		h := newHandler(t, debug.Options{Actions: true, Audit: audit.hook})
		q := workqueue.NewTypedRateLimitingQueue[int](nil)
		i := workqueue.Inspect(workqueue.TypedInterface[int](q))
		n := 0
		i.AddCause = nil
		i.Add = func(key any) {
			if n == at {
				q.ShutDown()
			}
			n++
			q.Add(key.(int))
		}
		many(h, 1000, i)
		status, b := postMany(t, h, "queue", "q", "action", "retry", "of", "failing")
		if status != 409 || b.Keys != at || b.Left != 1000-at || !strings.Contains(b.Error, "shut down meanwhile") || q.Len() != at {
			t.Errorf("at %d: %d %+v, %d queued", at, status, b, q.Len())
		}
		if a := audit.last(); len(audit.actions) != 1 || a.Keys != at || a.Err == nil {
			t.Errorf("%+v", audit.actions)
		}
	}
	// One key.
	h := newHandler(t, debug.Options{Actions: true, Audit: new(audited).hook})
	q := workqueue.NewTypedRateLimitingQueue[int](nil)
	i := workqueue.Inspect(workqueue.TypedInterface[int](q))
	i.AddCause = func(key any, _ workqueue.Cause) { q.ShutDown(); q.Add(key.(int)) }
	h.InspectQueue("q", i)
	q.AddAfter(1, time.Hour)
	if status, failure := post(t, h, asPage, "queue", "q", "action", "retry", "key", "1"); status != 409 || !strings.Contains(failure, "shut down meanwhile") {
		t.Errorf("%d %q", status, failure)
	}
}

// Keys that the queue itself keeps as given up are listed beside those of the pools, each once, and are retried and forgotten
// by the queue.
func TestGivenUpKeysOfTheQueue(t *testing.T) {
	var audit audited
	h := newHandler(t, debug.Options{Actions: true, Audit: audit.hook})
	kept := map[any]string{"a": "broken <b>", "b": "broken", "c": "too large"}
	var did []string
	do := func(what string) func(any) bool {
		return func(key any) bool {
			_, there := kept[key]
			delete(kept, key)
			did = append(did, what+" "+key.(string))
			return there && key != "c"
		}
	}
	h.InspectQueue("q", workqueue.Inspector{
		Stats: func() workqueue.Stats { return workqueue.Stats{} },
		Add:   func(key any) { did = append(did, "add "+key.(string)) },
		GivenUp: func(limit int) (keys []workqueue.GivenUpKey[any]) {
			for key, err := range kept {
				keys = append(keys, workqueue.GivenUpKey[any]{Key: key, Attempts: 4, Err: err, Time: time.Now()})
			}
			return keys[:min(limit, len(keys))]
		},
		RetryGivenUp: do("retry"), ForgetGivenUp: do("forget"),
		Facts: func() []workqueue.Fact { return []workqueue.Fact{{Name: "Server <b>", Value: "10.0.0.1 <i>"}} },
	})
	showPool(h, &worker.Snapshot[any]{Stats: worker.Stats{Name: "q"}, DroppedKeys: 2,
		Dropped: []worker.FailedKey[any]{{Key: "b", Err: "broken"}, {Key: "d", Err: "broken", Attempt: 1}}})
	d := getJSON[poolsOf](t, h, "?queue=q")
	if len(d.GivenUp) != 4 || d.GivenUp[3].Key != "d" || d.GivenUp[0].Attempt != 4 {
		t.Errorf("%+v", d.GivenUp)
	}
	wantBody(t, get(h, "?queue=q"), "Given up</h2>", "4 of 4", "Facts</h2>", "Server &lt;b&gt;", "10.0.0.1 &lt;i&gt;")
	wantBody(t, get(h, "?queue=q"), "broken &lt;b&gt;")
	wantBody(t, get(h, "?queue=q", "Accept", "application/json"), `"facts":[{"name":"Server \u003cb\u003e","value":"10.0.0.1 \u003ci\u003e"}]`)
	if n := count(t, h, "given_up"); n != 4 {
		t.Errorf("%d", n)
	}
	if s := getJSON[story](t, h, linksToKeys(h, "?queue=q&key=a")[0]); s.Key.State != "given_up" || s.Key.Error != "broken <b>" || s.Key.Attempt != 4 {
		t.Errorf("%+v", s)
	}
	if status, failure := post(t, h, asPage, "queue", "q", "action", "retry", "key", "a"); status != 200 || strings.Join(did, ", ") != "retry a" {
		t.Errorf("%d %s %v", status, failure, did)
	}
	kept["a"] = "broken"
	did = nil
	_, b := postMany(t, h, "queue", "q", "action", "retry", "of", "given_up")
	slices.Sort(did)
	if b.Keys != 3 || b.Gone != 1 || strings.Join(did, ", ") != "add d, retry a, retry b, retry c" {
		t.Errorf("%+v %v", b, did)
	}
	kept["a"], did = "broken", nil
	if _, b := postMany(t, h, "queue", "q", "action", "forget", "of", "given_up"); b.Keys != 3 || strings.Join(did, ", ") != "forget a" {
		t.Errorf("%+v %v", b, did)
	}
}

// Groups can be paused and resumed. Those that are paused are listed even if none of their keys is, and the list of queues
// says that there are any.
func TestGroups(t *testing.T) {
	var audit audited
	h := newHandler(t, debug.Options{Actions: true, Audit: audit.hook})
	q := priorityqueue.New(priorityqueue.Config[string]{
		Name: "q", MetricsProvider: h, Group: func(key string) string { group, _, _ := strings.Cut(key, "/"); return group },
	})
	defer q.ShutDown()
	long := strings.Repeat("x", 200)
	q.Add("acme <b>/1")
	q.Add("acme <b>/2")
	q.Add(long + "/1")
	wantBody(t, get(h, "?queue=q"), "Groups</h2>", "acme &lt;b&gt;", `<td class="n">2</td>`, `data-action="pause_group" data-queue="q" data-group="acme &lt;b&gt;"`)
	if l := getJSON[struct {
		PausedGroups int `json:"paused_groups"`
	}](t, h, ""); l.PausedGroups != 0 {
		t.Errorf("%+v", l)
	}
	do := func(action, group string) {
		t.Helper()
		if status, failure := post(t, h, asPage, "queue", "q", "action", action, "group", group); status != 200 {
			t.Errorf("%s %s: %d %s", action, group, status, failure)
		}
		if a := audit.last(); a.Name != action || a.Group == "" || a.Err != nil {
			t.Errorf("%+v", a)
		}
	}
	do("pause_group", "acme <b>")
	do("pause_group", long[:128]+"…") // as the page shows it
	do("pause_group", "not here")
	if got := q.PausedGroups(); !slices.Equal(got, []string{"acme <b>", "not here", long}) {
		t.Errorf("%q", got)
	}
	wantBody(t, get(h, "?queue=q"), "3 groups paused</span>", "Groups</h2>", "acme &lt;b&gt;", "paused</span>", `data-action="resume_group"`, "not here", "paused</span>", `<td class="n">0</td>`)
	wantBody(t, get(h, ""), `<b class="warn">3 groups paused</b>`, `<span class="badge warn">3 groups paused</span>`)
	l := getJSON[struct {
		PausedGroups int `json:"paused_groups"`
		Queues       []struct {
			PausedGroups int `json:"paused_groups"`
		}
	}](t, h, "")
	if l.PausedGroups != 3 || l.Queues[0].PausedGroups != 3 {
		t.Errorf("%+v", l)
	}
	d := getJSON[struct {
		Groups []struct {
			Group  string
			Paused bool
			Listed int
		}
	}](t, h, "?queue=q")
	if len(d.Groups) != 3 || d.Groups[0].Group != "acme <b>" || !d.Groups[0].Paused || d.Groups[0].Listed != 2 {
		t.Errorf("%+v", d)
	}
	do("resume_group", "not here")
	do("resume_group", long[:128]+"…")
	if got := q.PausedGroups(); !slices.Equal(got, []string{"acme <b>"}) {
		t.Errorf("%q", got)
	}
	for _, form := range [][]string{{"action", "pause_group"}, {"action", "resume_group"}} {
		if status, _ := post(t, h, asPage, append(form, "queue", "q")...); status != 400 {
			t.Errorf("%v: %d", form, status)
		}
	}
	plain := newPausableNamed(t, h, "plain")
	plain.Add("a")
	if body := get(h, "?queue=plain").Body.String(); strings.Contains(body, "Groups</h2>") || strings.Contains(body, `data-action="pause_group"`) {
		t.Error("a queue without groups has some")
	}
	if status, _ := post(t, h, asPage, "queue", "plain", "action", "pause_group", "group", "a"); status != 400 {
		t.Errorf("a queue without groups: %d", status)
	}
}

func newPausableNamed(t *testing.T, h *debug.Handler, name string) *priorityqueue.Queue[string] {
	q := priorityqueue.New(priorityqueue.Config[string]{Name: name, MetricsProvider: h})
	t.Cleanup(q.ShutDown)
	return q
}

// Without actions, nothing of all this is offered or done; and no other site can ask for it.
func TestManyKeysAreGuarded(t *testing.T) {
	for _, c := range []struct {
		options debug.Options
		header  []string
		status  int
	}{
		{debug.Options{}, asPage, http.StatusMethodNotAllowed},
		{debug.Options{Actions: true, Audit: new(audited).hook}, []string{"Sec-Fetch-Site", "cross-site", "X-Workqueue-Action", "1"}, http.StatusForbidden},
		{debug.Options{Actions: true, Audit: new(audited).hook}, nil, http.StatusForbidden},
	} {
		h := newHandler(t, c.options)
		many(h, 10, workqueue.Inspector{
			Stats: func() workqueue.Stats { return workqueue.Stats{} }, Add: func(any) { t.Error("added") },
			PauseGroup: func(string) { t.Error("paused") }, PausedGroups: func() []string { return []string{"g"} },
		})
		for _, form := range [][]string{{"action", "retry", "of", "failing"}, {"action", "forget", "of", "all"}, {"action", "pause_group", "group", "g"}, {"action", "cancel", "key", "1"}} {
			if status, _ := post(t, h, c.header, append(form, "queue", "q")...); status != c.status {
				t.Errorf("%v: %d, want %d", form, status, c.status)
			}
		}
		if body := get(h, "?queue=q").Body.String(); !c.options.Actions && strings.Contains(body, "data-action=") {
			t.Error("the page offers actions")
		}
	}
}
