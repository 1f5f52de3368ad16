package debug

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keyedqueue/workqueue/worker"
)

// pageLen is the number of queues on a page.
const pageLen = 50

// listReport is what the list page shows.
type listReport struct {
	Time       time.Time `json:"time"`
	Registered int       `json:"registered"`
	Matching   int       `json:"matching"`
	Queued     int       `json:"queued"`
	Processing int       `json:"processing"`
	Held       int       `json:"held,omitempty"`
	Waiting    int       `json:"waiting"`
	Failing    int       `json:"failing"`
	GivenUp    int       `json:"given_up"`
	// Oldest is the oldest change of all these queues that no call has answered, or nil.
	Oldest *unansweredReport `json:"oldest_unanswered,omitempty"`
	// PausedGroups counts the groups of all queues that are paused.
	PausedGroups int           `json:"paused_groups,omitempty"`
	Search       string        `json:"search"`
	Sort         string        `json:"sort"`
	Page         int           `json:"page"`
	Pages        int           `json:"pages"`
	SampleEvery  seconds       `json:"sample_seconds"`
	Queues       []queueReport `json:"queues"`
}

// InWork is how many keys workers have, without those on hold.
func (r *listReport) InWork() int { return max(0, r.Processing-r.Held) }

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
			cmp.Compare(a.workers.Failing, b.workers.Failing),
			cmp.Compare(a.stats.Queued, b.stats.Queued),
			cmp.Compare(a.stats.Processing, b.stats.Processing),
			cmp.Compare(a.stats.Waiting, b.stats.Waiting),
		)
	}},
	by("queued", "most queued", func(r *reading) int { return r.stats.Queued }),
	by("processing", "most in work", (*reading).inWork),
	by("waiting", "most waiting", func(r *reading) int { return r.stats.Waiting }),
	by("oldest", "oldest queued", func(r *reading) time.Duration { return r.stats.OldestQueued }),
	by("longest", "longest in work", func(r *reading) time.Duration { return r.stats.LongestRunning }),
	by("unfinished", "most unfinished work", func(r *reading) time.Duration { return r.stats.UnfinishedWork }),
	by("unanswered", "oldest unanswered", func(r *reading) time.Duration { return r.workers.OldestUnanswered }),
	by("failing", "most failing keys", func(r *reading) int { return r.workers.Failing }),
	by("given_up", "most keys given up", (*reading).givenUp),
	by("errors", "most errors per second", func(r *reading) float64 { return r.minute.Errors }),
	by("adds", "most adds", func(r *reading) uint64 { return r.stats.Adds }),
	by("retries", "most delayed adds", func(r *reading) uint64 { return r.stats.Retries }),
	{"name", "name", func(a, b *reading) int { return 0 }},
}

// longest is for how long a worker has had a key, or a key has been in the line. The line of a queue that is paused, or that
// nobody works, does not count: its age is what somebody wanted.
func (r *reading) longest() time.Duration {
	if r.stats.Paused || r.isUnworked() {
		return r.stats.LongestRunning
	}
	return max(r.stats.LongestRunning, r.stats.OldestQueued)
}

// trouble is 3 for a queue that does not answer, and 2 or 1 if something of it is red or amber.
func (r *reading) trouble() int {
	level := level(seconds(r.longest()))
	switch {
	case r.late || r.err != nil || r.missing == errOutage:
		return 3
	case level == "bad" || r.workers.Stuck > 0 || r.givenUp() > 0:
		return 2
	case level == "warn" || r.workers.Failing > 0 || r.workers.Looping > 0 || len(r.pausedGroups) > 0:
		return 1
	}
	return 0
}

