package debug_test

import (
	"context"
	"errors"
	"fmt"
	"html"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// story is what a key's own page shows.
type story struct {
	Queue      struct{ ID, Name string }
	Error      string
	Incomplete bool
	Key        struct {
		Key, ID, State, Error, Stack, Group string
		Bytes, Attempt, Requeues, Priority  int
		MaxAttempts                         int `json:"max_attempts"`
		Stuck, Again                        bool
		Since, Due                          time.Time
		FailedAt                            time.Time `json:"failed_at"`
		Causes                              workqueue.Causes
		Calls                               []struct {
			Attempt int
			Started time.Time
			Took    float64 `json:"took_seconds"`

			Causes, Error, Stack string
		} `json:"failed_calls"`
	}
}

var keyLink = regexp.MustCompile(`href="(\?id=[^"]*)"`)

// linksToKeys returns the addresses of the keys' pages that the page at query links to.
func linksToKeys(h *debug.Handler, query string) (links []string) {
	for _, match := range keyLink.FindAllStringSubmatch(get(h, query).Body.String(), -1) {
		links = append(links, html.UnescapeString(match[1]))
	}
	return links
}

// A key's page has its life: who added it, its attempts with their errors and stacks, and when it comes next.
func TestKeyPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := debug.NewHandler(debug.Options{Actions: true, Audit: new(audited).hook})
		defer h.Close()
		q := priorityqueue.New(priorityqueue.Config[string]{
			Name: "q", MetricsProvider: h, Group: func(key string) string { return key[:1] },
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Minute, time.Hour),
		})
		pool := worker.New(q, func(ctx context.Context, key string) error {
			switch {
			case key == "runs":
				<-ctx.Done()
				return nil
			case worker.Attempt(ctx) == 2:
				panic("a bug <b>")
			}
			time.Sleep(2 * time.Second)
			return fmt.Errorf("no answer to call %d <i>", worker.Attempt(ctx))
		}, worker.Options[string]{Workers: 2, MaxRetries: 4, StuckAfter: time.Minute, MetricsProvider: h})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- pool.Run(ctx) }()
		defer func() {
			cancel()
			<-done
		}()
		began := time.Now()
		q.AddCause("fails", workqueue.Cause{Reason: "Secret <u> changed", TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})
		q.AddCause("runs", workqueue.Cause{Reason: "it is time"})
		time.Sleep(3*time.Minute + 5*time.Second) // "fails" was tried at 0, 62 and 182 s.

		page := func(link string) story { return getJSON[story](t, h, link) }
		link := linksToKeys(h, "?queue=q&key=fails")[0]
		s := page(link)
		k := s.Key
		if s.Queue.ID != "q" || k.Key != "fails" || k.State != "waiting" || k.Attempt != 3 || k.MaxAttempts != 5 || k.Requeues != 3 ||
			k.Group != "f" || k.Error != "no answer to call 3 <i>" || k.Due.Sub(began) != 424*time.Second || k.Since.IsZero() {
			t.Errorf("%+v", s)
		}
		if len(k.Calls) != 3 || k.Calls[0].Attempt != 3 || k.Calls[0].Took != 2 || k.Calls[1].Attempt != 2 || !strings.Contains(k.Calls[1].Stack, "TestKeyPage") ||
			k.Calls[2].Error != "no answer to call 1 <i>" || k.Calls[2].Causes != "Secret <u> changed" || k.Calls[1].Causes != "" || !k.Calls[2].Started.Equal(began) {
			t.Errorf("%+v", k.Calls)
		}
		wantBody(t, get(h, link), "<title>fails · Work queues</title>", `<a href="?queue=q">q</a>`, "It waits for its time: attempt 4 of 5 comes in 3m 59s.",
			"<dd>3 of 5</dd>", "<dt>Last error</dt>", "call 3 &lt;i&gt;", `data-action="retry"`, `data-action="forget"`, `data-action="pause_group"`,
			"Failed attempts</h2>", "call 3 &lt;i&gt;", "a bug &lt;b&gt;", "<details", "<pre>", "TestKeyPage", `call 1 &lt;i&gt; <span class="cause">Secret &lt;u&gt; changed</span>`)

		running := page(linksToKeys(h, "?queue=q&key=runs")[0]).Key
		if running.State != "processing" || !running.Stuck || !strings.Contains(running.Stack, "TestKeyPage") || running.Attempt != 1 ||
			len(running.Causes.Last) != 1 || running.Causes.Last[0].Reason != "it is time" || !running.Causes.Last[0].Time.Equal(began) {
			t.Errorf("%+v", running)
		}
		wantBody(t, get(h, linksToKeys(h, "?queue=q&key=runs")[0]), "A worker has had it for 3m 05s: attempt 1 of 5.", `data-action="cancel"`,
			"Stack</h2>", "<pre>", "TestKeyPage", "Why it was added</h2>", "it is time")
		// The list of running keys has the stack, too, folded, and why the key was added.
		wantBody(t, get(h, "?queue=q"), "Running</h2>", "<code>runs</code>", `<span class="cause">it is time</span>`, "<details", "<summary>Stack</summary>", "TestKeyPage")

		q.AddCause("fails", workqueue.Cause{Reason: "Secret <u> changed", TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})
		synctest.Wait()
		k = page(link).Key // It runs, because of that add.
		if k.State != "processing" || k.Attempt != 4 || len(k.Causes.Last) != 1 || k.Causes.Last[0].TraceParent == "" || len(k.Calls) != 3 {
			t.Errorf("%+v", k)
		}
		wantBody(t, get(h, link), "Secret &lt;u&gt; changed", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
		time.Sleep(2 * time.Hour)
		if k = page(link).Key; k.State != "given_up" || k.Attempt != 5 || len(k.Calls) != 5 {
			t.Errorf("%+v", k)
		}
		wantBody(t, get(h, link), "It was given up after attempt 5 of 5")
		pool.Forget("fails")
		q.Forget("fails")
		if k = page(link).Key; k.State != "absent" || k.Key != "fails" || k.ID == "" {
			t.Errorf("%+v", k)
		}
		wantBody(t, get(h, link), "nothing is known of it")
	})
}

