package debug

import (
	"time"

	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/worker"
)

// queueName is a queue on a page that has none of its numbers.
type queueName struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// named returns how other pages name the queue.
func (e *entry) named() queueName { return queueName{e.id, e.name} }

// queueReport is what is shown of each queue.
type queueReport struct {
	queueName
	Queued         int          `json:"queued"`
	Blocked        int          `json:"blocked"`
	Paused         bool         `json:"paused"`
	PausedFor      *seconds     `json:"paused_for_seconds,omitempty"`
	PausedAge      *seconds     `json:"paused_age_seconds,omitempty"`
	PausedBy       string       `json:"paused_by,omitempty"`
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

	// Wedged is why a restart of the program would help.
	Wedged string `json:"wedged,omitempty"`
	// StartLimited reports that the start limit of a pool keeps queued keys back.
	StartLimited bool `json:"start_limited,omitempty"`

	// Workers is the sum of the pools. GivenUp counts the given-up keys: the pools', or of a shared queue those
	// of all processes.
	Workers worker.Stats `json:"-"`
	GivenUp int          `json:"-"`
	Failing int          `json:"failing"`
	// HasQueue reports that more is known than pools, and Missing that its keys are not known, or not all.
	HasQueue bool `json:"-"`
	// InWork is Processing without Held. Unworked: see reading.isUnworked.
	InWork   int  `json:"-"`
	Unworked bool `json:"unworked,omitempty"`
	Missing  bool `json:"-"`
	// points are its history since from.
	points []point
	from   time.Time
}

// IsTimeless reports that the queue reads no clock.
func (q queueReport) IsTimeless() bool { return q.HasQueue && !q.Timed }

// unansweredReport is the oldest change of a queue that no call has answered: a key was added, and no call
// has succeeded since.
type unansweredReport struct {
	Queue queueName `json:"queue"`
	Age   seconds   `json:"age_seconds"`
	// Key is nil if it is not known.
	Key *string `json:"key,omitempty"`
	raw any
}

// oldest returns the oldest change that no call has answered, or nil.
func (r *reading) oldest() *unansweredReport {
	age := r.workers.OldestUnanswered
	if age == 0 {
		return nil
	}
	u := &unansweredReport{Queue: r.entry.named(), Age: seconds(age)}
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

// poolReport is what is shown of a pool of workers.
type poolReport struct{ worker.Stats }

func newPoolReport(p poolReading) poolReport {
	s := p.stats
	s.Name, s.Queue = short(s.Name, maxName), short(s.Queue, maxName)
	return poolReport{s}
}

// newQueueReport returns what the list and the pages of a queue show of r.
func (h *Handler) newQueueReport(r *reading) queueReport {
	s, now := r.stats, r.at
	q := queueReport{
		queueName: r.entry.named(), HasQueue: r.entry.hasQueue(),
		Missing: r.missing != nil, Outage: r.hasOutage(), Failing: r.failing(),
		Queued: s.Queued, Blocked: s.Blocked, Processing: s.Processing, Held: s.Held, Waiting: s.Waiting,
		Paused: s.Paused, PausedFor: between(now, s.PausedUntil), PausedGroups: len(r.pausedGroups),
		InWork: r.inWork(), Unworked: r.isUnworked(), ShuttingDown: s.ShuttingDown,
		Adds: s.Adds, Retries: s.Retries, Dropped: s.Dropped, UnmatchedDones: s.UnmatchedDones,
		Timed: s.Latency != nil, OldestQueued: seconds(s.OldestQueued),
		LongestRunning: seconds(s.LongestRunning), UnfinishedWork: seconds(s.UnfinishedWork),
		Minute: r.minute, Oldest: r.oldest(), GivenUp: r.givenUp(),
		StartLimited: r.workers.StartLimited, Pools: mapped(r.pools, newPoolReport), Workers: r.workers,
	}
	q.points, q.from = r.entry.history.timeline(r.measure(), h.every)
	if shared := leasing.StatsOf(s); shared != nil {
		q.PausedBy, q.PausedAge = short(shared.PausedBy, maxName), between(shared.PausedSince, now)
	}
	if r.wedged != nil {
		q.Wedged = short(r.wedged.Error(), maxError)
	}
	q.Depth = mapped(q.points, queued.of)
	if err := r.missing; err != nil {
		q.Error = err.Error()
	}
	return q
}
