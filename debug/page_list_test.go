package debug_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// A pause without an end is amber; a pause that ends by itself is not. A shared queue says who has paused it, and
// since when.
func TestWhoHasPaused(t *testing.T) {
	inBubble(t, func(t *testing.T, h *debug.Handler) {
		since := time.Now()
		shared := &leasing.Stats{PausedBy: "pod <7>", PausedSince: since}
		for name, st := range map[string]workqueue.Stats{
			"open": {Paused: true, Shared: shared}, "ends": {Paused: true, PausedUntil: since.Add(time.Hour),
				Shared: shared},
		} {
			inspect(h, name, operate.Inspector{Stats: func() workqueue.Stats { return st }})
		}
		time.Sleep(15 * time.Minute)
		wantBody(t, get(h, "?queue=open"), `<span class="badge warn">paused, by pod &lt;7&gt; 15m ago</span>`)
		wantBody(t, get(h, "?queue=ends"),
			`<span class="badge">paused for 45m more, by pod &lt;7&gt; 15m ago</span>`)
	})
}

// What is red comes first, then what is amber; of one colour what has been held or queued for longest, and then
// what is most. The age of a paused queue's line does not count, but that it is paused without an end does.
func TestMostInTroubleFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, h *debug.Handler) {
		for name, s := range map[string]workqueue.Stats{
			"1 no server":       {Shared: &leasing.Stats{Outage: true}},
			"2 held for 1h":     {LongestRunning: time.Hour},
			"2½ queued for 30m": {OldestQueued: 30 * time.Minute},
			"3 stuck":           {OldestQueued: time.Second},
			"4 given up":        {},
			"5 late":            {OldestQueued: 2 * time.Minute},
			"5½ held for 90s":   {LongestRunning: 90 * time.Second},
			"6 failing":         {Failing: 1},
			"7 busy":            {OldestQueued: 59 * time.Second, Queued: 1000},
			"6¼ paused":         {Paused: true, OldestQueued: 24 * time.Hour, Queued: 9},
			"8 paused for 1h": {Paused: true, PausedUntil: time.Now().Add(time.Hour), OldestQueued: 24 * time.Hour,
				Queued: 9},
			"8½ without times": {Queued: 1},
			"9 idle":           {},
		} {
			inspect(h, name, operate.Inspector{Stats: func() workqueue.Stats { return s }})
		}
		inspect(h, "6½ paused group", operate.Inspector{
			Stats: noStats, PausedGroups: func() []string { return []string{"g"} },
		})
		showPool(h, worker.Snapshot[any]{Stats: worker.Stats{Name: "3 stuck", Stuck: 1}})
		showPool(h, worker.Snapshot[any]{Stats: worker.Stats{Name: "4 given up", GivenUpKeys: 1}})
		var order []string
		for _, q := range getJSON[list](t, h, "").Queues {
			order = append(order, q.Name)
		}
		if !slices.IsSorted(order) {
			t.Errorf("%q", order)
		}
		few := newHandler(t, debug.Options{})
		for name, n := range map[string]int{"a few": 1, "many": 2} {
			inspect(few, name, operate.Inspector{Stats: func() workqueue.Stats { return workqueue.Stats{Queued: n} }})
		}
		wantIDs(t, few, "", "many a few")
	})
}

func TestSearch(t *testing.T) {
	h := newHandler(t, debug.Options{})
	for _, name := range []string{"orders-eu", "Orders-us", "mail"} {
		q := workqueue.NewTyped[int]()
		debug.Register(h, name, q)
		q.Add(1)
	}
	l := getJSON[list](t, h, "?search=ORDERS")
	if l.ids() != "Orders-us orders-eu" || l.Matching != 2 || l.Registered != 3 {
		t.Errorf("%+v", l)
	}
	if l := getJSON[list](t, h, "?search=nothing"); l.Matching != 0 || l.Queues == nil {
		t.Errorf("%+v", l)
	}
	w := get(h, "?search=%22%3E%3Cscript%3E")
	wantBody(t, w, `value="&#34;&gt;&lt;script&gt;"`, "No queue has a name like that")
	if w := get(h, "?search="+strings.Repeat("%00", 100_000)); w.Body.Len() > 24_500 {
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
		l := getJSON[list](t, h, "?page="+page)
		if l.Page != want.page || l.Pages != 3 || len(l.Queues) != want.n || l.Queues[0].ID != want.first {
			t.Errorf("page %q: %d of %d, %s", page, l.Page, l.Pages, l.ids())
		}
	}
	wantBody(t, get(h, "?page=2&search=q"),
		`href="?page=1&amp;search=q" rel="prev"`, "Page 2 of 3",
		`href="?page=3&amp;search=q" rel="next"`)
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
		fail(t, q, 5000+n)
	}
	d := getJSON[detail](t, h, "?queue=q")
	if len(d.Running) != 25 || len(d.Queued) != 25 || len(d.Waiting) != 25 || len(d.Failing) != 25 {
		t.Errorf("%d, %d, %d, %d keys", len(d.Running), len(d.Queued), len(d.Waiting), len(d.Failing))
	}
	if d.Running[0].Key != "0" || d.Queued[0].Key != "300" || d.Waiting[0].Requeues < 1 ||
		d.Failing[0].Requeues != 1 {
		t.Errorf("%+v", d)
	}
	wantBody(t, get(h, "?queue=q"),
		`25 of <a href="?queue=q&amp;state=processing">300</a>, held by workers, longest first`,
		"<code>0</code>", "5m",
		`25 of <a href="?queue=q&amp;state=failing">400</a>, the most failures first`, "<code>5000</code>",
		`25 of <a href="?queue=q&amp;state=queued">700</a>`, `25 of <a href="?queue=q&amp;state=waiting">400</a>`)
}