// Every key has its own page, however it is printed, and that page goes on after the key has left the lists.
func TestPagesOfUnusualKeys(t *testing.T) {
	long := strings.Repeat("long", 100)
	keys := []any{"", "a\nb", `a\nb`, long + "1", long + "2", "\xff\x00", "</script>&\"'", "sp ace", nil, 17, "17", pair{"a", "b"}, pair{"a", "c"},
		named{"x/y", "z"}, named{"x", "y/z"}, evil(0), evil(1), id("sp ace"), true, "a+b", "ä€"}
	h := newHandler(t, debug.Options{Actions: true, Audit: new(audited).hook})
	q := priorityqueue.New(priorityqueue.Config[any]{Name: "queue & more", MetricsProvider: h})
	defer q.ShutDown()
	for _, key := range keys {
		q.AddAfter(key, time.Hour)
	}
	links := linksToKeys(h, "?queue=queue+%26+more&keys=250")
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
		form := []string{"queue", s.Queue.ID, "key", s.Key.Key, "id", s.Key.ID}
		if status, failure := post(t, h, asPage, append(form, "action", "retry")...); status != 200 || q.Len() != before+1 {
			t.Errorf("%v: retry: %d %s, %d queued", keys[i], status, failure, q.Len())
		}
		if got := getJSON[story](t, h, link).Key.State; got != "queued" {
			t.Errorf("%v: after retry it is %s", keys[i], got)
		}
		if status, failure := post(t, h, asPage, append(form, "action", "remove")...); status != 200 || q.Len() != before {
			t.Errorf("%v: remove: %d %s", keys[i], status, failure)
		}
		if got := getJSON[story](t, h, link).Key; got.State != "absent" || got.Key != s.Key.Key {
			t.Errorf("%v: after it was removed: %+v", keys[i], got)
		}
		if status, _ := post(t, h, asPage, append(form, "action", "retry")...); status != 404 {
			t.Errorf("%v: retry of a key that is gone: %d", keys[i], status)
		}
	}
	if s := getJSON[story](t, h, "?queue=queue+%26+more&key=never&id=xyz"); s.Key.State != "absent" || s.Key.Key != "never" {
		t.Errorf("%+v", s)
	}
	if w := get(h, "?queue=none&key=a&id=b"); w.Code != 404 {
		t.Errorf("%d", w.Code)
	}
}

// A page that refreshes itself searches once, and then asks for that key alone.
func TestKeyPageIsCheap(t *testing.T) {
	h := newHandler(t, debug.Options{})
	m := &manyKeys{n: 20_000}
	i := m.inspector()
	snapshots := 0
	i.Snapshot = func(limit int) workqueue.Snapshot[any] { snapshots++; return workqueue.Snapshot[any]{} }
	h.InspectQueue("q", i)
	link := linksToKeys(h, "?queue=q&key=key+18765")[0]
	wantBody(t, get(h, link), "<h1><code>key 18765</code></h1>", `<main id="live" data-refresh="5">`)
	m.reads, snapshots = 0, 0
	for range 10 {
		if s := getJSON[story](t, h, link); s.Key.State != "queued" || s.Key.Key != "key 18765" {
			t.Errorf("%+v", s)
		}
	}
	if m.reads != 0 || snapshots != 0 {
		t.Errorf("10 pages have read all keys %d times, and %d snapshots", m.reads, snapshots)
	}
	m.n = 100 // The key is gone. That is no reason to search for it again.
	if s := getJSON[story](t, h, link); s.Key.State != "absent" || s.Key.Key != "key 18765" || m.reads != 0 {
		t.Errorf("%+v, all keys were read %d times", s, m.reads)
	}
	// Its page does not repeat that by itself: it takes a snapshot each time.
	wantBody(t, get(h, link), `<main id="live">`, "This page does not refresh itself.", "nothing is known of it")
	m.n = 20_000
	wantBody(t, get(h, link), "<h1><code>key 18765</code></h1>", `data-refresh="5"`)
	body := get(h, "?queue=q&key=none&id=none").Body.String()
	if strings.Contains(body, "data-refresh") || !strings.Contains(body, "does not refresh itself") {
		t.Error("a key that is never found is searched for again and again")
	}
}

