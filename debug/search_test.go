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

// Search finds a key in whatever state it is, however many others there are, with its attempts and its error.
func TestSearchFindsKeys(t *testing.T) {
	inBubble(t, func(t *testing.T, h *debug.Handler) {
		limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Minute, time.Hour)
		q := workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "q", MetricsProvider: h})
		start(t, worker.New(q, func(ctx context.Context, key string) error {
			switch {
			case key == "runs":
				<-ctx.Done()
			case strings.HasPrefix(key, "fails"):
				return errors.New("the disk is full")
			case key == "given up":
				return worker.Terminal(errors.New("too large"))
			}
			return nil
		}, worker.Options[string]{Workers: 1, MetricsProvider: h}))
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
		for name, want := range map[string]key{
			"runs":        {State: "processing", Attempt: 1},
			"queued 9876": {State: "queued"},
			"later 9876":  {State: "waiting"},
			"fails":       {State: "waiting", Attempt: 2, Requeues: 2, Error: "the disk is full"},
			"given up":    {State: "given_up", Attempt: 1, Error: "worker: terminal: too large"},
		} {
			f := find(t, h, "q", name)
			if len(f.Keys) != 1 || !f.Exact {
				t.Errorf("%s: %+v", name, f)
				continue
			}
			got := f.Keys[0]
			if got.Key != name || got.State != want.State || got.Attempt != want.Attempt ||
				got.Requeues != want.Requeues ||
				!strings.HasSuffix(want.Error, got.Error) || (want.Error == "") != (got.Error == "") {
				t.Errorf("%s: %+v, want %+v", name, got, want)
			}
			if (want.State == "waiting") == got.Due.IsZero() {
				t.Errorf("%s is due %v", name, got.Due)
			}
		}
		if f := find(t, h, "q", "fine"); len(f.Keys) != 0 {
			t.Errorf("a key that is done: %+v", f)
		}
		if f := find(t, h, "q", "ued 99"); f.Exact || !f.More || len(f.Keys) != 25 {
			t.Errorf("a part of many keys: %+v", f)
		}
		// Of a key in two states, what is known of either is shown.
		q.Add("given up")
		if k := find(t, h, "q", "given up").Keys; len(k) != 1 || k[0].State != "queued" || k[0].Attempt != 1 ||
			!strings.HasSuffix(k[0].Error, "too large") {
			t.Errorf("given up and queued: %+v", k)
		}
		q.Add("later 7")
		if k := find(t, h, "q", "later 7").Keys; len(k) != 1 || k[0].State != "queued" || k[0].Due.IsZero() {
			t.Errorf("waiting and queued: %+v", k)
		}
		if d := getJSON[detail](t, h, "?queue=q"); d.Found != nil {
			t.Errorf("nothing was searched for: %+v", d.Found)
		}
		wantBody(t, get(h, "?queue=q&key=fails"), `value="fails"`, "Found</h2>", "<dt>State</dt><dd>waiting",
			"<dt>Attempts</dt><dd>2", "the disk is full")
		wantBody(t, get(h, "?queue=q&key=none"), "No key in this queue is called <code>none</code>")
		// Every key leads to what is known of it.
		wantBody(t, get(h, "?queue=q"), `href="?id=`, `&amp;key=fails&amp;queue=q"`)
	})
}

