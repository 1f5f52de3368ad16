package debug_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/debug"
)

func TestNamesAndIDs(t *testing.T) {
	h := newHandler(t, debug.Options{})
	add := func(name string) func() { return debug.Register(h, name, workqueue.NewTyped[int]()) }
	add("b")
	remove := add("a")
	add("a")
	add("a~2")
	add("")
	debug.Register(h, "", newQueue[int](t, "its own", newClock()))
	add(strings.Repeat("long", 1000) + "\xff")
	add("\x00<b>")
	l := getJSON[list](t, h, "?sort=name")
	names := map[string]int{}
	for _, q := range l.Queues {
		names[q.Name]++
		// Each is found under its id.
		if d := getJSON[detail](t, h, "?queue="+queryEscape(q.ID)); d.Queue.Name != q.Name {
			t.Errorf("under %q is %q, want %q", q.ID, d.Queue.Name, q.Name)
		}
	}
	want := map[string]int{"a": 2, "b": 1, "a~2": 1, "": 1, "its own": 1, strings.Repeat("long", 32) + "…": 1, `\x00<b>`: 1}
	if fmt.Sprint(names) != fmt.Sprint(want) || l.Registered != 8 {
		t.Errorf("%d names: %v, want %v", l.Registered, names, want)
	}
	wantBody(t, get(h, ""), "(no name)", `\x00&lt;b&gt;`)

	remove()
	remove()
	if l := getJSON[list](t, h, ""); l.Registered != 7 || strings.Contains(" "+l.ids()+" ", " a ") {
		t.Errorf("after it was unregistered, there are %s", l.ids())
	}
	// The name is free again, and the old function does not remove the new queue.
	add("a")
	remove()
	if l := getJSON[list](t, h, ""); l.Registered != 8 {
		t.Errorf("an old unregister took away a new queue, and left %s", l.ids())
	}
}

func TestQueueThatHasEndedGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := debug.NewHandler(debug.Options{})
		defer h.Close()
		q := workqueue.NewTypedRateLimitingQueue[int](nil)
		debug.Register(h, "q", q)
		q.Add(1)
		q.ShutDown()
		registered := func() int {
			time.Sleep(6 * time.Second)
			return getJSON[list](t, h, "").Registered
		}
		if registered() != 1 {
			t.Fatal("a queue with a key that is queued has gone")
		}
		wantBody(t, get(h, ""), "shutting down")
		q.Get()
		if registered() != 1 {
			t.Fatal("a queue with a key that is held has gone")
		}
		q.Done(1)
		if registered() != 0 {
			t.Fatal("a queue that has ended is still there")
		}
	})
}

// A queue that has ended is let go of even if no page is asked for, and the goroutine goes with the last one.
func TestSamplerLetsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := debug.NewHandler(debug.Options{})
		q := workqueue.NewTyped[int]()
		debug.Register(h, "q", q)
		q.ShutDown()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		// The bubble ends only if no goroutine is left, and h is not closed.
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := debug.NewHandler(debug.Options{})
		remove := debug.Register(h, "a", workqueue.NewTyped[int]())
		h.Close()
		h.Close()
		debug.Register(h, "b", workqueue.NewTyped[int]())()
		debug.Register(h, "c", workqueue.NewTyped[int]())
		remove()
		if l := getJSON[list](t, h, ""); l.Registered != 0 {
			t.Errorf("after Close there are %s", l.ids())
		}
		wantBody(t, get(h, ""), "No queue is registered")
	})
}

