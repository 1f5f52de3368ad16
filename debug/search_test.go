package debug_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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
		Incomplete  bool
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
		wantBody(t, get(h, "?queue=q"), `href="?id=`, `&amp;key=fails&amp;queue=q"`)
		close(release)
		cancel()
		<-done
		q.ShutDown()
	})
}

// manyKeys is a queue with the keys "key 0" to "key n-1", all queued, that counts how often all of them were read.
type manyKeys struct {
	n     int
	reads int
	each  time.Duration // per key
	busy  atomic.Int32  // counts the calls that read all keys now
	atEnd func()        // is called when all were read, unless nil
}

func (m *manyKeys) inspector() workqueue.Inspector {
	snapshot := func(key string) workqueue.KeySnapshot[any] {
		return workqueue.KeySnapshot[any]{Key: key, State: workqueue.KeyQueued, Requeues: m.reads}
	}
	return workqueue.Inspector{
		Stats: func() workqueue.Stats { return workqueue.Stats{Queued: m.n} },
		SnapshotKey: func(key any) (workqueue.KeySnapshot[any], bool) {
			var n int
			_, err := fmt.Sscanf(key.(string), "key %d", &n)
			return snapshot(key.(string)), err == nil && n < m.n
		},
		SnapshotKeys: func() iter.Seq[workqueue.KeySnapshot[any]] {
			return func(yield func(workqueue.KeySnapshot[any]) bool) {
				if m.busy.Add(1) > 1 {
					panic("two searches at once")
				}
				defer m.busy.Add(-1)
				m.reads++
				for n := range m.n {
					time.Sleep(m.each)
					if !yield(snapshot("key " + strconv.Itoa(n))) {
						return
					}
				}
				if m.atEnd != nil {
					m.atEnd()
				}
			}
		},
		Add: func(any) {},
	}
}

// A search keeps what it shows, whatever the queue holds.
func TestSearchKeepsLittle(t *testing.T) {
	h := newHandler(t, debug.Options{})
	m := &manyKeys{n: 100_000}
	h.InspectQueue("q", m.inspector())
	before := liveHeap()
	for search, want := range map[string]int{"key 99999": 1, "9999": 19, "key": 25, "none": 0} {
		var kept int64
		m.atEnd = func() { kept = liveHeap() - before }
		if s := find(t, h, "q", search); len(s.Found.Keys) != want || s.Found.Incomplete {
			t.Errorf("%q: %+v", search, s.Found)
		}
		if kept == 0 || kept > 2<<20 { // If all were kept, it would be tens of megabytes.
			t.Errorf("%q: at its end the search keeps %d bytes", search, kept)
		}
	}
}

// liveHeap returns how much memory is in use, without garbage.
func liveHeap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A key that was found is looked up the next time, and only a search that goes over all keys is not repeated by the
// page itself.
func TestSearchAgain(t *testing.T) {
	h := newHandler(t, debug.Options{})
	m := &manyKeys{n: 20_000}
	h.InspectQueue("q", m.inspector())
	for range 3 {
		if s := find(t, h, "q", "key 18765"); len(s.Found.Keys) != 1 || !s.Found.Exact || s.Found.Keys[0].Requeues != 1 || s.Found.Keys[0].State != "queued" {
			t.Errorf("%+v", s.Found)
		}
	}
	refreshes := `<main id="live" data-refresh="5">`
	wantBody(t, get(h, "?queue=q&key=key+18765"), "<noscript>", refreshes)
	if m.reads != 1 {
		t.Errorf("the keys were read %d times", m.reads)
	}
	m.n = 9999 // so few that it may be searched again
	wantBody(t, get(h, "?queue=q&key=98"), refreshes, "The first 25 that contain it")
	m.n = 15_000
	wantBody(t, get(h, "?queue=q&key=key+18765"), "No key in this queue is called", "does not refresh itself")
	for _, search := range []string{"98", "none", strings.Repeat("x", 300)} {
		body := get(h, "?queue=q&key="+queryEscape(search)).Body.String()
		if strings.Contains(body, refreshes) || strings.Contains(body, "<noscript>") {
			t.Errorf("a search for %.10q repeats itself", search)
		}
	}
	wantBody(t, get(h, "?queue=q"), "<noscript>", refreshes)
}

// A search ends when its reader goes away and after a minute, and one runs at a time.
func TestSearchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := debug.NewHandler(debug.Options{Actions: true, Audit: new(audited).hook})
		defer h.Close()
		h.InspectQueue("q", (&manyKeys{n: 1 << 30, each: time.Millisecond}).inspector())
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/?queue=q&key=none", nil))
		if d := time.Since(began); d < time.Second || d > 1300*time.Millisecond {
			t.Errorf("without its reader a search took %v", d)
		}
		began = time.Now()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if s := find(t, h, "q", "key 17"); !s.Found.Incomplete || len(s.Found.Keys) > 1 {
					t.Errorf("%+v", s.Found)
				}
			})
		}
		wg.Wait()
		if d := time.Since(began); d < time.Minute || d > 61*time.Second {
			t.Errorf("searches took %v", d)
		}
		wantBody(t, get(h, "?queue=q&key=none"), "No key that was looked at is called", "There was no time to look at all keys")
		if status, failure := post(t, h, asPage, "queue", "q", "action", "retry", "key", "none"); status != 503 {
			t.Errorf("%d %s", status, failure)
		}
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
	for n := range 1000 { // It is not among the keys that are looked at first.
		q.Add(strconv.Itoa(n))
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