// manyKeys is a queue with the keys "key 0" to "key n-1", all queued, that counts how often all of them were
// read.
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
	inspect(h, "q", m.inspector())
	before := liveHeap()
	for search, want := range map[string]int{"key 99999": 1, "9999": 19, "key": 25, "none": 0} {
		var kept int64
		m.atEnd = func() { kept = liveHeap() - before }
		if f := find(t, h, "q", search); len(f.Keys) != want || f.Incomplete {
			t.Errorf("%q: %+v", search, f)
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

// A key that was found is looked up the next time, and only a search that goes over all keys is not repeated
// by the page itself.
func TestSearchAgain(t *testing.T) {
	h := newHandler(t, debug.Options{})
	m := &manyKeys{n: 20_000}
	inspect(h, "q", m.inspector())
	for range 3 {
		if f := find(t, h, "q", "key 18765"); len(f.Keys) != 1 || !f.Exact || f.Keys[0].Requeues != 1 ||
			f.Keys[0].State != "queued" {
			t.Errorf("%+v", f)
		}
	}
	refreshes := `<main id="live" tabindex="-1" data-refresh="5">`
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
		h := newAudited(t)
		inspect(h, "q", (&manyKeys{n: 1 << 30, each: time.Millisecond}).inspector())
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
				if f := find(t, h, "q", "key 17"); !f.Incomplete || len(f.Keys) > 1 {
					t.Errorf("%+v", f)
				}
			})
		}
		wg.Wait()
		if d := time.Since(began); d < time.Minute || d > 61*time.Second {
			t.Errorf("searches took %v", d)
		}
		wantBody(t, get(h, "?queue=q&key=none"), "No key that was looked at is called",
			"There was no time to look at all keys")
		h.act(t, 503, "q", "retry", "key", "none")
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
	for search, want := range map[string]int{"line\nbreak": 1, `line\nbreak`: 1, long: 1, long[:256]: 1,
		"<script>": 1, long[:255]: 1} {
		if f := find(t, h, "q", search); len(f.Keys) != want || f.Exact != (search != long[:255]) {
			t.Errorf("%.20q: %+v", search, f)
		}
	}
	for n := range 1000 { // It is not among the keys that are looked at first.
		q.Add(strconv.Itoa(n))
	}
	q.Add(long + "er")
	if f := find(t, h, "q", long[:256]); len(f.Keys) != 2 {
		t.Errorf("two keys look the same: %+v", f)
	}
	wantBody(t, get(h, "?queue=q&key=%3Cscript%3E"), `value="&lt;script&gt;"`, "<code>&lt;script&gt;</code>")
	for n := range 30 { // They contain what is searched for, and come before the key that is called so.
		q.Add(fmt.Sprint("part", n))
	}
	q.Add("part")
	if f := find(t, h, "q", "part"); !f.Exact || f.More || len(f.Keys) != 1 {
		t.Errorf("a key whose text others contain: %+v", f)
	}
}

