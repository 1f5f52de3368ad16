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

// listPage lists queues.
type listPage struct {
	page
	listReport
	Rows  []listRow
	Pager pager
}

// listRow is a queue on the list, with its charts.
type listRow struct {
	queueReport
	Sparks []chart
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
	by("name", "name", func(*reading) int { return 0 }),
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
	by := orders[max(0, slices.IndexFunc(orders, func(o order) bool { return o.Name == query.Get("sort") }))]
	search, all := cut(query.Get("search"), maxName), h.readAll()
	p := &listPage{listReport: listReport{
		Time: h.clock.Now().UTC(), Registered: len(all), Search: search, Sort: by.Name,
		SampleEvery: seconds(h.every),
	}}
	all = slices.DeleteFunc(all, func(r *reading) bool {
		return !strings.Contains(strings.ToLower(r.entry.name), strings.ToLower(search))
	})
	p.sum(all)
	slices.SortFunc(all, func(a, b *reading) int {
		byName := cmp.Compare(a.entry.name, b.entry.name)
		return cmp.Or(by.compare(b, a), byName, cmp.Compare(a.entry.id, b.entry.id))
	})
	p.Pager = newPager(query, len(all), pageLen, func(page int) string {
		return href("sort", by.Name, "search", search, "page", page)
	})
	p.listReport.Page, p.Pages = p.Pager.Page, p.Pager.Pages
	first := (p.Pager.Page - 1) * pageLen
	for _, r := range all[first:min(first+pageLen, len(all))] {
		row := listRow{r.queueReport(), r.sparks(r.timeline(h.every))}
		p.Rows, p.Queues = append(p.Rows, row), append(p.Queues, row.queueReport)
	}
	p.page = newPage(&p.listReport, true, "sort", by.Name, "search", search, "page", p.Pager.Page)
	return p
}

// sum adds up the numbers of the queues.
func (l *listReport) sum(queues []*reading) {
	l.Matching, l.Queues = len(queues), []queueReport{}
	counted := make(map[*worker.Inspector]bool) // Queues with one name have the same pools.
	for _, r := range queues {
		if u := r.oldest(); u != nil && (l.Oldest == nil || u.Age > l.Oldest.Age) {
			l.Oldest = u
		}
		l.Queued += r.stats.Queued
		l.InWork += r.inWork()
		l.OnHold += r.stats.OnHold
		l.Waiting += r.stats.Waiting
		l.PausedGroups += len(r.pausedGroups)
		if !r.hasPools() || !counted[r.pools[0].pool] {
			l.Failing += r.failing()
			l.GivenUp += r.givenUp()
		}
		for _, p := range r.pools {
			counted[p.pool] = true
		}
	}
}
