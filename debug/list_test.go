package debug_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

func TestSorting(t *testing.T) {
	clock := newClock()
	h := newHandler(t, debug.Options{Clock: clock})
	add := func(name string) queue[int] {
		q := newQueue[int](t, name, clock)
		debug.Register(h, "", q)
		return q
	}
	stuck, behind, busy, sleepy, idle := add("stuck"), add("Behind"), add("busy"), add("sleepy"), add("idle")
	stuck.Add(0)
	stuck.Get()
	clock.Step(time.Minute)
	for key := range 5 {
		behind.Add(key)
	}
	clock.Step(time.Minute)
	for key := range 2 {
		busy.Add(key)
		busy.Get()
	}
	busy.Add(3)
	for key := range 9 {
		sleepy.AddRateLimited(key)
		idle.Add(key)
		idle.Get()
		idle.Done(key)
	}
	clock.Step(time.Second)
	plain := workqueue.NewTyped[int]()
	debug.Register(h, "plain", plain)
	plain.Add(1)
	for sort, want := range map[string]string{
		"":           "stuck Behind busy plain sleepy idle",
		"trouble":    "stuck Behind busy plain sleepy idle",
		"nonsense":   "stuck Behind busy plain sleepy idle",
		"queued":     "Behind busy plain idle sleepy stuck",
		"processing": "busy stuck Behind idle plain sleepy",
		"waiting":    "sleepy Behind busy idle plain stuck",
		"oldest":     "Behind busy idle plain sleepy stuck",
		"longest":    "stuck busy Behind idle plain sleepy",
		"unfinished": "stuck busy Behind idle plain sleepy",
		"adds":       "idle Behind busy plain stuck sleepy",
		"retries":    "sleepy Behind busy idle plain stuck",
		"name":       "Behind busy idle plain sleepy stuck",
	} {
		if got := getJSON[list](t, h, "?sort="+sort).ids(); got != want {
			t.Errorf("by %q: %s, want %s", sort, got, want)
		}
	}
	wantBody(t, get(h, "?sort=waiting"), `<option value="waiting" selected>`, ">sleepy</a>")
	wantBody(t, get(h, ""), ">stuck</a>", `<td role="cell" class="n warn" data-label="Longest in work">2m 01s</td>`)
}

// What is red comes first, then what is amber. A paused queue is not in trouble because its line gets older.
func TestMostInTroubleFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := debug.NewHandler(debug.Options{})
		defer h.Close()
		for name, s := range map[string]workqueue.Stats{
			"1 panics":      {Name: "panics"},
			"2 held for 1h": {LongestRunning: time.Hour},
			"3 stuck":       {OldestQueued: time.Second},
			"4 given up":    {},
			"5 late":        {OldestQueued: 2 * time.Minute},
			"6 failing":     {},
			"7 busy":        {OldestQueued: 59 * time.Second, Queued: 1000},
			"8 paused":      {Paused: true, OldestQueued: 24 * time.Hour, Queued: 9},
			"9 idle":        {},
		} {
			h.InspectQueue(name, workqueue.Inspector{Stats: func() workqueue.Stats {
				if s.Name == "panics" {
					panic("oh")
				}
				return s
			}})
		}
		h.InspectQueue("6½ paused group", workqueue.Inspector{
			Stats: func() workqueue.Stats { return workqueue.Stats{} }, PausedGroups: func() []string { return []string{"g"} },
		})
		showPool(h, &worker.Snapshot[any]{Stats: worker.Stats{Name: "3 stuck", Stuck: 1}})
		showPool(h, &worker.Snapshot[any]{Stats: worker.Stats{Name: "4 given up"}, DroppedKeys: 1})
		showPool(h, &worker.Snapshot[any]{Stats: worker.Stats{Name: "6 failing", Failing: 1}})
		var order []string
		for _, q := range getJSON[list](t, h, "").Queues {
			order = append(order, q.Name)
		}
		if !slices.IsSorted(order) {
			t.Errorf("%q", order)
		}
	})
}