// A key is found in all queues at once, with what its queue and pools know of it.
func TestFindEverywhere(t *testing.T) {
	inBubble(t, func(t *testing.T, h *debug.Handler) {
		for n := range 60 {
			q := workqueue.NewTyped[string]()
			debug.Register(h, fmt.Sprintf("q%02d <b>", n), q)
			q.Add("acme/1")
			q.Add(fmt.Sprintf("acme/1/%d", n))
			if n%20 == 7 {
				for i := range 2000 {
					q.Add(fmt.Sprint("filler ", i))
				}
				q.Add("globex/1")
			}
		}
		other := workqueue.NewTyped[pair]() // of another type of key
		debug.Register(h, "pairs", other)
		other.Add(pair{"globex", "1"})
		showPool(h, worker.Snapshot[any]{Stats: worker.Stats{Name: "pairs", GivenUpKeys: 1},
			GivenUp: []worker.FailedKey[any]{{Key: pair{"globex", "2"}, Err: "broken <i>"}}})
		e := getJSON[detail](t, h, "?key=globex/1")
		if e.Registered != 61 || !e.Found.Exact || e.Found.More || e.Found.Incomplete || len(e.Found.Keys) != 3 ||
			len(e.Found.Unanswered) != 0 {
			t.Fatalf("%+v", e)
		}
		for i, k := range e.Found.Keys {
			if k.Key != "globex/1" || k.State != "queued" || k.Queue.Name != []string{"q07 <b>", "q27 <b>",
				"q47 <b>"}[i] {
				t.Errorf("%+v", k)
			}
			s := getJSON[story](t, h, "?queue="+queryEscape(k.Queue.ID)+"&key="+queryEscape(k.Key)+"&id="+k.ID)
			if s.Key.State != "queued" || s.Queue.ID != k.Queue.ID {
				t.Errorf("%+v", s)
			}
		}
		if e = getJSON[detail](t, h, "?key=globex"); e.Found.Exact || len(e.Found.Keys) != 5 ||
			e.Found.Keys[0].Queue.ID != "pairs" {
			t.Errorf("%+v", e.Found)
		}
		if e = getJSON[detail](t, h, "?key=acme/1"); !e.Found.Exact || !e.Found.More || len(e.Found.Keys) != 25 {
			t.Errorf("%+v", e.Found)
		}
		if e = getJSON[detail](t, h, "?key=Name:2"); len(e.Found.Keys) != 1 ||
			e.Found.Keys[0].State != "given_up" || e.Found.Keys[0].Error != "broken <i>" {
			t.Errorf("%+v", e.Found)
		}
		if e = getJSON[detail](t, h, "?key="); len(e.Found.Keys) != 0 || e.Found.Exact {
			t.Errorf("%+v", e.Found)
		}
		lone := workqueue.NewTyped[string]()
		debug.Register(h, "lone", lone)
		for n := range 30 {
			lone.Add(fmt.Sprint("only here ", n))
		}
		if e = getJSON[detail](t, h, "?key=only+here"); !e.Found.More || len(e.Found.Keys) != 25 {
			t.Errorf("many keys in one queue: %+v", e.Found)
		}
		exact := workqueue.NewTyped[string]()
		debug.Register(h, "exact", exact)
		exact.Add("only here")
		if e = getJSON[detail](t, h, "?key=only+here"); !e.Found.Exact || e.Found.More || len(e.Found.Keys) != 1 {
			t.Errorf("one key that is called so, in another queue: %+v", e.Found)
		}
		wantBody(t, get(h, ""), `<form method="get" role="search">`, "Find a key in all queues",
			`name="key" value=""`)
		wantBody(t, get(h, "?key=globex"), `value="globex"`, "No key is called <code>globex</code>",
			"5 that contain it", "{Namespace:globex Name:2}", `<a href="?queue=pairs">pairs</a>`, "broken &lt;i&gt;",
			"q07 &lt;b&gt;")
		wantBody(t, get(h, "?key=%3Cscript%3E"), `value="&lt;script&gt;"`,
			"No key is called <code>&lt;script&gt;</code>, or contains it.")
		if body := get(h, "?key=globex").Body.String(); strings.Contains(body, "data-refresh") ||
			strings.Contains(body, `http-equiv="refresh"`) {
			t.Error("a search of all queues repeats itself")
		}
	})
}

// Queues that do not answer are named, and the others' keys are found.
func TestFindEverywhereWithoutAnswers(t *testing.T) {
	inBubble(t, func(t *testing.T, h *debug.Handler) {
		near := workqueue.NewTyped[string]()
		debug.Register(h, "near", near)
		near.Add("a")
		var far server
		for n := range 30 {
			inspect(h, fmt.Sprintf("far %02d <b>", n), far.queue())
		}
		inspect(h, "panics", workqueue.Inspector{
			Stats:        noStats,
			SnapshotKeys: func() iter.Seq[workqueue.KeySnapshot[any]] { panic("oh") },
		})
		later := (&manyKeys{n: 1}).inspector()
		later.SnapshotKey = func(any) (workqueue.KeySnapshot[any], bool) { panic("oh") }
		inspect(h, "panics later", later)
		far.beSilent()
		began := time.Now()
		e := getJSON[detail](t, h, "?key=a")
		if d := time.Since(began); d > 2*time.Second || len(e.Found.Keys) != 1 ||
			e.Found.Keys[0].Queue.ID != "near" ||
			!e.Found.Incomplete || len(e.Found.Unanswered) != 31 || e.Found.Unanswered[0].ID != "far 00 <b>" ||
			e.Found.Unanswered[30].ID != "panics" {
			t.Errorf("after %v: %+v", d, e.Found)
		}
		wantBody(t, get(h, "?key=a"), "31 queues gave no answer, or none in time: ", "far 00 &lt;b&gt;</a>, ",
			" and others.")
		if e := getJSON[detail](t, h, "?key=key+0"); len(e.Found.Unanswered) != 32 ||
			e.Found.Unanswered[31].ID != "panics later" {
			t.Errorf("%+v", e.Found)
		}
		far.answer()
	})
}

