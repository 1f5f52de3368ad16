package debug_test

import (
	"fmt"
	"iter"
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
	})
}

// A search of all queues is not held up by a queue with very many keys, and ends after a minute.
func TestFindEverywhereEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, h *debug.Handler) {
		inspect(h, "endless", (&manyKeys{n: 1 << 30, each: time.Millisecond}).inspector())
		inspect(h, "small", (&manyKeys{n: 10}).inspector())
		began := time.Now()
		e := getJSON[detail](t, h, "?key=key+7")
		if d := time.Since(began); d > time.Minute || len(e.Found.Unanswered) != 1 ||
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
