package debug

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// pageLen is the number of queues on a page.
const pageLen = 50

// order is a way to sort the queues: the one with the most first, and by name where that is equal.
type order struct {
	name, title string
	compare     func(a, b *reading) int
}

// orders has the default first.
var orders = []order{
	{"trouble", "most in trouble", func(a, b *reading) int {
		// Whatever takes longest, and in queues without times whatever is most.
		return cmp.Or(
			compareBools(a.err != "", b.err != ""),
			cmp.Compare(max(a.stats.LongestRunning, a.stats.OldestQueued), max(b.stats.LongestRunning, b.stats.OldestQueued)),
			cmp.Compare(a.stats.Queued, b.stats.Queued),
			cmp.Compare(a.stats.Processing, b.stats.Processing),
			cmp.Compare(a.stats.Waiting, b.stats.Waiting),
		)
	}},
	{"queued", "most queued", func(a, b *reading) int { return cmp.Compare(a.stats.Queued, b.stats.Queued) }},
	{"processing", "most in work", func(a, b *reading) int { return cmp.Compare(a.stats.Processing, b.stats.Processing) }},
	{"waiting", "most waiting", func(a, b *reading) int { return cmp.Compare(a.stats.Waiting, b.stats.Waiting) }},
	{"oldest", "oldest queued", func(a, b *reading) int { return cmp.Compare(a.stats.OldestQueued, b.stats.OldestQueued) }},
	{"longest", "longest in work", func(a, b *reading) int { return cmp.Compare(a.stats.LongestRunning, b.stats.LongestRunning) }},
	{"unfinished", "most unfinished work", func(a, b *reading) int { return cmp.Compare(a.stats.UnfinishedWork, b.stats.UnfinishedWork) }},
	{"adds", "most adds", func(a, b *reading) int { return cmp.Compare(a.stats.Adds, b.stats.Adds) }},
	{"retries", "most retries", func(a, b *reading) int { return cmp.Compare(a.stats.Retries, b.stats.Retries) }},
	{"name", "name", func(a, b *reading) int { return 0 }},
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}

func orderNamed(name string) order {
	for _, o := range orders {
		if o.name == name {
			return o
		}
	}
	return orders[0]
}

// list reads all queues, and reports those of the page that query asks for.
func (h *Handler) list(query url.Values) *listReport {
	by := orderNamed(query.Get("sort"))
	r := &listReport{
		Time:        h.clock.Now().UTC(),
		Search:      newLabel(query.Get("search"), maxName).Text,
		Sort:        by.name,
		SampleEvery: seconds(h.every),
	}
	all := h.readAll()
	r.Registered = len(all)
	wanted := strings.ToLower(r.Search)
	all = slices.DeleteFunc(all, func(q *reading) bool { return !strings.Contains(strings.ToLower(q.entry.name), wanted) })
	r.Matching = len(all)
	for _, q := range all {
		r.Queued += q.stats.Queued
		r.Processing += q.stats.Processing
		r.Waiting += q.stats.Waiting
	}
	r.Pages = max(1, (len(all)+pageLen-1)/pageLen)
	r.Page, _ = strconv.Atoi(query.Get("page"))
	r.Page = min(max(r.Page, 1), r.Pages)

	slices.SortFunc(all, func(a, b *reading) int {
		return cmp.Or(by.compare(b, a), cmp.Compare(a.entry.name, b.entry.name), cmp.Compare(a.entry.id, b.entry.id))
	})
	first := (r.Page - 1) * pageLen
	all = all[first:min(first+pageLen, len(all))]
	r.Queues = make([]queueReport, len(all))
	for i, q := range all {
		r.Queues[i] = newQueueReport(q.entry, q.stats, q.err)
	}
	return r
}

const (
	// someKeys is how many keys of each state are shown unless more are asked for, maxKeys the most.
	someKeys = 25
	maxKeys  = 250
)

// detail reports the queue that query asks for, or returns nil if there is none.
func (h *Handler) detail(query url.Values) *detailReport {
	e := h.find(query.Get("queue"))
	if e == nil {
		return nil
	}
	limit, err := strconv.Atoi(query.Get("keys"))
	if err != nil {
		limit = someKeys
	}
	limit = min(max(limit, 1), maxKeys)
	s, failure := e.read()
	keys, keysFailure := e.readKeys(limit)
	r := &detailReport{
		Time:        h.clock.Now().UTC(),
		SampleEvery: seconds(h.every),
		Queue:       newQueueReport(e, s, cmp.Or(failure, keysFailure)),
		Latency:     newTimesReport(s.Latency),
		Work:        newTimesReport(s.WorkDuration),
		keyLists:    keys,
		limit:       limit,
	}
	r.tellTimes(r.Time)
	return r
}