// A search of all queues ends after a minute, too, and waits for other searches.
func TestFindEverywhereEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, h *debug.Handler) {
		inspect(h, "endless", (&manyKeys{n: 1 << 30, each: time.Millisecond}).inspector())
		inspect(h, "small", (&manyKeys{n: 10}).inspector())
		began := time.Now()
		e := getJSON[detail](t, h, "?key=key+7")
		if d := time.Since(began); d < time.Minute || d > 61*time.Second || len(e.Found.Unanswered) != 1 ||
			e.Found.Unanswered[0].ID != "endless" || len(e.Found.Keys) == 0 {
			t.Errorf("after %v: %+v", d, e.Found)
		}
	})
}

// A search of all queues that cannot begin, because another one does not end, blames no queue.
func TestFindEverywhereWithoutTurn(t *testing.T) {
	inBubble(t, func(t *testing.T, h *debug.Handler) {
		end := make(chan struct{})
		inspect(h, "q", workqueue.Inspector{Stats: noStats,
			SnapshotKeys: func() iter.Seq[workqueue.KeySnapshot[any]] {
				return func(func(workqueue.KeySnapshot[any]) bool) { <-end }
			}})
		var wg sync.WaitGroup
		wg.Go(func() { find(t, h, "q", "a") })
		synctest.Wait()
		e := getJSON[detail](t, h, "?key=a")
		if !strings.Contains(e.Error, "try again in a minute") || !e.Found.Incomplete ||
			len(e.Found.Unanswered) != 0 {
			t.Errorf("%+v", e)
		}
		wantBody(t, get(h, "?key=a"), "No key that was looked at is called", "try again in a minute")
		close(end)
		wg.Wait()
	})
}

// Cancel and release, which need the pools alone, do not go over all keys. Other actions without an id do,
// because several keys may be called so.
func TestActionsWithoutID(t *testing.T) {
	h := newAudited(t)
	q := &manyKeys{n: 10}
	inspect(h, "q", q.inspector())
	pool := inspectorOf(func(int) worker.Snapshot[any] {
		return worker.Snapshot[any]{Stats: worker.Stats{Name: "q"},
			Running: []worker.RunningKey[any]{{Key: "key 1"}}}
	})
	pool.Cancel = func(any) bool { return true }
	h.InspectPool("q", pool)
	for action, reads := range map[string]int{"cancel": 0, "retry": 1} {
		before := q.reads
		if h.act(t, 200, "q", action, "key", "key 1"); q.reads-before != reads {
			t.Errorf("%s goes %d times over all keys, want %d", action, q.reads-before, reads)
		}
	}
}

// A search during which the handler is closed ends at once.
func TestFindEverywhereWhileClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := debug.NewHandler(debug.Options{})
		var shown atomic.Bool
		var closed sync.WaitGroup
		var once sync.Once
		inspect(h, "closes", workqueue.Inspector{Stats: func() workqueue.Stats {
			if shown.Load() {
				once.Do(func() { closed.Go(h.Close) })
				time.Sleep(100 * time.Millisecond)
			}
			return workqueue.Stats{}
		}})
		shown.Store(true)
		began := time.Now()
		get(h, "?key=a")
		if d := time.Since(began); d > time.Second {
			t.Errorf("it took %v", d)
		}
		closed.Wait()
	})
}
