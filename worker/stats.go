package worker

import (
	"cmp"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/observe"
)

// Stats are a pool's numbers at one moment. Of the calls that have ended, Handled - Failed - Requeued -
// Interrupted have succeeded.
type Stats struct {
	// Name and Queue are the names of the pool and of its queue.
	Name  string `json:"name"`
	Queue string `json:"queue"`

	// Wanted is how many workers SetWorkers or Options ask for, and 0 once Run has returned. Living is how many
	// exist, after Run those that were left behind. Once the queue is shut down and empty, idle workers leave.
	Wanted int `json:"wanted"`
	Living int `json:"living"`
	// Paused reports a pause, see [Pool.Pause]. PausedUntil is zero if it lasts until Resume.
	Paused      bool      `json:"paused,omitempty"`
	PausedUntil time.Time `json:"paused_until,omitzero"`
	// Busy is the number of running calls.
	Busy int `json:"busy"`
	// StartLimited reports that Options.StartLimit keeps queued keys from being handled.
	StartLimited bool `json:"start_limited"`
	// Stuck is the number of running calls that were reported as stuck.
	Stuck int `json:"stuck"`
	// LongestRunning is how long the oldest running call has taken, and UnfinishedWork the sum of all.
	LongestRunning time.Duration `json:"longest_running_ns"`
	UnfinishedWork time.Duration `json:"unfinished_work_ns"`

	// Handled counts all calls of the handler that have ended.
	Handled uint64 `json:"handled"`
	// Failed counts the calls that have failed. Panicked and GivenUp count some of them.
	Failed   uint64 `json:"failed"`
	Panicked uint64 `json:"panicked"`
	GivenUp  uint64 `json:"given_up"`
	// TimedOut counts the calls that took HandlerTimeout or longer, regardless of their answer.
	TimedOut uint64 `json:"timed_out"`
	// Requeued counts the calls that asked for their key again, and RequeuedAfter those with a delay.
	Requeued      uint64 `json:"requeued"`
	RequeuedAfter uint64 `json:"requeued_after"`
	// Interrupted counts the calls that ended with [NextInterrupted] or [NextLost].
	Interrupted uint64 `json:"interrupted"`
	// Looping is the number of keys that are slowed down, see [Call.AtOnce].
	Looping int `json:"looping"`
	// OnHold is the number of keys on hold, with those that are slowed down after interruptions. HoldsToLimit
	// counts the holds of [Call.Hold] that have come to their limit.
	OnHold       int    `json:"on_hold"`
	HoldsToLimit uint64 `json:"holds_to_limit"`

	// Failing is the number of failing keys of the queue.
	Failing int `json:"failing"`
	// GivenUpKeys is the number of keys in the list GivenUp of [Snapshot].
	GivenUpKeys int `json:"given_up_keys"`

	// Durations has the times that the handler took, RetryDelays the delays that failures got, and
	// HoldDurations the times for which keys were on hold. The last two are nil while they are empty.
	Durations     *workqueue.Histogram `json:"durations"`
	RetryDelays   *workqueue.Histogram `json:"retry_delays,omitempty"`
	HoldDurations *workqueue.Histogram `json:"hold_durations,omitempty"`

	// BusiestShare is the busiest key's part of the calls of the last ten minutes, or zero below 100 calls.
	BusiestShare float64 `json:"busiest_share,omitempty"`

	// Changes has the times from the first add of a key, or when it came due, until a call succeeded or asked
	// for the key again. Keys that are given up, forgotten or removed are not in it. It is nil if the queue has
	// no metrics.
	Changes *workqueue.Histogram `json:"changes"`
	// OldestUnanswered is the age of the oldest change without such a call. Keys on hold do not count. A key
	// that others have handled or removed may count for ten minutes after it was due.
	OldestUnanswered time.Duration `json:"oldest_unanswered_ns"`

	// ListedAt is when the last successful call of Options.List ended. ListsFailed counts the failed ones.
	ListedAt    time.Time `json:"listed_at,omitzero"`
	ListsFailed uint64    `json:"lists_failed,omitempty"`

	// Ended reports that Run has returned, and no handler is running: nothing changes any more.
	Ended bool `json:"ended"`
}

// Plus returns the numbers of two pools together: sums of counts, the larger times, shares and Failing (which
// pools of one queue share), the older ListedAt, the first name and pause, and Ended if both have.
func (s Stats) Plus(t Stats) Stats {
	s.Name, s.Queue = cmp.Or(s.Name, t.Name), cmp.Or(s.Queue, t.Queue)
	s.Wanted += t.Wanted
	s.Living += t.Living
	s.Busy += t.Busy
	s.Stuck += t.Stuck
	if !s.Paused {
		s.Paused, s.PausedUntil = t.Paused, t.PausedUntil
	}
	s.StartLimited = s.StartLimited || t.StartLimited
	s.LongestRunning = max(s.LongestRunning, t.LongestRunning)
	s.UnfinishedWork += t.UnfinishedWork
	s.Handled += t.Handled
	s.Failed += t.Failed
	s.Panicked += t.Panicked
	s.TimedOut += t.TimedOut
	s.Requeued += t.Requeued
	s.RequeuedAfter += t.RequeuedAfter
	s.Interrupted += t.Interrupted
	s.Looping += t.Looping
	s.OnHold += t.OnHold
	s.HoldsToLimit += t.HoldsToLimit
	s.GivenUp += t.GivenUp
	s.Failing = max(s.Failing, t.Failing)
	s.GivenUpKeys += t.GivenUpKeys
	s.Durations = s.Durations.Plus(t.Durations)
	s.Changes = s.Changes.Plus(t.Changes)
	s.RetryDelays = s.RetryDelays.Plus(t.RetryDelays)
	s.HoldDurations = s.HoldDurations.Plus(t.HoldDurations)
	s.BusiestShare = max(s.BusiestShare, t.BusiestShare)
	s.OldestUnanswered = max(s.OldestUnanswered, t.OldestUnanswered)
	if s.ListedAt.IsZero() || !t.ListedAt.IsZero() && t.ListedAt.Before(s.ListedAt) {
		s.ListedAt = t.ListedAt
	}
	s.ListsFailed += t.ListsFailed
	s.Ended = s.Ended && t.Ended
	return s
}

