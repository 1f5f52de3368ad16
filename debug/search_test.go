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
	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/worker"
)

// Search finds a key in every state, among any number of others, with its attempts and its error.
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
		wantBody(t, get(h, "?queue=q&key=fails"), `value="fails"`, "<dt>State</dt><dd>waiting",
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
}

func (m *manyKeys) inspector() operate.Inspector {
	snapshot := func(key string) workqueue.KeySnapshot[any] {
		return workqueue.KeySnapshot[any]{Key: key, State: workqueue.KeyQueued, Requeues: m.reads}
	}
	return operate.Inspector{
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
			}
		},
		Add: func(any) {},
	}
}

// liveHeap returns how much memory is in use, without garbage.
func liveHeap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
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
		for id, end := range map[string]string{"": ", or contains it.</p>", "x": ".</p>"} {
			wantBody(t, get(h, "?queue=q&key=none&id="+id), "There was no time to look at all keys",
				"No key that was looked at is called <code>none</code>"+end)
		}
		h.act(t, 503, "q", "retry", "key", "none")
	})
}

// A key is also found by what the page shows of it, which is what a link has.
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
	wantBody(t, get(h, "?queue=q&key=%3Cscript%3E"), "<code>&lt;script&gt;</code>", `value="&lt;script&gt;"`)
	for n := range 30 { // They contain what is searched for, and come before the key that is called so.
		q.Add(fmt.Sprint("part", n))
	}
	q.Add("part")
	if f := find(t, h, "q", "part"); !f.Exact || f.More || len(f.Keys) != 1 {
		t.Errorf("a key whose text others contain: %+v", f)
	}
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
	pool.Queue.Queue, pool.Cancel = queueNamed("q"), func(any) bool { return true }
	h.InspectPool("q", pool)
	for action, reads := range map[string]int{"cancel": 0, "retry": 1} {
		before := q.reads
		if h.act(t, 200, "q", action, "key", "key 1"); q.reads-before != reads {
			t.Errorf("%s goes %d times over all keys, want %d", action, q.reads-before, reads)
		}
	}
}
