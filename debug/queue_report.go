package debug

import (
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
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
	ID   string `json:"id"`
	Name string `json:"name"`
	// HasQueue reports that more is known than pools, and Timed that the queue reads the clock.
	HasQueue, Timed bool
	// Stats are the queue's, and Workers the sum of its pools.
	workqueue.Stats
	Workers worker.Stats
	Pools   []worker.Stats
	// InWork is Processing without keys on hold. GivenUp counts the given-up keys: the pools', or of a shared
	// queue those of all processes.
	InWork, GivenUp int
	Minute          rates `json:"last_minute"`
	// PausedFor is how long a pause still lasts, PausedAge how long it has, and PausedBy who asked for it.
	PausedFor    *seconds `json:"paused_for_seconds,omitempty"`
	PausedAge    *seconds `json:"paused_age_seconds,omitempty"`
	PausedBy     string   `json:",omitempty"`
	PausedGroups int      `json:"paused_groups,omitempty"`
	// Oldest is the oldest change that no call has answered, or nil.
	Oldest *unansweredReport `json:"oldest_unanswered,omitempty"`
	// Outage reports that the queue does not reach its server, Missing that not all of its keys are known, and
	// Error says why.
	Outage, Missing bool
	Error           string `json:",omitempty"`
	// Wedged is why a restart of the program would help. Unworked: see reading.isUnworked.
	Wedged   string `json:",omitempty"`
	Unworked bool
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
	// Href is the address of the key's page or, if it is not known, of the queue's.
	Href string `json:"-"`
}

// oldest returns the oldest change that no call has answered, or nil.
func (r *reading) oldest() *unansweredReport {
	age := r.workers.OldestUnanswered
	if age == 0 {
		return nil
	}
	u := &unansweredReport{Queue: r.entry.named(), Age: seconds(age), Href: href("queue", r.entry.id)}
	if k := r.unanswered; k != nil {
		text := cut(keyText(k.Key), maxKey)
		u.Key, u.Href = &text, href("queue", r.entry.id, "key", text, "id", keyID(k.Key))
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

// charts returns what is drawn on the queue's page, from all samples up to now.
func (r *reading) charts(t timeline) []chart {
	if !r.entry.hasQueue() {
		return []chart{t.chart("Errors per second", 0, perSecondText, failed).withRates(r.minute.Errors)}
	}
	third, rate := delayed, r.minute.Retries // Only pools know errors.
	if len(r.pools) > 0 {
		third, rate = failed, r.minute.Errors
	}
	keys := []source{queued, inWork, waiting}
	if slices.ContainsFunc(t.points, func(p point) bool { return p.OnHold > 0 }) {
		keys = append(keys, onHold)
	}
	all := []chart{
		t.chart("Keys", 2, countText, keys...),
		t.chart("Per second", 0, perSecondText, adds, dones, third).withRates(r.minute.Adds, r.minute.Dones, rate),
	}
	if r.stats.Latency != nil {
		times := t.chart("Times", 0, timeText, latency, work)
		times.Note = "means"
		all = append(all, times)
	}
	return all
}

// sparks returns what is drawn in the queue's row of the list, each number on its own scale. What came and
// went between two samples is in no depth, but in the adds.
func (r *reading) sparks(t timeline) []chart {
	added := adds
	added.class = "c"
	return []chart{t.chart("Queued", 2, countText, queued), t.chart("Adds per second", 0, perSecondText, added)}
}

// timeline returns the queue's history up to now.
func (r *reading) timeline(every time.Duration) timeline {
	return r.entry.history.timeline(r.measure(), every)
}