// Stats returns the numbers of the calls. A tracker does not know the workers: Wanted and Living are the
// running calls. Ended reports that the queue is shut down, and no key is left in it or on hold.
func (t *Tracker[T]) Stats() Stats {
	t.dropExpiredRecords()
	// The queue is asked first: once no key is left there, a tracker's numbers change no more.
	isShutDown := t.queue.ShuttingDown()
	q := t.queue.Stats()
	now := t.options.Clock.Now() // Not under mu: foreign code.
	s := t.statsOfMoment(now, isShutDown && q.Queued+q.Processing == 0)
	s.StartLimited = s.StartLimited && q.Queued > 0
	s.Failing = q.Failing
	looping, oldest := t.readRecords(now)
	s.Looping = looping
	if t.knowsAddTimes {
		s.OldestUnanswered = max(oldest, q.OldestQueued)
	}
	return s
}

// statsOfMoment returns what is guarded by mu, all of one moment: with Ended the numbers are the last ones.
func (t *Tracker[T]) statsOfMoment(now time.Time, isQueueEnded bool) Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.callStatsLocked(now)
	if t.pool != nil {
		t.pool.addStatsLocked(&s)
	} else {
		s.Wanted, s.Living, s.Ended = s.Busy, s.Busy, s.Ended && isQueueEnded
	}
	return s
}

// callStatsLocked returns what a tracker knows. Ended reports that no call and no hold is left.
func (t *Tracker[T]) callStatsLocked(now time.Time) Stats {
	s := t.mu.counted
	s.Durations = (*workqueue.Histogram)(t.mu.durations.Read())
	if t.knowsAddTimes {
		s.Changes = (*workqueue.Histogram)(t.mu.changeTimes.Read())
	}
	s.RetryDelays, s.HoldDurations = nonEmpty(&t.mu.retryDelays), nonEmpty(&t.mu.holdTimes)
	s.BusiestShare = t.busiestShareLocked(now)
	s.Name, s.Queue = t.options.Name, t.queueName
	s.OnHold = t.mu.holds.table.Len()
	s.GivenUpKeys = len(t.mu.givenUp.keys)
	s.Busy = len(t.mu.running)
	s.Ended = s.Busy+s.OnHold == 0
	for _, c := range t.mu.running {
		taken := max(0, now.Sub(c.result.Started))
		s.LongestRunning, s.UnfinishedWork = max(s.LongestRunning, taken), s.UnfinishedWork+taken
		if c.stuck {
			s.Stuck++
		}
	}
	return s
}

// countLocked counts a call that has ended, and returns how many there were for its key in this minute.
func (t *Tracker[T]) countLocked(c *Tracked[T]) int {
	n, r := &t.mu.counted, &c.result
	n.Handled++
	if _, panicked := r.Err.(*PanicError); panicked {
		n.Panicked++
	}
	if t.options.HandlerTimeout > 0 && r.Duration >= t.options.HandlerTimeout {
		n.TimedOut++
	}
	t.mu.durations.Observe(r.Duration)
	if r.Next.endsChange() && !c.changeSince.IsZero() {
		t.mu.changeTimes.Observe(max(0, r.Started.Add(r.Duration).Sub(c.changeSince)))
	}
	switch r.Next {
	case NextRequeue:
		n.Requeued++
		if c.result.After > 0 {
			n.RequeuedAfter++
		}
	case NextInterrupted, NextLost:
		n.Interrupted++
	case NextRetry:
		n.Failed++
	case NextGiveUp:
		n.Failed++
		n.GivenUp++
	}
	return int(t.mu.busiest.Add(r.Key, r.Started.Add(r.Duration)))
}

// nonEmpty returns what h has counted, or nil if that is nothing.
func nonEmpty(h *observe.Histogram) *workqueue.Histogram {
	if read := (*workqueue.Histogram)(h.Read()); read.Count() > 0 {
		return read
	}
	return nil
}

// addStatsLocked adds to s, which has the calls, what only the pool knows.
func (p *Pool[T]) addStatsLocked(s *Stats) {
	s.Living = len(p.mu.workers)
	s.StartLimited = p.waitsForToken.Load()
	s.Paused, s.PausedUntil = p.mu.pause.on, p.mu.pause.until
	s.Ended = s.Ended && p.mu.phase == phaseReturned && s.Living == 0
	if p.mu.phase < phaseReturned {
		s.Wanted = p.mu.wanted
	}
}