// A queue that does not answer keeps the page of its key from hanging.
func TestKeyPageOfASilentQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := debug.NewHandler(debug.Options{})
		defer h.Close()
		var far server
		i := far.queue()
		i.SnapshotKey = func(key any) (workqueue.KeySnapshot[any], bool) {
			i.Stats()
			return workqueue.KeySnapshot[any]{Key: key, State: workqueue.KeyQueued}, true
		}
		h.InspectQueue("far", i)
		far.beSilent()
		began := time.Now()
		s := getJSON[story](t, h, "?queue=far&key=a&id=b")
		if d := time.Since(began); d > 5*time.Second || !strings.Contains(s.Error, "does not answer") {
			t.Errorf("after %v: %+v", d, s)
		}
		far.answer()
	})
}

// Of queues with one name, each shows what its own pool knows of a key, and hands on what is done to that one.
func TestPoolOfTheKeysQueue(t *testing.T) {
	var audit audited
	h := newHandler(t, debug.Options{Actions: true, Audit: audit.hook})
	cancelled := make(map[string]int)
	for _, name := range []string{"one", "two"} {
		q := workqueue.NewTyped[string]()
		debug.Register(h, "tenant", q)
		q.Add("a")
		q.Get()
		h.InspectPool("tenant", worker.Inspector{
			Queue: q,
			Snapshot: func(int) worker.Snapshot[any] {
				return worker.Snapshot[any]{Stats: worker.Stats{Name: "tenant", Wanted: 1}}
			},
			SnapshotKey: func(key any) worker.KeySnapshot[any] {
				return worker.KeySnapshot[any]{Key: key, FailedCalls: []worker.FailedCall{{Err: name + " failed"}}}
			},
			Cancel: func(any) bool { cancelled[name]++; return true },
		})
	}
	ids := strings.Fields(getJSON[list](t, h, "?sort=name").ids())
	for i, id := range ids {
		want := []string{"one", "two"}[i]
		d := getJSON[poolsOf](t, h, "?queue="+id)
		if len(d.Queue.Pools) != 1 {
			t.Errorf("%s shows %d pools", id, len(d.Queue.Pools))
		}
		s := getJSON[story](t, h, linksToKeys(h, "?queue="+id+"&key=a")[0])
		if len(s.Key.Calls) != 1 || s.Key.Calls[0].Error != want+" failed" {
			t.Errorf("%s: %+v", id, s.Key)
		}
		if status, failure := post(t, h, asPage, "queue", id, "action", "cancel", "key", "a"); status != 200 || cancelled[want] != 1 {
			t.Errorf("%s: %d %s %v", id, status, failure, cancelled)
		}
	}
}

// Cancel ends the context of the handler that has the key, and of no other one.
func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var audit audited
		h := debug.NewHandler(debug.Options{Actions: true, Audit: audit.hook})
		defer h.Close()
		q := workqueue.NewTypedRateLimitingQueueWithConfig(nil, workqueue.TypedRateLimitingQueueConfig[string]{Name: "q", MetricsProvider: h})
		ended := make(map[string]error)
		pool := worker.New(q, func(ctx context.Context, key string) error {
			<-ctx.Done()
			ended[key] = context.Cause(ctx)
			return nil
		}, worker.Options[string]{Workers: 2, MetricsProvider: h})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- pool.Run(ctx) }()
		defer func() {
			cancel()
			<-done
		}()
		q.Add("a")
		q.Add("b")
		synctest.Wait()
		wantBody(t, get(h, "?queue=q"), "Running</h2>", `data-action="cancel" data-queue="q" data-key="a"`)
		if status, failure := post(t, h, asPage, "queue", "q", "action", "cancel", "key", "a"); status != 200 {
			t.Errorf("%d %s", status, failure)
		}
		synctest.Wait()
		if len(ended) != 1 || ended["a"] == nil || errors.Is(ended["a"], context.DeadlineExceeded) {
			t.Errorf("ended: %v", ended)
		}
		if audit.last().Name != "cancel" || audit.last().Key != "a" || audit.last().Keys != 1 {
			t.Errorf("%+v", audit.last())
		}
		q.AddAfter("later", time.Hour)
		if status, failure := post(t, h, asPage, "queue", "q", "action", "cancel", "key", "later"); status != 404 || !strings.Contains(failure, "No handler") {
			t.Errorf("%d %s", status, failure)
		}
	})
}
