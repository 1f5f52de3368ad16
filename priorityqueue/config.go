package priorityqueue

import (
	"fmt"
	"time"

	"github.com/keyedqueue/workqueue"
	"k8s.io/utils/clock"
)

// Config configures [New]. The zero Config is a queue with priorities, the real clock and a limiter for
// controllers.
type Config[T comparable] struct {
	// Name is the queue's name in Stats and metrics. A queue without a name has no metrics.
	Name string

	// MetricsProvider must be a [workqueue.StatsProvider], such as one of package prom: New panics for any
	// other. Nil means that of [workqueue.SetProvider], if it is a StatsProvider. With metrics the queue reads
	// the clock in nearly every call.
	MetricsProvider workqueue.MetricsProvider

	// Clock is where all times come from, except those of a limiter in RateLimiter. Nil means the real clock.
	// It is read under the queue's lock, so it must not call the queue.
	Clock clock.WithTicker

	// RateLimiter decides how long a key that is added with RateLimited waits. Nil means
	// [workqueue.NewTypedControllerRateLimiter] on the queue's clock. It is called without the queue's lock,
	// and When by one goroutine at a time. It may call the queue, but not Fail or add with RateLimited.
	RateLimiter workqueue.TypedRateLimiter[T]

	// Delay is the policy of all adds whose AddOpts have none. The zero value means Earliest.
	Delay DelayPolicy

	// MaxDelay is the MaxDelay of adds whose AddOpts have none, except rate-limited ones.
	MaxDelay time.Duration

	// Aging, unless zero, raises the priority of a queued key by one each time the key has been queued for so
	// long: see "Order" in the package comment. With Aging the queue reads the clock in nearly every call.
	Aging time.Duration

	// Group, unless nil, returns the group of a key. Groups take turns among keys of equal priority. It is
	// called once for each add or Fail of a key, before the queue is locked. A key keeps the group with which it
	// came into the queue until it leaves.
	Group func(key T) string

	// Weight returns how many keys of a group are handed out in one of its turns. Nil means one, and so does an
	// answer below one. It is called after each call of Group. An answer for a key that was not in the queue
	// counts from the group's next turn.
	Weight func(group string) int

	// Limit returns how many keys of a group may be processed at once. Its other keys are blocked: they stay
	// queued. Nil means no limit, and so does an answer below one: to stop a group, use PauseGroup. It is
	// called as Weight is, and an answer for a key that was not in the queue counts at once.
	Limit func(group string) int

	// MinInterval, unless zero, is the shortest time from one hand-out of a key to the next. A key that is
	// added sooner waits. The queue then reads the clock in nearly every call, and remembers each key until its
	// interval is over. A shutdown ends all intervals: what was added comes before a drain ends.
	MinInterval time.Duration
}

func (c *Config[T]) check() {
	_, isStats := c.MetricsProvider.(workqueue.StatsProvider)
	switch {
	case c.MetricsProvider != nil && !isStats:
		panic(fmt.Sprintf("priorityqueue: %T is not a workqueue.StatsProvider", c.MetricsProvider))
	case c.Delay > Replace:
		panic("priorityqueue: Config.Delay is not a DelayPolicy")
	case min(c.Aging, c.MaxDelay, c.MinInterval) < 0:
		panic("priorityqueue: Config.Aging, Config.MaxDelay or Config.MinInterval is negative")
	case c.Group == nil && (c.Weight != nil || c.Limit != nil):
		panic("priorityqueue: Config.Weight or Config.Limit without Group")
	}
}