func TestDepth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := debug.NewHandler(debug.Options{SampleEvery: time.Second})
		defer h.Close()
		q := workqueue.NewTyped[int]()
		debug.Register(h, "q", q)
		time.Sleep(time.Second / 2)
		var want []int
		for n := range 300 {
			q.Add(n)
			time.Sleep(time.Second)
			want = append(want, n+1)
			if n == 2 {
				if got := getJSON[list](t, h, "").Queues[0].Depth; !slices.Equal(got, []int{1, 2, 3, 3}) {
					t.Errorf("depth %v", got)
				}
			}
		}
		q.Add(1000)
		want = append(want[len(want)-120:], 301)
		if got := getJSON[list](t, h, "").Queues[0].Depth; !slices.Equal(got, want) {
			t.Errorf("depth\n%v, want\n%v", got, want)
		}
		wantBody(t, get(h, ""), `aria-label="Queued over the last 2m: queued now 301, at most 301"`)
	})
}

// foreign is a queue of somebody else's.
type foreign struct{ workqueue.TypedInterface[int] }

func TestForeignQueue(t *testing.T) {
	h := newHandler(t, debug.Options{})
	q := foreign{workqueue.NewTyped[int]()}
	debug.Register(h, "theirs", q)
	q.Add(1)
	q.Add(2)
	if d := getJSON[detail](t, h, "?queue=theirs"); d.Queue.Queued != 2 || len(d.Queued) != 0 {
		t.Errorf("%+v", d)
	}
	wantBody(t, get(h, "?queue=theirs"), "<dt>Queued</dt><dd>2</dd>")
}

// broken panics with something that panics.
type broken struct{ workqueue.TypedInterface[int] }

type worse struct{}

func (worse) Error() string { panic(worse{}) }

func (broken) Stats() workqueue.Stats               { panic(worse{}) }
func (broken) Snapshot(int) workqueue.Snapshot[int] { panic(worse{}) }

// greedy gives more than it is asked for, and less than nothing.
type greedy struct{ workqueue.TypedInterface[int] }

func (greedy) Stats() workqueue.Stats { return workqueue.Stats{Queued: -5} }
func (greedy) Snapshot(int) workqueue.Snapshot[int] {
	return workqueue.Snapshot[int]{Queued: make([]workqueue.KeySnapshot[int], 5000)}
}

func TestBrokenQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := debug.NewHandler(debug.Options{})
		defer h.Close()
		b := broken{workqueue.NewTyped[int]()}
		debug.Register(h, "", b)
		debug.Register(h, "broken", b)
		debug.Register(h, "good", workqueue.NewTyped[int]())
		debug.Register(h, "greedy", greedy{workqueue.NewTyped[int]()})
		time.Sleep(time.Minute) // The sampler asks them, too.
		wantBody(t, get(h, ""), "broken", "panicked", "good")
		wantBody(t, get(h, "?queue=broken"), "The queue panicked with a debug_test.worse.")
		if d := getJSON[detail](t, h, "?queue=broken"); d.Queue.Error == "" {
			t.Errorf("%+v", d)
		}
		if d := getJSON[detail](t, h, "?queue=greedy&keys=7"); len(d.Queued) != 7 || slices.Max(d.Queue.Depth) != 0 {
			t.Errorf("%d keys, depth %v", len(d.Queued), d.Queue.Depth)
		}
	})
}

// Everything at once, for the race detector.
func TestConcurrently(t *testing.T) {
	h := newHandler(t, debug.Options{SampleEvery: time.Millisecond})
	q := newQueue[string](t, "steady", newClock())
	debug.Register(h, "", q)
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			for n := range 30 {
				mine := workqueue.NewTypedRateLimitingQueue[int](nil)
				remove := debug.Register(h, fmt.Sprint("mine", n), mine)
				mine.Add(w)
				q.AddRateLimited(fmt.Sprint(w, n))
				q.Add(fmt.Sprint(w, n))
				get(h, "")
				get(h, "?queue=steady", "Accept", "application/json")
				get(h, "?queue=mine1")
				mine.ShutDown()
				remove()
			}
		})
	}
	wg.Wait()
	if l := getJSON[list](t, h, ""); l.ids() != "steady" {
		t.Errorf("left are %s", l.ids())
	}
}
