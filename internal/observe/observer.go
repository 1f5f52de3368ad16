// Package observe keeps what a queue tells of itself beyond its keys: since when a key has been queued or
// held by a worker, how long that took others, and the metrics that want to be told of every change.
package observe

import (
	"iter"
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
	"k8s.io/utils/clock"
)

// Observer has the times of one queue's keys and the [Histogram]s of those that are over, and tells them
// to the queue's [Push] metrics.
//
// Its methods are called under the queue's lock. Where they change what it knows and push it to a metric,
// they do so in this order, because a metric is somebody else's code and may panic.
type Observer struct {
	clock clock.WithTicker
	// isReal tells that clock is the real one, which is quicker to read directly.
	isReal bool
	// epoch is when the queue was made. Times are kept as durations since then, a third of the size
	// of a time.Time. A reading by Since is also the cheaper one on the real clock.
	epoch time.Time

	// push is nil if nobody wants to be told.
	push *Push
	// pushed tells that the last values of the metrics that depend on the time were not zero.
	pushed bool

	// Latency has the times from a key's add to its Get, WorkDuration those from Get to Done.
	Latency, WorkDuration Histogram

	// keys has the times of the queue's keys, by their slots there.
	keys keytable.Column[keyTimes]
	// first and last are the ends of the list of the keys that workers hold, in the order in which they
	// got them.
	first, last keytable.Slot
	// running is the length of that list, started the sum of its startedAt.
	running int
	started durationSum
}

// keyTimes are the times of a key, as readings of Observer.Now.
type keyTimes struct {
	addedAt   time.Duration // when it became dirty
	startedAt time.Duration // when a worker got it
	// prev and next are its neighbours in the list of the keys that workers hold.
	prev, next keytable.Slot
	running    bool
}

// New returns an Observer that reads c, counts into buckets and, unless it is nil, tells push.
func New(c clock.WithTicker, buckets *Buckets, push *Push) *Observer {
	_, isReal := c.(clock.RealClock)
	return &Observer{
		clock:        c,
		isReal:       isReal,
		epoch:        c.Now(),
		push:         push,
		Latency:      Histogram{buckets: buckets},
		WorkDuration: Histogram{buckets: buckets},
	}
}

// RunsForeignCode reports whether the methods call code that is not ours, and may panic.
func (o *Observer) RunsForeignCode() bool { return o.push != nil || !o.isReal }

// Now returns the time since the observer was made.
func (o *Observer) Now() time.Duration {
	if o.isReal {
		return time.Since(o.epoch)
	}
	return o.clock.Since(o.epoch)
}

// Added tells that the key at s has become dirty now.
func (o *Observer) Added(s keytable.Slot, now time.Duration) {
	o.keys.At(s).addedAt = now
	if o.push != nil {
		o.push.Adds.Inc()
		o.push.Depth.Inc()
	}
}

// Taken tells that a worker gets the key at s now.
func (o *Observer) Taken(s keytable.Slot, now time.Duration) {
	k := o.keys.At(s)
	latency := now - k.addedAt
	k.startedAt, k.prev, k.next, k.running = now, o.last, keytable.None, true
	if o.last == keytable.None {
		o.first = s
	} else {
		o.keys.At(o.last).next = s
	}
	o.last = s
	o.running++
	o.started.add(now)
	o.Latency.observe(latency)
	if o.push != nil {
		o.push.Latency.Observe(latency.Seconds())
		o.push.Depth.Dec()
	}
}

// Untake tells that no worker holds the key at s any more, and returns when one got it. It does nothing if
// none has held it.
func (o *Observer) Untake(s keytable.Slot) time.Duration {
	k := o.keys.At(s)
	if !k.running {
		return k.startedAt
	}
	k.running = false
	o.running--
	o.started.sub(k.startedAt)
	prev, next := k.prev, k.next
	if prev == keytable.None {
		o.first = next
	} else {
		o.keys.At(prev).next = next
	}
	if next == keytable.None {
		o.last = prev
	} else {
		o.keys.At(next).prev = prev
	}
	return k.startedAt
}

// Worked tells for how long a worker has held a key that is Done.
func (o *Observer) Worked(d time.Duration) {
	o.WorkDuration.observe(d)
	if o.push != nil {
		o.push.WorkDuration.Observe(d.Seconds())
	}
}

// Release gives back the memory that s shares with its neighbours, as [keytable.Column] does.
func (o *Observer) Release(s keytable.Slot) { o.keys.Release(s) }

// AddedAt returns when the key at s became dirty.
func (o *Observer) AddedAt(s keytable.Slot) time.Time { return o.epoch.Add(o.keys.At(s).addedAt) }

// StartedAt returns when a worker got the key at s.
func (o *Observer) StartedAt(s keytable.Slot) time.Time { return o.epoch.Add(o.keys.At(s).startedAt) }

// Running returns the slots of the keys that workers hold, in the order in which they got them. The
// observer must not change meanwhile.
func (o *Observer) Running() iter.Seq[keytable.Slot] {
	return func(yield func(keytable.Slot) bool) {
		for s := o.first; s != keytable.None && yield(s); s = o.keys.At(s).next {
		}
	}
}

// SinceAdded returns how long ago the key at s became dirty, zero if the clock says that it will.
func (o *Observer) SinceAdded(s keytable.Slot) time.Duration {
	return max(0, o.Now()-o.keys.At(s).addedAt)
}

// Unfinished returns for how long workers have held their keys, summed, and the first of them, zero if
// the clock says that they will.
func (o *Observer) Unfinished() (sum, longest time.Duration) {
	s, longest := o.unfinished()
	return max(0, s.duration()), max(0, longest)
}

func (o *Observer) unfinished() (sum durationSum, longest time.Duration) {
	if o.running == 0 {
		return sum, 0
	}
	now := o.Now()
	return o.started.since(now, o.running), now - o.keys.At(o.first).startedAt
}