// The head of a priority queue is in the order in which its keys will be handed out, with priorities and
// groups, and a pause and what is blocked are shown. A key that is held or queued may wait as well.
func TestKeysOfAPriorityQueue(t *testing.T) {
	h := newAudited(t)
	q := priorityqueue.New(priorityqueue.Config[string]{
		Name: "q", MetricsProvider: h,
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Hour, time.Hour),
		Group:       func(key string) string { return key[:1] },
		Limit:       func(group string) int { return map[string]int{"z": 1}[group] },
	})
	defer q.ShutDown()
	q.AddWithOpts(priorityqueue.AddOpts{Priority: 9}, "z held")
	q.Get()
	for i, key := range []string{"a low", "b high", "a middle", "z blocked"} {
		q.AddWithOpts(priorityqueue.AddOpts{Priority: []int{-5, 7, 3, 9}[i]}, key)
	}
	q.AddAfter("z held", time.Minute)
	fail(t, q, "fails")
	d := getJSON[detail](t, h, "?queue=q")
	names := func(keys []key) string {
		var all []string
		for _, k := range keys {
			all = append(all, k.Key)
		}
		return strings.Join(all, ", ")
	}
	got := []string{names(d.Running), names(d.Queued), names(d.Waiting), names(d.Failing)}
	if want := []string{"z held", "b high, a middle, a low, z blocked", "z held, fails",
		"fails"}; !slices.Equal(got, want) {
		t.Fatalf("the keys are %q, want %q", got, want)
	}
	if k := d.Queued[0]; k.Priority != 7 || k.Group != "b" || k.Blocked || !d.Queued[3].Blocked ||
		d.Queue.Stats.Blocked != 1 || d.Queue.Stats.Paused ||
		d.Waiting[1].Requeues != 1 {
		t.Errorf("%+v", d)
	}
	if k := find(t, h, "q", "a low").Keys[0]; k.Priority != -5 || k.Group != "a" || k.State != "queued" {
		t.Errorf("found %+v", k)
	}
	wantBody(t, get(h, "?queue=q"), `data-action="pause"`, "<dt>Blocked by a limit</dt>", ">1<", "Head of the line</h2>",
		"b high", "priority 7</span>", "z blocked", "blocked</span>")
	q.Pause(operate.UntilResumed)
	wantBody(t, get(h, "?queue=q"), `<span class="badge warn">paused</span>`, `data-action="resume"`,
		"Waiting</h2>", "fails")
	wantBody(t, get(h, ""), `<span class="badge warn">paused</span>`)
}

// A queue is asked for its first keys once for each page, and not at all by the list.
func TestKeysThatAreAskedFor(t *testing.T) {
	h := newHandler(t, debug.Options{})
	asked, most, shared := 0, 0, any(nil)
	inspect(h, "q", operate.Inspector{
		Stats: func() workqueue.Stats { return workqueue.Stats{Queued: 1 << 30, Shared: shared} },
		Snapshot: func(limit int) workqueue.Snapshot[any] {
			asked, most = asked+1, max(most, limit)
			return workqueue.Snapshot[any]{}
		},
	})
	for _, c := range []struct {
		query       string
		asked, most int
	}{{"", 0, 0}, {"?queue=q", 1, 512}, {"?queue=q&key=none", 1, 512}} {
		asked, most = 0, 0
		get(h, c.query)
		if asked != c.asked || most != c.most {
			t.Errorf("%q: asked %d times for %d keys", c.query, asked, most)
		}
	}
	shared = &leasing.Stats{GivenUp: 12}
	wantBody(t, get(h, ""), `data-label="Given up">12</td>`) // without a pool
	wantBody(t, get(h, "?queue=q"), "<dt>Given up</dt>")
}
