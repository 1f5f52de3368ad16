// Package observe measures a queue: since when each key has been queued or held by a worker, how long that
// took for keys that are done, and the metrics to which every change is pushed.
package observe

import (
	"iter"
	"math"
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
	"k8s.io/utils/clock"
)

// Observer has the times of one queue's keys, counts how long they were queued and held, each in a
// [Histogram], and pushes all this to the queue's [Push] metrics.
//
// Its methods are called under the queue's lock.
type Observer struct {
	clock clock.WithTicker
	// since is the clock's Since, or time.Since if it is the real one.
	since func(time.Time) time.Duration
	// epoch is when the queue was made. Times are kept as durations since then, a third of the size
	// of a time.Time. A reading by Since is also the cheaper one on the real clock.
	epoch time.Time

	push *Push // nil if there is nothing to push to
	// pushed reports whether the last pushed values of the metrics that depend on the time were not zero.
	pushed bool

	// Latency has the times from a key's add to its Get, WorkDuration those from Get to Done.
	Latency, WorkDuration Histogram

	// keys has the times of the queue's keys, by their slots there.
	keys keytable.Column[keyTimes]
	// queued has the keys for which Queued was called, and running those that workers hold, in that order.
	lists           keytable.Lists
	queued, running keytable.List
	// startedMicros is the sum of the startedAt of those that are running, each in whole microseconds. In
	// nanoseconds an int64 would overflow with 10,000 workers that are stuck for eleven days.
	startedMicros int64
}

// keyTimes are the times of a key, as readings of Observer.Now.
type keyTimes struct {
	addedAt   time.Duration // when it became dirty
	startedAt time.Duration // when a worker got it
	cameAt    time.Duration // addedAt before a worker got it
	in        listName
}

// listName says in which list a key is.
type listName uint8

const (
	inNone listName = iota
	inQueued
	inRunning
)

// New returns an Observer that reads c, counts into buckets and, unless push is nil, pushes to it.
func New(c clock.WithTicker, buckets *Buckets, push *Push) *Observer {
	since := c.Since
	if _, isReal := c.(clock.RealClock); isReal {
		since = time.Since
	}
	h := NewHistogram(buckets)
	return &Observer{clock: c, since: since, epoch: c.Now(), push: push, Latency: h, WorkDuration: h}
}

// Now returns the time since the observer was made.
func (o *Observer) Now() time.Duration { return o.since(o.epoch) }

// Added notes that the key at s has become dirty now.
func (o *Observer) Added(s keytable.Slot, now time.Duration) {
	o.keys.At(s).addedAt = now
	if o.push != nil {
		o.push.Adds.Inc()
		o.push.Depth.Inc()
	}
}

// Queued notes that the key at s waits for a worker. It is for queues that do not know which of their keys
// has waited longest. It does nothing if that was noted before.
func (o *Observer) Queued(s keytable.Slot) {
	if k := o.keys.At(s); k.in == inNone {
		k.in = inQueued
		o.lists.Append(&o.queued, s)
	}
}

// Unqueued notes that the key at s does not wait for a worker any more. Without Queued it does nothing.
func (o *Observer) Unqueued(s keytable.Slot) {
	if k := o.keys.At(s); k.in == inQueued {
		k.in = inNone
		o.lists.Remove(&o.queued, s)
	}
}

// Canceled notes that the key at s is not dirty any more, although no worker got it.
func (o *Observer) Canceled(s keytable.Slot) {
	o.Unqueued(s)
	if o.push != nil {
		o.push.Depth.Dec()
	}
}

// LeaveDepth takes a dirty key out of the pushed depth, or with -1 puts it back.
func (o *Observer) LeaveDepth(n int) {
	switch {
	case o.push == nil:
	case n > 0:
		o.push.Depth.Dec()
	default:
		o.push.Depth.Inc()
	}
}

// Taken notes that a worker gets the key at s now.
func (o *Observer) Taken(s keytable.Slot, now time.Duration) {
	o.Unqueued(s)
	k := o.keys.Existing(s)
	latency := now - k.addedAt
	k.startedAt, k.cameAt, k.in = now, k.addedAt, inRunning
	o.lists.Append(&o.running, s)
	o.startedMicros += now.Microseconds()
	// A queue may read its clock before it is locked, so another call may have come between. Sums of times must
	// not fall. (What is pushed is client-go's, which knows times below zero on a clock that is set back.)
	o.Latency.Observe(max(0, latency))
	if o.push != nil {
		o.push.Latency.Observe(latency.Seconds())
		o.push.Depth.Dec()
	}
}

// Finished notes that the worker for which Taken was called ends its work on the key at s now. It does
// nothing if that was noted before: by Done of a key that was put on hold.
func (o *Observer) Finished(s keytable.Slot, now time.Duration) {
	k := o.keys.Existing(s)
	if k.in != inRunning {
		return
	}
	d := now - k.startedAt
	k.in = inNone
	o.lists.Remove(&o.running, s)
	o.startedMicros -= k.startedAt.Microseconds()
	o.WorkDuration.Observe(max(0, d))
	if o.push != nil {
		o.push.WorkDuration.Observe(d.Seconds())
	}
}

// Release gives back the memory that s shares with its neighbours, as [keytable.Column] does.
func (o *Observer) Release(s keytable.Slot) {
	o.keys.Release(s)
	o.lists.Release(s)
}

// AddedAt and StartedAt return when the key at s became dirty, and when a worker got it, since the epoch.
func (o *Observer) AddedAt(s keytable.Slot) time.Duration   { return o.keys.At(s).addedAt }
func (o *Observer) StartedAt(s keytable.Slot) time.Duration { return o.keys.At(s).startedAt }

// CameAt returns when the key at s became dirty for the worker that holds it, after the observer was made.
func (o *Observer) CameAt(s keytable.Slot) time.Duration { return o.keys.At(s).cameAt }

// Time returns the time that was or is d after the observer was made.
func (o *Observer) Time(d time.Duration) time.Time { return o.epoch.Add(d) }

// Running and InLine return the slots of the keys that workers hold, in the order in which they got them, and
// of those for which Queued was called, in that order. The observer must not change meanwhile.
func (o *Observer) Running() iter.Seq[keytable.Slot] { return o.lists.All(&o.running) }
func (o *Observer) InLine() iter.Seq[keytable.Slot]  { return o.lists.All(&o.queued) }

// SinceAdded returns how long before now the key at s became dirty, zero if it was after.
func (o *Observer) SinceAdded(s keytable.Slot, now time.Duration) time.Duration {
	return max(0, now-o.keys.At(s).addedAt)
}

// Unfinished returns for how long workers have held their keys, summed, and how long the first of them has.
// Both are zero if they are negative because the clock was set back. The sum is in whole microseconds.
func (o *Observer) Unfinished(now time.Duration) (sum, longest time.Duration) {
	micros, longest := o.unfinished(now)
	sum = math.MaxInt64
	if micros < math.MaxInt64/int64(time.Microsecond) {
		sum = max(0, time.Duration(micros)*time.Microsecond)
	}
	return sum, max(0, longest)
}

func (o *Observer) unfinished(now time.Duration) (micros int64, longest time.Duration) {
	if o.running.Len() == 0 {
		return 0, 0
	}
	first := o.keys.Existing(o.running.First())
	return int64(o.running.Len())*now.Microseconds() - o.startedMicros, now - first.startedAt
}
