package debug

import (
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// keyReport is what pages show of a key. Texts are cut and printable.
type keyReport struct {
	// Key is its text, and Bytes how long that was before it was Cut. ID distinguishes keys with the same text.
	Key   string `json:"key"`
	ID    string `json:"id,omitempty"`
	Bytes int    `json:"bytes"`
	Cut   bool   `json:"-"`

	State    string    `json:"state,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	For      *seconds  `json:"for_seconds,omitempty"`
	Due      time.Time `json:"due,omitzero"`
	DueIn    *seconds  `json:"due_in_seconds,omitempty"`
	Again    bool      `json:"again"`
	Requeues int       `json:"requeues"`
	Priority int       `json:"priority"`
	Group    string    `json:"group,omitempty"`
	Blocked  bool      `json:"blocked,omitempty"`
	// GroupToPause is the whole name of the group, which an action needs, unless it is too long for a button.
	GroupToPause string            `json:"-"`
	Causes       *workqueue.Causes `json:"causes,omitempty"`

	// What follows is known of keys that a pool handles. AtOnce is how many calls in a row wanted the key at
	// once: see AtOnce of worker.Call.
	Attempt     int         `json:"attempt,omitempty"`
	MaxAttempts int         `json:"max_attempts,omitempty"`
	AtOnce      int         `json:"at_once,omitempty"`
	OnHold      *holdReport `json:"hold,omitempty"`
	Stuck       bool        `json:"stuck,omitempty"`
	Canceled    bool        `json:"canceled,omitempty"`
	Stack       string      `json:"stack,omitempty"`

	// What follows is known of keys that fail or were given up. PanicStack is that of the last failed call that
	// panicked.
	Error      string    `json:"error,omitempty"`
	FailsSince time.Time `json:"fails_since,omitzero"`
	FailsFor   *seconds  `json:"fails_for_seconds,omitempty"`
	FailedAt   time.Time `json:"failed_at,omitzero"`
	Ago        *seconds  `json:"failed_ago_seconds,omitempty"`
	PanicStack string    `json:"panic_stack,omitempty"`
	// IsGivenUp reports that the record of its failures is all that is left of the key.
	IsGivenUp bool `json:"-"`

	// QueueID is the id of its queue, and Queue is set in a list of keys of several queues.
	QueueID string     `json:"-"`
	Queue   *queueName `json:"queue,omitempty"`
	// Actions are what can be done with it. Linked reports that the page is not the key's own.
	Actions actionSet `json:"-"`
	Linked  bool      `json:"-"`
}

// holdReport says what a key on hold waits for, since when, and until when at the latest.
type holdReport struct {
	Reason  string    `json:"reason"`
	Since   time.Time `json:"since"`
	For     *seconds  `json:"for_seconds"`
	Until   time.Time `json:"until"`
	UntilIn *seconds  `json:"until_in_seconds"`
}

// report returns what pages show of k, as it was when r was read. It calls the key's own methods.
func (r *reading) report(k knownKey) keyReport {
	q, p, now := k.inQueue, k.inPools, r.at
	text := keyText(k.key())
	report := keyReport{
		Key: cut(text, maxKey), ID: keyID(k.key()), Bytes: len(text), Cut: len(text) > maxKey,
		State: k.state(), Since: q.Since.UTC(), Due: q.Due.UTC(), Again: q.Again, Requeues: q.Requeues,
		Priority: q.Priority, Group: short(q.Group, maxName), Blocked: q.Blocked,
		MaxAttempts: p.MaxAttempts, AtOnce: p.AtOnce, PanicStack: stackText(p.PanicStack),
		Causes: newCauses(q.Causes), QueueID: r.entry.id, IsGivenUp: k.isGivenUp(),
	}
	if len(q.Group) <= maxGroup {
		report.GroupToPause = q.Group
	}
	if report.State == stateAbsent && r.missing != nil {
		report.State = stateUnknown
	}
	if report.Causes == nil {
		report.Causes = newCauses(&p.Causes)
	}
	if f := k.failure(); f != nil {
		report.Attempt, report.Error = f.Attempt, short(f.Err, maxError)
		report.FailsSince, report.FailsFor = f.Since.UTC(), between(f.Since, now)
	}
	if f := p.GivenUp; f != nil && p.Failing == nil {
		report.FailedAt, report.Ago = f.Time.UTC(), between(f.Time, now)
	}
	if f := p.Failing; f != nil && q.Due.IsZero() {
		report.Due = f.NextTry.UTC()
	}
	if c := p.Running; c != nil {
		report.Attempt, report.Stuck, report.Canceled = c.Attempt, c.Stuck, c.Canceled
		report.Stack = stackText(c.Stack)
		if report.Since.IsZero() {
			report.Since = c.Started.UTC()
		}
	}
	if h := p.OnHold; h != nil {
		report.OnHold = &holdReport{Reason: short(h.Reason, maxKey), Since: h.Since.UTC(), Until: h.Until.UTC(),
			For: between(h.Since, now), UntilIn: between(now, h.Until)}
	}
	report.For, report.DueIn = between(report.Since, now), between(now, report.Due)
	return report
}

// newCauses returns a printable copy of c, or nil if there are none.
func newCauses(c *workqueue.Causes) *workqueue.Causes {
	if c == nil || c.IsZero() {
		return nil
	}
	printable := workqueue.Causes{Last: slices.Clone(c.Last), Others: c.Others, First: c.First.UTC()}
	for i := range printable.Last {
		l := &printable.Last[i]
		l.Reason, l.TraceParent, l.Time = short(l.Reason, maxKey), short(l.TraceParent, maxName), l.Time.UTC()
	}
	return &printable
}

// LongError returns the beginning of an error that would fill many lines of a list, and otherwise "".
func (k keyReport) LongError() string {
	if len(k.Error) <= longError {
		return ""
	}
	return short(k.Error, longError)
}

// IsInQueue reports whether the queue has the key.
func (k keyReport) IsInQueue() bool {
	return k.State == stateQueued || k.State == stateWaiting || k.State == stateProcessing
}

// busyReport is one of the keys that are called most.
type busyReport struct {
	keyReport
	Calls uint64
	Share int // in percent
}

// busiestReport returns the keys that were called most in the last ten minutes, if one of them takes a
// noticeable part of all calls.
func (r *reading) busiestReport() (all []busyReport) {
	if r.workers.BusiestShare < leastShare {
		return nil
	}
	slices.SortStableFunc(r.busiest, func(a, b worker.BusyKey[any]) int { return int(b.Calls) - int(a.Calls) })
	for _, k := range r.busiest[:min(len(r.busiest), busiestKeys)] {
		known := fromPool(worker.KeySnapshot[any]{Key: k.Key, Causes: k.Causes})
		all = append(all, busyReport{r.report(known), k.Calls, int(100*k.Share + 0.5)})
	}
	return all
}

// leastShare is which part of all calls the busiest key must have to be shown.
const leastShare = 0.05
