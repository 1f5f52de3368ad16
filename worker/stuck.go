package worker

import (
	"time"

	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/worker/internal/stacks"
)

// watchForStuck starts a goroutine that reports stuck handlers until end is called.
func (t *Tracker[T]) watchForStuck() (end func()) {
	if t.options.StuckAfter == 0 {
		return func() {}
	}
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
			if isClosed(stop) {
				return
			}
			t.reportStuck(c)
		}
		timer.Sleep(dueloop.AddSaturated(now, next))
	}
}

const maxStack = 8 << 10 // bytes

// stuckCall is a call that is to be reported.
type stuckCall[T comparable] struct {
	RunningKey[T]
	call *Tracked[T]
}

// findStuck returns the calls that are stuck and were not reported, and after how long the next one may be.
func (t *Tracker[T]) findStuck(now time.Time, limit time.Duration) (stuck []stuckCall[T], next time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	next = limit
	for _, c := range t.mu.running {
		running := now.Sub(c.result.Started)
		switch {
		case c.stuck:
		case running >= limit:
			c.stuck = true
			stuck = append(stuck, stuckCall[T]{newRunningKeyLocked(c, c.result.Key), c})
			stuck[len(stuck)-1].Duration = running
		default:
			next = min(next, limit-running)
		}
	}
	return stuck, next
}

// readStacks sets the stacks of calls. It stops the whole program, so it does that once for all calls that
// were found stuck together.
func (t *Tracker[T]) readStacks(calls []stuckCall[T]) {
	if len(calls) == 0 {
		return
	}
	of := stacks.Of(converted(calls, func(c stuckCall[T]) string { return c.call.goroutine }), maxStack)
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range calls {
		if c := calls[i].call; c.running { // Otherwise the stack may be that of the next call.
			c.stack = of[c.goroutine]
			calls[i].Stack = c.stack
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

func (t *Tracker[T]) reportStuck(c stuckCall[T]) {
	args := t.withCauses([]any{"key", c.Key, "running", c.Duration, "stack", c.Stack}, c.Key)
	t.logger.WarnContext(c.call.base, "A handler is stuck", args...)
	if t.options.OnStuck != nil {
		t.options.OnStuck(c.call.ctx, c.RunningKey)
	}
}
