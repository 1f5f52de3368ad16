package debug

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strings"
	"time"
)

// queuesPerPage is the number of queues on a page.
const queuesPerPage = 50

// listPage lists queues.
type listPage struct {
	page
	Time                 time.Time
	Registered, Matching int
	Search               string
	// Failing and GivenUp are the sums of all queues that match, and Oldest the one with the oldest change
	// that no call has answered, or nil.
	Failing, GivenUp int
	Oldest           *reading
	Rows             []*reading
	Pager            pager
}

// Spark returns the small chart of the queue.
func (r *reading) Spark() chart {
	return newChart("Queued", r.entry.history.all(), countText, queuedKeys)
}

// compareTrouble orders the queues: the worst colour first; then what takes longest and, in queues without
// times, what is most.
func compareTrouble(a, b *reading) int {
	return cmp.Or(
		cmp.Compare(b.trouble(), a.trouble()),
		cmp.Compare(b.longest(), a.longest()),
		cmp.Compare(b.Stats.Failing, a.Stats.Failing),
		cmp.Compare(b.Stats.Queued, a.Stats.Queued),
		cmp.Compare(a.Name(), b.Name()),
		cmp.Compare(a.ID(), b.ID()),
	)
}

// longest is for how long a worker has had a key, or a key has been in the line. The line of a queue that is
// paused, or that nobody works, does not count: its age is what somebody wanted.
func (r *reading) longest() time.Duration {
	if r.Stats.Paused || r.IsUnworked() {
		return r.Stats.LongestRunning
	}
	return max(r.Stats.LongestRunning, r.Stats.OldestQueued)
}

// trouble is 3 for a queue that does not reach its server, and 2 or 1 if something of it is red or amber.
func (r *reading) trouble() int {
	level := level(r.longest())
	switch {
	case r.HasNoAnswer():
		return 3
	case level == "bad" || r.Wedged != nil || r.Workers.Stuck > 0 || r.GivenUp() > 0:
		return 2
	case level == "warn" || r.Stats.Failing > 0 || r.Workers.Looping > 0 || len(r.PausedGroups) > 0 ||
		r.Workers.StartLimited || r.Stats.Paused && r.Stats.PausedUntil.IsZero():
		return 1
	}
	return 0
}

// listPage reads all queues, and reports those of the page that query asks for.
func (h *Handler) listPage(ctx context.Context, query url.Values) *listPage {
	search, all := cut(query.Get("search"), maxName), h.readAll(ctx)
	p := &listPage{Time: h.clock.Now().UTC(), Registered: len(all), Search: search}
	all = slices.DeleteFunc(all, func(r *reading) bool {
		return !strings.Contains(strings.ToLower(r.Name()), strings.ToLower(search))
	})
	p.Matching = len(all)
	oldest := time.Duration(0)
	for _, r := range all {
		p.Failing, p.GivenUp = p.Failing+r.Stats.Failing, p.GivenUp+r.GivenUp()
		if age := r.Workers.OldestUnanswered; age > oldest {
			p.Oldest, oldest = r, age
		}
	}
	slices.SortFunc(all, compareTrouble)
	p.Pager = newPager(query, len(all), queuesPerPage, func(page int) string {
		return href("search", search, "page", page)
	})
	all = all[(p.Pager.Page-1)*queuesPerPage:]
	p.Rows = all[:min(queuesPerPage, len(all))]
	p.page = newPage(0, object{
		"time": p.Time, "registered": p.Registered, "matching": p.Matching, "search": search,
		"page": p.Pager.Page, "pages": p.Pager.Pages,
		"queues": mapped(p.Rows, (*reading).json),
	}, "search", search, "page", p.Pager.Page)
	return p
}
