package debug

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/keyedqueue/workqueue/worker"
)

// pageLen is the number of queues on a page.
const pageLen = 50

// listPage is what the list page shows.
type listPage struct {
	Time       time.Time `json:"time"`
	Registered int       `json:"registered"`
	Matching   int       `json:"matching"`
	Queued     int       `json:"queued"`
	InWork     int       `json:"in_work"`
	OnHold     int       `json:"on_hold,omitempty"`
	Waiting    int       `json:"waiting"`
	Failing    int       `json:"failing"`
	GivenUp    int       `json:"given_up"`
	// Oldest is the oldest change of all these queues that no call has answered, or nil.
	Oldest *unansweredReport `json:"oldest_unanswered,omitempty"`
	// PausedGroups counts the groups of all queues that are paused.
	PausedGroups int    `json:"paused_groups,omitempty"`
	Search       string `json:"search"`
	Sort         string `json:"sort"`
	pager
	SampleEvery seconds   `json:"sample_seconds"`
	Queues      []listRow `json:"queues"`
}

func (r *listPage) Refresh() int     { return refreshSeconds }
func (r *listPage) HrefJSON() string { return r.hrefOf("page", r.Page, "format", "json") }

// hrefOf returns the address of the same list with more in its query.
func (r *listPage) hrefOf(more ...any) string {
	return href(append(more, "sort", r.Sort, "search", r.Search)...)
}

// listRow is a queue on the list, with its charts.
type listRow struct {
	queueReport
	Sparks []chart `json:"-"`
}

// order is a way to sort the queues: the one with the most first, and by name where that is equal.
type order struct {
	Name, Title string
	compare     func(a, b *reading) int
}

// by returns the order by a number.
func by[N cmp.Ordered](name, title string, number func(*reading) N) order {
	return order{name, title, func(a, b *reading) int { return cmp.Compare(number(a), number(b)) }}
}

// orders has the default first.
var orders = []order{
	{"trouble", "most in trouble", func(a, b *reading) int {
		// The worst colour first; then what takes longest and, in queues without times, what is most.
		return cmp.Or(
			cmp.Compare(a.trouble(), b.trouble()),
			cmp.Compare(a.longest(), b.longest()),
			cmp.Compare(a.failing(), b.failing()),
			cmp.Compare(a.stats.Queued, b.stats.Queued),
			cmp.Compare(a.stats.Processing, b.stats.Processing),
			cmp.Compare(a.stats.Waiting, b.stats.Waiting),
		)
	}},
	by("queued", "most queued", func(r *reading) int { return r.stats.Queued }),
	by("oldest", "oldest queued", func(r *reading) time.Duration { return r.stats.OldestQueued }),
	by("longest", "longest in work", func(r *reading) time.Duration { return r.stats.LongestRunning }),
	by("unanswered", "oldest unanswered", func(r *reading) time.Duration { return r.workers.OldestUnanswered }),
	by("failing", "most failing keys", (*reading).failing),
	by("given_up", "most keys given up", (*reading).givenUp),
	by("errors", "most errors per second", func(r *reading) float64 { return r.minute.Errors }),
	{"name", "name", func(a, b *reading) int { return 0 }},
}

// longest is for how long a worker has had a key, or a key has been in the line. The line of a queue that is
// paused, or that nobody works, does not count: its age is what somebody wanted.
func (r *reading) longest() time.Duration {
	if r.stats.Paused || r.isUnworked() {
		return r.stats.LongestRunning
	}
	return max(r.stats.LongestRunning, r.stats.OldestQueued)
}

// trouble is 3 for a queue that does not reach its server, and 2 or 1 if something of it is red or amber.
func (r *reading) trouble() int {
	level := level(r.longest())
	switch {
	case r.hasOutage():
		return 3
	case level == "bad" || r.wedged != nil || r.workers.Stuck > 0 || r.givenUp() > 0:
		return 2
	case level == "warn" || r.failing() > 0 || r.workers.Looping > 0 || len(r.pausedGroups) > 0 ||
		r.workers.StartLimited:
		return 1
	}
	return 0
}

// listPage reads all queues, and reports those of the page that query asks for.
func (h *Handler) listPage(query url.Values) *listPage {
	sorted := slices.IndexFunc(orders, func(o order) bool { return o.Name == query.Get("sort") })
	by := orders[max(0, sorted)]
	r := &listPage{
		Time:        h.clock.Now().UTC(),
		Search:      cut(query.Get("search"), maxName),
		Sort:        by.Name,
		SampleEvery: seconds(h.every),
	}
	all := h.readAll()
	r.Registered = len(all)
	wanted := strings.ToLower(r.Search)
	all = slices.DeleteFunc(all, func(q *reading) bool {
		return !strings.Contains(strings.ToLower(q.entry.name), wanted)
	})
	r.Matching = len(all)
	counted := make(map[*worker.Inspector]bool) // Queues with one name have the same pools.
	for _, q := range all {
		if u := q.oldest(); u != nil && (r.Oldest == nil || u.Age > r.Oldest.Age) {
			r.Oldest = u
		}
		r.Queued += q.stats.Queued
		r.InWork += q.inWork()
		r.OnHold += q.stats.OnHold
		r.Waiting += q.stats.Waiting
		if len(q.pools) == 0 || !counted[q.pools[0].pool] {
			r.Failing += q.failing()
			r.GivenUp += q.givenUp()
		}
		for _, p := range q.pools {
			counted[p.pool] = true
		}
		r.PausedGroups += len(q.pausedGroups)
	}
	r.pager = newPager(query, len(all), pageLen, func(page int) string { return r.hrefOf("page", page) })
	slices.SortFunc(all, func(a, b *reading) int {
		byName := cmp.Compare(a.entry.name, b.entry.name)
		return cmp.Or(by.compare(b, a), byName, cmp.Compare(a.entry.id, b.entry.id))
	})
	first := (r.Page - 1) * pageLen
	all = all[first:min(first+pageLen, len(all))]
	r.Queues = mapped(all, func(q *reading) listRow {
		return listRow{q.queueReport(), q.sparks(q.timeline(h.every))}
	})
	return r
}
