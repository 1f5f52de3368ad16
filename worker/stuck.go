package worker

import (
	"time"

	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/worker/internal/stacks"
)

// watchForStuck starts a goroutine that reports stuck handlers until end is called.
func (t *Tracker[T]) watchForStuck() (end func()) {
	stop := make(chan struct{})
	loop := dueloop.New(t.options.Clock, nil) // for its clock and its timer
	go t.watchHandlers(loop, stop)
	return func() {
		close(stop)
		loop.Wake()
	}
}

// watchHandlers sleeps until the handler that has run for longest would be stuck. Handlers that start while
// it sleeps need not wake it, because none of them can be stuck before limit has passed.
func (t *Tracker[T]) watchHandlers(loop *dueloop.Loop, stop <-chan struct{}) {
	limit := dueloop.AddSaturated(t.options.HandlerTimeout, t.options.StuckAfter)
	timer := loop.NewTimer()
	defer timer.Stop()
	for !isClosed(stop) {
		now := loop.Now()
		calls, next := t.findStuck(loop.Time(now), limit)
		t.readStacks(calls)
		for _, c := range calls {
			go t.reportStuck(c, loop.Time(now)) // The logger and OnStuck may block.
		}
		timer.Sleep(dueloop.AddSaturated(now, next))
	}
}

const maxStack = 8 << 10 // bytes

// findStuck returns the calls that are stuck and were not reported, and after how long the next one may be.
func (t *Tracker[T]) findStuck(now time.Time, limit time.Duration) (stuck []*Tracked[T], next time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	next = limit
	for _, c := range t.mu.running {
		taken := now.Sub(c.result.Started)
		switch {
		case c.stuck:
		case taken >= limit:
			c.stuck = true
			stuck = append(stuck, c)
		default:
			next = min(next, limit-taken)
		}
	}
	return stuck, next
}

// readStacks sets the stacks of calls. It stops the whole program, so it does that once for all calls that
// were found stuck together.
func (t *Tracker[T]) readStacks(calls []*Tracked[T]) {
	if len(calls) == 0 {
		return
	}
	of := stacks.Of(converted(calls, func(c *Tracked[T]) string { return c.goroutine }), maxStack)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range calls {
		if c.running { // Otherwise the stack may be that of the next call.
			c.stack = of[c.goroutine]
		}
	}
}

// currentGoroutine returns the number of this goroutine, or nothing without StuckAfter.
func (t *Tracker[T]) currentGoroutine() string {
	if t.options.StuckAfter == 0 {
		return ""
	}
	return stacks.Current()
}

func (t *Tracker[T]) reportStuck(c *Tracked[T], now time.Time) {
	t.mu.Lock()
	k := c.snapshotLocked()
	t.mu.Unlock()
	k.Duration = now.Sub(k.Started)
	args := t.withCauses([]any{"key", k.Key, "running", k.Duration, "stack", k.Stack}, k.Key)
	t.logger.WarnContext(c.base, "A handler is stuck", args...)
	if t.options.OnStuck != nil {
		t.options.OnStuck(c.ctx, k)
	}
}
