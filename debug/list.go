package debug

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// pageLen is the number of queues on a page.
const pageLen = 50

// order is a way to sort the queues: the one with the most first, and by name where that is equal.
type order struct {
	name, title string
	compare     func(a, b *reading) int
}

// by returns the order by a number.
func by[N cmp.Ordered](name, title string, number func(*reading) N) order {
	return order{name, title, func(a, b *reading) int { return cmp.Compare(number(a), number(b)) }}
}

// orders has the default first.
var orders = []order{
	{"trouble", "most in trouble", func(a, b *reading) int {
		// Whatever takes longest, and in queues without times whatever is most.
		return cmp.Or(
			compareBools(a.err != "", b.err != ""),
			cmp.Compare(max(a.stats.LongestRunning, a.stats.OldestQueued), max(b.stats.LongestRunning, b.stats.OldestQueued)),
			cmp.Compare(sum(a.pools).Failing, sum(b.pools).Failing),
			cmp.Compare(a.stats.Queued, b.stats.Queued),
			cmp.Compare(a.stats.Processing, b.stats.Processing),
			cmp.Compare(a.stats.Waiting, b.stats.Waiting),
		)
	}},
	by("queued", "most queued", func(r *reading) int { return r.stats.Queued }),
	by("processing", "most in work", func(r *reading) int { return r.stats.Processing }),
	by("waiting", "most waiting", func(r *reading) int { return r.stats.Waiting }),
	by("oldest", "oldest queued", func(r *reading) time.Duration { return r.stats.OldestQueued }),
	by("longest", "longest in work", func(r *reading) time.Duration { return r.stats.LongestRunning }),
	by("unfinished", "most unfinished work", func(r *reading) time.Duration { return r.stats.UnfinishedWork }),
	by("failing", "most failing keys", func(r *reading) int { return sum(r.pools).Failing }),
	by("given_up", "most keys given up", func(r *reading) uint64 { return sum(r.pools).Dropped }),
	by("errors", "most errors per second", func(r *reading) float64 { return r.minute.Errors }),
	by("adds", "most adds", func(r *reading) uint64 { return r.stats.Adds }),
	by("retries", "most retries", func(r *reading) uint64 { return r.stats.Retries }),
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
	now := h.clock.Now()
	r := &listReport{
		Time:        now.UTC(),
		Search:      newLabel(query.Get("search"), maxName).Text,
		Sort:        by.name,
		SampleEvery: seconds(h.every),
	}
	all := h.readAll()
	r.Registered = len(all)
	wanted := strings.ToLower(r.Search)
	all = slices.DeleteFunc(all, func(q *reading) bool { return !strings.Contains(strings.ToLower(q.entry.name), wanted) })
	r.Matching = len(all)
	tick := h.ticks()
	for _, q := range all {
		r.Queued += q.stats.Queued
		r.Processing += q.stats.Processing
		r.Waiting += q.stats.Waiting
		pools := sum(q.pools)
		r.Failing += pools.Failing
		r.GivenUp += pools.Dropped
		if by.name == "errors" {
			q.minute = q.entry.history.rates(tick, q.measure(), h.every)
		}
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
		r.Queues[i] = h.newQueueReport(q)
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
	e, pools := h.find(query.Get("queue"))
	if e == nil {
		return nil
	}
	limit, err := strconv.Atoi(query.Get("keys"))
	if err != nil {
		limit = someKeys
	}
	limit = min(max(limit, 1), maxKeys)
	now := h.clock.Now()
	reading := &reading{entry: e, at: now}
	reading.stats, reading.err = e.read()
	keys, snapshots, failure := e.keys(pools, limit)
	reading.err = cmp.Or(reading.err, failure)
	reading.pools = poolStats(snapshots)
	r := &detailReport{
		Time:        now.UTC(),
		SampleEvery: seconds(h.every),
		Queue:       h.newQueueReport(reading),
		Latency:     newTimesReport(reading.stats.Latency),
		Work:        newTimesReport(reading.stats.WorkDuration),
		keyLists:    newKeyLists(keys, snapshots, limit),
		limit:       limit,
		actions:     h.actionsOf(e),
	}
	r.History = newHistoryReport(r.Queue.timeline.points)
	if r.Queue.Timed {
		latency, work, covers := e.history.recent(reading.measure())
		r.Recent = &recentReport{seconds(covers), newTimesReport(latency), newTimesReport(work)}
	}
	if text := query.Get("key"); text != "" {
		r.Found, failure = h.search(e, pools, text, now)
		r.Queue.Error = cmp.Or(r.Queue.Error, failure)
	}
	r.finish(r.Time)
	return r
}
