package debug_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/worker"
)

type search struct {
	Found *struct {
		Search      string
		Exact, More bool
		Keys        []failedKey
	}
}

func find(t *testing.T, h *debug.Handler, queue, key string) search {
	t.Helper()
	return getJSON[search](t, h, "?queue="+queue+"&key="+queryEscape(key))
}

// Search finds a key in whatever state it is, however many others there are, with its attempts and its error.
func TestSearchFindsKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := debug.NewHandler(debug.Options{})
		defer h.Close()
		limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Minute, time.Hour)
		q := workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[string]{Name: "q", MetricsProvider: h})
		release := make(chan struct{})
		pool := worker.New(q, func(ctx context.Context, key string) error {
			switch {
			case key == "runs":
				<-release
			case strings.HasPrefix(key, "fails"):
				return errors.New("the disk is full")
			case key == "given up":
				return worker.Terminal(errors.New("too large"))
			}
			return nil
		}, worker.Options[string]{Workers: 1, MetricsProvider: h})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- pool.Run(ctx) }()
		for _, key := range []string{"fails", "given up", "fine"} {
			q.Add(key)
		}
		time.Sleep(90 * time.Second) // "fails" was tried twice
		q.Add("runs")
		time.Sleep(time.Second)
		for n := range 10_000 {
			q.Add(fmt.Sprint("queued ", n))
			q.AddAfter(fmt.Sprint("later ", n), time.Hour)
		}
		for key, want := range map[string]failedKey{
			"runs":        {State: "processing", Attempt: 1},
			"queued 9876": {State: "queued"},
			"later 9876":  {State: "waiting"},
			"fails":       {State: "waiting", Attempt: 2, Requeues: 2, Error: "the disk is full"},
			"given up":    {State: "given_up", Attempt: 1, Error: "worker: terminal: too large"},
		} {
			s := find(t, h, "q", key)
			if s.Found == nil || len(s.Found.Keys) != 1 || !s.Found.Exact {
				t.Errorf("%s: %+v", key, s.Found)
				continue
			}
			got := s.Found.Keys[0]
			if got.Key != key || got.State != want.State || got.Attempt != want.Attempt || got.Requeues != want.Requeues ||
				!strings.HasSuffix(want.Error, got.Error) || (want.Error == "") != (got.Error == "") {
				t.Errorf("%s: %+v, want %+v", key, got, want)
			}
			if (want.State == "waiting") == got.Due.IsZero() {
				t.Errorf("%s is due %v", key, got.Due)
			}
		}
		if s := find(t, h, "q", "fine"); s.Found == nil || len(s.Found.Keys) != 0 {
			t.Errorf("a key that is done: %+v", s.Found)
		}
		if s := find(t, h, "q", "ued 99"); s.Found.Exact || !s.Found.More || len(s.Found.Keys) != 25 {
			t.Errorf("a part of many keys: %+v", s.Found)
		}
		// Of a key in two states, what is known of either is shown.
		q.Add("given up")
		if k := find(t, h, "q", "given up").Found.Keys; len(k) != 1 || k[0].State != "queued" || k[0].Attempt != 1 || !strings.HasSuffix(k[0].Error, "too large") {
			t.Errorf("given up and queued: %+v", k)
		}
		q.Add("later 7")
		if k := find(t, h, "q", "later 7").Found.Keys; len(k) != 1 || k[0].State != "queued" || k[0].Due.IsZero() {
			t.Errorf("waiting and queued: %+v", k)
		}
		if s := getJSON[search](t, h, "?queue=q"); s.Found != nil {
			t.Errorf("nothing was searched for: %+v", s.Found)
		}
		wantBody(t, get(h, "?queue=q&key=fails"), `value="fails"`, "Found</h2>", "<dt>State</dt><dd>waiting", "<dt>Attempts</dt><dd>2", "the disk is full")
		wantBody(t, get(h, "?queue=q&key=none"), "No key in this queue is called <code>none</code>")
		// Every key leads to what is known of it.
		wantBody(t, get(h, "?queue=q"), `href="?key=fails&amp;queue=q"`)
		close(release)
		cancel()
		<-done
		q.ShutDown()
	})
}

// A key is found by what the page shows of it, too, which is what a link has.
func TestSearchForHostileKeys(t *testing.T) {
	h := newHandler(t, debug.Options{})
	q := workqueue.NewTyped[string]()
	debug.Register(h, "q", q)
	long := strings.Repeat("long", 1000)
	q.Add("line\nbreak")
	q.Add(long)
	q.Add("<script>")
	for search, want := range map[string]int{"line\nbreak": 1, `line\nbreak`: 1, long: 1, long[:256]: 1, "<script>": 1, long[:255]: 1} {
		if s := find(t, h, "q", search); len(s.Found.Keys) != want || s.Found.Exact != (search != long[:255]) {
			t.Errorf("%.20q: %+v", search, s.Found)
		}
	}
	q.Add(long + "er")
	if s := find(t, h, "q", long[:256]); len(s.Found.Keys) != 2 {
		t.Errorf("two keys look the same: %+v", s.Found)
	}
	wantBody(t, get(h, "?queue=q&key=%3Cscript%3E"), `value="&lt;script&gt;"`, "<code>&lt;script&gt;</code>")
}

// format=json is for those who cannot set a header, and every page links to it.
func TestFormat(t *testing.T) {
	h := newHandler(t, debug.Options{Clock: newClock()}) // so that two answers have the same time
	q := workqueue.NewTyped[string]()
	debug.Register(h, "q", q)
	q.Add("a")
	for query, link := range map[string]string{
		"?search=q&sort=name": `<a href="?page=1&amp;search=q&amp;sort=name&amp;format=json">JSON</a>`,
		"?queue=q&keys=7":     `<a href="?format=json&amp;keys=7&amp;queue=q">JSON</a>`,
		"?queue=q&key=a":      `<a href="?format=json&amp;key=a&amp;queue=q">JSON</a>`,
	} {
		wantBody(t, get(h, query), link)
		w := get(h, query+"&format=json", "Accept", "text/html")
		if w.Header().Get("Content-Type") != "application/json" || w.Body.String() != get(h, query, "Accept", "application/json").Body.String() {
			t.Errorf("%s: %v %s", query, w.Header(), w.Body)
		}
	}
	if w := get(h, "?format=html", "Accept", "application/json"); !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
		t.Errorf("format=html: %v", w.Header())
	}
	if w := get(h, "?queue=none&format=json"); w.Code != 404 || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}
