package debug

import (
	"slices"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// row returns a key with what of can can be done with it.
func (r *reading) row(k knownKey, can actionSet) keyRow {
	row := keyRow{keyReport: r.report(k), QueueID: r.entry.id}
	if len(k.inQueue.Group) <= maxGroup {
		row.GroupToPause = k.inQueue.Group
	}
	row.Actions = can.forKey(row)
	return row
}

// reports returns what is known of keys in that state. It asks the queue about those of which it has said
// nothing, and leaves out given-up keys that fail again.
func (r *reading) reports(keys []knownKey, state string) []keyReport {
	for i := range keys {
		r.ask(&keys[i])
	}
	keys = slices.DeleteFunc(keys, func(k knownKey) bool { return state == stateGivenUp && k.set() != state })
	return mapped(keys, r.report)
}

// report returns what pages show of k, as it was when r was read. It calls the key's own methods.
func (r *reading) report(k knownKey) keyReport {
	q, p, now := k.inQueue, k.inPools, r.at
	text := keyText(k.key())
	report := keyReport{
		Key: cut(text, maxKey), ID: keyID(k.key()), Bytes: len(text),
		State: k.state(), Since: q.Since.UTC(), Due: q.Due.UTC(), Again: q.Again, Requeues: q.Requeues,
		Priority: q.Priority, Group: short(q.Group, maxName), Blocked: q.Blocked,
		MaxAttempts: p.MaxAttempts, AtOnce: p.AtOnce,
		Causes: newCauses(q.Causes),
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

const (
	// leastShare is which part of all calls the busiest key must have to be shown.
	leastShare = 0.05
	// busiestKeys is how many of the busiest keys a page shows.
	busiestKeys = 5
)

// busyRow is one of the keys that are called most.
type busyRow struct {
	keyRow
	Calls uint64
	Share int // in percent
}

// busiestRows returns the keys that were called most in the last ten minutes, if one of them takes a
// noticeable part of all calls.
func (r *reading) busiestRows() (all []busyRow) {
	if r.workers.BusiestShare < leastShare {
		return nil
	}
	slices.SortStableFunc(r.busiest, func(a, b worker.BusyKey[any]) int { return int(b.Calls) - int(a.Calls) })
	for _, k := range r.busiest[:min(len(r.busiest), busiestKeys)] {
		known := fromPool(worker.KeySnapshot[any]{Key: k.Key, Causes: k.Causes})
		all = append(all, busyRow{r.row(known, nil), k.Calls, int(100*k.Share + 0.5)})
	}
	return all
}