func TestSearch(t *testing.T) {
	h := newHandler(t, debug.Options{})
	for _, name := range []string{"orders-eu", "Orders-us", "mail"} {
		q := workqueue.NewTyped[int]()
		debug.Register(h, name, q)
		q.Add(1)
	}
	l := getJSON[list](t, h, "?search=ORDERS&sort=name")
	if l.ids() != "Orders-us orders-eu" || l.Matching != 2 || l.Registered != 3 || l.Queued != 2 {
		t.Errorf("%+v", l)
	}
	if l := getJSON[list](t, h, "?search=nothing"); l.Matching != 0 || l.Queues == nil {
		t.Errorf("%+v", l)
	}
	w := get(h, "?search=%22%3E%3Cscript%3E")
	wantBody(t, w, `value="&#34;&gt;&lt;script&gt;"`, "No queue has a name like that")
	if w := get(h, "?search="+strings.Repeat("%00", 100_000)); w.Body.Len() > 20_000 {
		t.Errorf("%d bytes", w.Body.Len())
	}
}

func TestPages(t *testing.T) {
	h := newHandler(t, debug.Options{})
	for n := range 120 {
		debug.Register(h, fmt.Sprintf("q%03d", n), workqueue.NewTyped[int]())
	}
	for page, want := range map[string]struct {
		page, n int
		first   string
	}{
		"": {1, 50, "q000"}, "1": {1, 50, "q000"}, "2": {2, 50, "q050"}, "3": {3, 20, "q100"},
		"4": {3, 20, "q100"}, "0": {1, 50, "q000"}, "-9": {1, 50, "q000"}, "x": {1, 50, "q000"},
		"99999999999999999999": {3, 20, "q100"},
	} {
		l := getJSON[list](t, h, "?sort=name&page="+page)
		if l.Page != want.page || l.Pages != 3 || len(l.Queues) != want.n || l.Queues[0].ID != want.first {
			t.Errorf("page %q: %d of %d, %s", page, l.Page, l.Pages, l.ids())
		}
	}
	wantBody(t, get(h, "?sort=name&page=2&search=q"),
		`href="?page=1&amp;search=q&amp;sort=name" rel="prev"`, "Page 2 of 3", `href="?page=3&amp;search=q&amp;sort=name" rel="next"`)
}

func TestKeysOfAQueue(t *testing.T) {
	clock := newClock()
	h := newHandler(t, debug.Options{Clock: clock})
	q := newQueue[int](t, "q", clock)
	debug.Register(h, "", q)
	for n := range 1000 {
		q.Add(n)
	}
	for range 300 {
		q.Get()
		clock.Step(time.Second)
	}
	for n := range 400 {
		for range 1 + n%3 {
			q.AddRateLimited(5000 + n)
		}
	}
	for query, want := range map[string]int{"": 25, "&keys=3": 3, "&keys=0": 1, "&keys=-5": 1, "&keys=x": 25, "&keys=9999": 250} {
		d := getJSON[detail](t, h, "?queue=q"+query)
		if len(d.Running) != want || len(d.Queued) != want || len(d.Waiting) != want || len(d.Failing) != want {
			t.Errorf("%q: %d, %d, %d, %d keys", query, len(d.Running), len(d.Queued), len(d.Waiting), len(d.Failing))
		}
		if d.Running[0].Key != "0" || d.Queued[0].Key != "300" || d.Waiting[0].Requeues < 1 || d.Failing[0].Requeues != 3 {
			t.Errorf("%q: %+v", query, d)
		}
	}
	wantBody(t, get(h, "?queue=q"), "25 of 300, held by workers, longest first", "<code>0</code>", "5m",
		"most requeues first", "<code>5002</code>", "25 of 700", "25 of 400", `href="?keys=250&amp;queue=q"`)
	if w := get(h, "?queue=q&keys=250"); strings.Contains(w.Body.String(), "Show more keys") {
		t.Error("there is more than all")
	}
}

