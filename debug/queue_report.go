package debug

import (
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/worker"
)

// named returns how other pages name the queue.
func (e *entry) named() queueName { return queueName{e.id, e.name} }

// IsTimeless reports that the queue reads no clock.
func (q queueReport) IsTimeless() bool { return q.HasQueue && !q.Timed }

// Href returns the address of the key's page or, if it is not known, of the queue's.
func (u unansweredReport) Href() string {
	if u.Key == nil {
		return href("queue", u.Queue.ID)
	}
	return href("queue", u.Queue.ID, "key", *u.Key, "id", u.ID)
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
		u.Key, u.ID = &text, keyID(k.Key)
	}
	return u
}

// queueReport returns what the list and the pages of a queue show of it.
func (r *reading) queueReport() queueReport {
	q := queueReport{
		ID: r.entry.id, Name: r.entry.name, HasQueue: r.entry.hasQueue(), Timed: r.stats.Latency != nil,
		Stats: r.stats, Workers: r.workers, InWork: r.inWork(), GivenUp: r.givenUp(), Minute: r.minute,
		PausedFor: between(r.at, r.stats.PausedUntil), PausedGroups: len(r.pausedGroups), Oldest: r.oldest(),
		Outage: r.hasOutage(), Missing: r.missing != nil, Unworked: r.isUnworked(),
		Pools: mapped(r.pools, func(p poolReading) worker.Stats {
			s := p.stats
			s.Name, s.Queue = short(s.Name, maxName), short(s.Queue, maxName)
			return s
		}),
	}
	q.Stats.Name, q.Failing = q.Name, r.failing()
	if shared := leasing.StatsOf(r.stats); shared != nil {
		q.PausedBy, q.PausedAge = short(shared.PausedBy, maxName), between(shared.PausedSince, r.at)
	}
	if r.wedged != nil {
		q.Wedged = short(r.wedged.Error(), maxError)
	}
	if r.missing != nil {
		q.Error = r.missing.Error()
	}
	return q
}