// list reads all queues, and reports those of the page that query asks for.
func (h *Handler) list(ctx context.Context, query url.Values) *listReport {
	sorted := slices.IndexFunc(orders, func(o order) bool { return o.Name == query.Get("sort") })
	by := orders[max(0, sorted)]
	now := h.clock.Now()
	r := &listReport{
		Time:        now.UTC(),
		Search:      cut(query.Get("search"), maxName),
		Sort:        by.Name,
		SampleEvery: seconds(h.every),
	}
	all := h.readAll(ctx)
	r.Registered = len(all)
	wanted := strings.ToLower(r.Search)
	all = slices.DeleteFunc(all, func(q *reading) bool { return !strings.Contains(strings.ToLower(q.entry.name), wanted) })
	r.Matching = len(all)
	seen := make(map[*worker.Inspector]bool) // Queues with one name have the same pools.
	for _, q := range all {
		if u := q.oldest(); u != nil && (r.Oldest == nil || u.Age > r.Oldest.Age) {
			r.Oldest = u
		}
		r.Queued += q.stats.Queued
		r.Processing += q.stats.Processing
		r.Held += q.stats.Held
		r.Waiting += q.stats.Waiting
		r.PausedGroups += len(q.pausedGroups)
		for _, p := range q.pools {
			if !seen[p.pool] {
				seen[p.pool] = true
				r.Failing += p.stats.Failing
				if q.stats.Shared == nil {
					r.GivenUp += p.stats.GivenUpKeys
				}
			}
		}
		if q.stats.Shared != nil {
			r.GivenUp += q.givenUp()
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
	r.Queues = mapped(all, func(q *reading) queueReport { return h.newQueueReport(q, now) })
	return r
}

// queueName is a queue on a page that has none of its numbers.
type queueName struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// queueReport is what is shown of each queue.
type queueReport struct {
	queueName
	Queued         int          `json:"queued"`
	Blocked        int          `json:"blocked"`
	Paused         bool         `json:"paused"`
	PausedFor      *seconds     `json:"paused_for_seconds,omitempty"`
	PausedGroups   int          `json:"paused_groups,omitempty"`
	Processing     int          `json:"processing"`
	Held           int          `json:"held,omitempty"`
	Waiting        int          `json:"waiting"`
	Adds           uint64       `json:"adds"`
	Retries        uint64       `json:"retries"`
	Dropped        uint64       `json:"dropped"`
	UnmatchedDones uint64       `json:"unmatched_dones"`
	ShuttingDown   bool         `json:"shutting_down"`
	Timed          bool         `json:"timed"`
	OldestQueued   seconds      `json:"oldest_queued_seconds"`
	LongestRunning seconds      `json:"longest_running_seconds"`
	UnfinishedWork seconds      `json:"unfinished_work_seconds"`
	Minute         rates        `json:"last_minute"`
	Depth          []float64    `json:"depth"`
	Pools          []poolReport `json:"pools"`
	// Oldest is the oldest change that no call has answered, or nil.
	Oldest *unansweredReport `json:"oldest_unanswered,omitempty"`
	Error  string            `json:"error,omitempty"`
	// Outage reports that the queue does not reach its server.
	Outage bool `json:"outage,omitempty"`
	// Unanswered is how old the numbers are, if the queue does not answer.
	Unanswered *seconds `json:"unanswered_seconds,omitempty"`

	// Workers is the sum of the pools. GivenUp counts the given-up keys: the pools', or of a shared queue those of all processes.
	Workers *worker.Stats `json:"-"`
	GivenUp int           `json:"-"`
	// HasQueue reports that more is known than pools, Late that the queue does not answer, and Missing that its keys are not
	// known, or not all.
	HasQueue bool `json:"-"`
	Late     bool `json:"-"`
	// InWork is Processing without Held. Unworked: see reading.isUnworked.
	InWork   int  `json:"-"`
	Unworked bool `json:"unworked,omitempty"`
	Missing  bool `json:"-"`
	timeline timeline
}

// unansweredReport is the oldest change of a queue that no call has answered: a key was added, and no call has succeeded since.
type unansweredReport struct {
	Queue queueName `json:"queue"`
	Age   seconds   `json:"age_seconds"`
	// Key is nil if it is not known.
	Key *string `json:"key,omitempty"`
	// OnHold reports that the key is on hold: that it has no answer is meant so.
	OnHold bool `json:"on_hold,omitempty"`
	raw    any
}

// oldest returns the oldest change that no call has answered, or nil.
func (r *reading) oldest() *unansweredReport {
	age := r.workers.OldestUnanswered
	if age == 0 {
		return nil
	}
	u := &unansweredReport{Queue: queueName{r.entry.id, r.entry.name}, Age: seconds(age), OnHold: r.unansweredOnHold}
	if k := r.unanswered; k != nil {
		text := cut(keyText(k.Key), maxKey)
		u.Key, u.raw = &text, k.Key
	}
	return u
}

// Href is the address of the key's page or, if it is not known, of the queue's.
func (u *unansweredReport) Href() string {
	if u.Key == nil {
		return href("queue", u.Queue.ID)
	}
	return href("queue", u.Queue.ID, "key", *u.Key, "id", keyID(u.raw))
}

// poolReport is what is shown of a pool of workers: its Stats, and a summary of how long its handler takes.
type poolReport struct {
	worker.Stats
	Handler *timesReport `json:"handler"`
}

func newPoolReport(p poolReading) poolReport {
	s := p.stats
	s.Name, s.Queue = short(s.Name, maxName), short(s.Queue, maxName)
	return poolReport{s, newTimesReport(s.Durations)}
}

func (h *Handler) newQueueReport(r *reading, now time.Time) queueReport {
	s := r.stats
	q := queueReport{
		queueName: queueName{r.entry.id, r.entry.name}, HasQueue: r.entry.hasQueue(), Late: r.late, Missing: r.missing != nil, Outage: r.missing == errOutage,
		Queued: s.Queued, Blocked: s.Blocked, Paused: s.Paused, PausedFor: between(now, s.PausedUntil), PausedGroups: len(r.pausedGroups),
		Processing: s.Processing, Held: s.Held, InWork: r.inWork(), Waiting: s.Waiting, Unworked: r.isUnworked(), Adds: s.Adds, Retries: s.Retries, Dropped: s.Dropped, UnmatchedDones: s.UnmatchedDones,
		ShuttingDown: s.ShuttingDown, Timed: s.Latency != nil, OldestQueued: seconds(s.OldestQueued),
		LongestRunning: seconds(s.LongestRunning), UnfinishedWork: seconds(s.UnfinishedWork),
		Minute: r.minute, Pools: mapped(r.pools, newPoolReport), Workers: r.workers, GivenUp: r.givenUp(), Oldest: r.oldest(),
		timeline: r.entry.history.timeline(r.measure(), h.every),
	}
	q.Depth = mapped(q.timeline.points, queued.of)
	if err := cmp.Or(r.err, r.missing); err != nil {
		q.Error = err.Error()
	}
	if r.late {
		q.Error = "The queue does not answer, and never has."
		if !r.at.IsZero() {
			age := seconds(now.Sub(r.at))
			q.Unanswered = &age
			q.Error = fmt.Sprintf("The queue does not answer. These are its numbers of %s ago.", human(time.Duration(age)))
		}
	}
	return q
}