func TestKeysOfAPriorityQueue(t *testing.T) {
	clock := newClock()
	h := newHandler(t, debug.Options{Clock: clock})
	q := priorityqueue.New(priorityqueue.Config[string]{
		Name: "q", Clock: clock, MetricsProvider: debug.Times{},
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Hour, time.Hour),
	})
	defer q.ShutDown()
	debug.Register(h, "", q)
	q.AddWithOpts(priorityqueue.AddOpts{Priority: 1}, "held")
	q.Get()
	q.Add("queued")
	clock.Step(5 * time.Minute)
	q.AddRateLimited("failing")
	q.AddAfter("held", time.Minute)
	d := getJSON[detail](t, h, "?queue=q")
	want := detail{
		Queue: d.Queue, Running: []key{{Key: "held", Bytes: 4}}, Queued: []key{{Key: "queued", Bytes: 6}},
		Waiting: []key{{Key: "held", Bytes: 4}, {Key: "failing", Bytes: 7, Requeues: 1}},
		Failing: []key{{Key: "failing", Bytes: 7, Requeues: 1}},
	}
	if !reflect.DeepEqual(d, want) {
		t.Errorf("got %+v, want %+v", d, want)
	}
	wantBody(t, get(h, "?queue=q"), "<code>held</code>", "5m", "<code>queued</code>", "5m", "<code>failing</code>")
}

// A page is no longer because there are more queues or keys.
func TestManyQueues(t *testing.T) {
	h := newHandler(t, debug.Options{})
	for n := range 1000 {
		q := workqueue.NewTypedRateLimitingQueueWithConfig[int](nil, workqueue.TypedRateLimitingQueueConfig[int]{
			Name: "queue of the tenant " + fmt.Sprint(n), MetricsProvider: debug.Times{},
		})
		debug.Register(h, "", q)
		q.Add(n)
	}
	wantBounded(t, h, "", "text/html", 100_000)
	wantBounded(t, h, "", "application/json", 100_000)
}

func TestManyKeys(t *testing.T) {
	clock := newClock()
	h := newHandler(t, debug.Options{Clock: clock})
	q := newQueue[int](t, "q", clock)
	debug.Register(h, "", q)
	for n := range 10_000 {
		q.Add(n)
		if n%2 == 0 {
			q.AddRateLimited(n)
		}
	}
	for range 1000 {
		q.Get()
	}
	wantBounded(t, h, "?queue=q", "text/html", 50_000)
	wantBounded(t, h, "?queue=q&keys=250", "text/html", 250_000)
	if s := find(t, h, "q", "9999"); len(s.Found.Keys) != 1 || s.Found.Keys[0].State != "queued" {
		t.Errorf("%+v", s.Found)
	}
}

// wantBounded asserts how long an answer is at most.
func wantBounded(t *testing.T, h *debug.Handler, query, accept string, bytes int) {
	t.Helper()
	if w := get(h, query, "Accept", accept); w.Body.Len() > bytes {
		t.Errorf("%s %s: %d bytes", accept, query, w.Body.Len())
	}
}

// A queue is asked for as many keys as a page shows, and for none by the list.
func TestKeysThatAreAskedFor(t *testing.T) {
	h := newHandler(t, debug.Options{})
	asked, most := 0, 0
	h.InspectQueue("q", workqueue.Inspector{
		Stats: func() workqueue.Stats { return workqueue.Stats{Queued: 1 << 30} },
		Snapshot: func(limit int) workqueue.Snapshot[any] {
			asked, most = asked+1, max(most, limit)
			return workqueue.Snapshot[any]{}
		},
	})
	for _, c := range []struct {
		query       string
		asked, most int
	}{{"", 0, 0}, {"?queue=q", 1, 25}, {"?queue=q&keys=9999", 1, 250}, {"?queue=q&key=none", 1, 512}} {
		asked, most = 0, 0
		get(h, c.query)
		if asked != c.asked || most != c.most {
			t.Errorf("%q: asked %d times for %d keys", c.query, asked, most)
		}
	}
}
