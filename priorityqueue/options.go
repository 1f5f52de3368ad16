package priorityqueue

import (
	"time"

	"github.com/keyedqueue/workqueue"
	"k8s.io/utils/clock"
)

// Config tells [New] what to build. The zero Config is a queue with priorities, on the real clock, with the
// default controller limiter and nothing else.
type Config[T comparable] struct {
	// Name is the queue's name in Stats and metrics. A queue without a name has no metrics.
	Name string

	// MetricsProvider, unless nil, reads the queue's metrics. Nil means the one of
	// [workqueue.SetProvider], if it is a StatsProvider. (Metrics that want to be told of every change
	// cannot be had: code of others would run under the queue's lock.) With metrics the queue reads the
	// clock in every call.
	MetricsProvider workqueue.StatsProvider

	// Clock is where all times come from, those of the limiter apart. Nil means the real clock. It is read
	// without the queue's lock.
	Clock clock.WithTicker

	// RateLimiter says for how long a key that is added with RateLimited waits. Nil means
	// [workqueue.DefaultTypedControllerRateLimiter]. It is called without the queue's lock, and by one
	// goroutine at a time but for Forget and NumRequeues. It may call the queue, but not add to it with
	// RateLimited.
	RateLimiter workqueue.TypedRateLimiter[T]

	// Aging, unless zero, is the time for which a key must have been ready to count as one of a priority
	// higher by one. So every ready key is handed out at last, however many of higher priority come: see
	// "Order" in the package comment. With Aging the queue reads the clock in every call.
	Aging time.Duration

	// Group, unless nil, tells the group of a key, which keys of equal priority take turns by. It is
	// called once for each key that is added, before the queue is locked. A key's group is the one that
	// it had when it came into the queue, until it is Done.
	Group func(key T) string

	// Weight tells how many keys of a group are handed out in one of its turns. Nil means one, and so does
	// an answer below one. It is called after each call of Group, and the answer counts if the key was
	// not in the queue: from the group's next turn on.
	Weight func(group string) int

	// MaxPerGroup, unless zero, is the number of keys of a group that are processed at once. The others
	// wait in the queue, out of the way of other groups' keys.
	MaxPerGroup int

	// MinInterval, unless zero, is the shortest time from one hand-out of a key to the next. Whoever adds
	// it sooner makes it wait. With MinInterval the queue reads the clock in every call, and remembers a
	// key until the time is over. (Each later call, of whatever method, then forgets some hundred of them.)
	MinInterval time.Duration
}

func (c *Config[T]) check() {
	switch {
	case c.Aging < 0:
		panic("priorityqueue: Config.Aging is negative")
	case c.MinInterval < 0:
		panic("priorityqueue: Config.MinInterval is negative")
	case c.MaxPerGroup < 0:
		panic("priorityqueue: Config.MaxPerGroup is negative")
	case c.Group == nil && c.Weight != nil:
		panic("priorityqueue: Config.Weight without Group")
	case c.Group == nil && c.MaxPerGroup != 0:
		panic("priorityqueue: Config.MaxPerGroup without Group")
	}
}

// AddOpts tell [Queue.AddWithOpts] when, and how urgently, keys shall come. The zero AddOpts are those of Add:
// now, with priority 0.
type AddOpts struct {
	// Priority is how urgent the key is. Keys of higher priority come first. A key that is in the queue with
	// a higher one keeps that.
	Priority int

	// After is the time for which the key shall wait. Zero and less mean not at all.
	After time.Duration

	// RateLimited makes the key wait for as long as the limiter says, or for After if that is positive and
	// shorter. The limiter is asked only if its answer can matter: not for a key that is ready, or will be
	// when its worker is Done, and not for a key for which it was asked since the last hand-out.
	RateLimited bool

	// SetPriority makes the key take Priority even if it has a higher one.
	SetPriority bool

	// Delay says what becomes of a key that has a time to wait for already.
	Delay DelayPolicy

	// MaxDelay, if positive, bounds how far Latest and Replace can put off a key: it comes no later than
	// that after the first add since its last hand-out.
	MaxDelay time.Duration
}

// DelayPolicy says what an add means for a key that waits for its time, or that is to do so when its worker
// is Done. Under each policy a key that is ready, or is to be when its worker is Done, stays so.
type DelayPolicy uint8

const (
	// Earliest makes the key come at the earlier of the two times.
	Earliest DelayPolicy = iota
	// Latest makes the key come at the later of the two times. Use it with MaxDelay to wait for a thing to
	// come to rest.
	Latest
	// Replace makes the key come at the new time.
	Replace
	// RespectBackoff is Earliest for a key for which the limiter has not been asked. One that is backing off
	// keeps its time: what has happened to a thing does not make its key fail more often. If a worker
	// holds the key, the order does not matter: if it fails, and adds the key with RateLimited, its
	// time is the limiter's.
	RespectBackoff
)

func (o *AddOpts) check() {
	if o.Delay > RespectBackoff {
		panic("priorityqueue: AddOpts.Delay is not a DelayPolicy")
	}
}
