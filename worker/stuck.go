package worker

import (
	"bytes"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/keyedqueue/workqueue/internal/dueloop"
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

// readStacks sets the stacks of calls. It stops all goroutines of the program for as long as it takes to
// write their stacks down, so it does that once for all calls that were found stuck together.
func (t *Tracker[T]) readStacks(calls []stuckCall[T]) {
	if len(calls) == 0 {
		return
	}
	stacks := make(map[string]string, len(calls))
	all, instead := allStacks()
	for _, c := range calls {
		stacks[c.call.goroutine] = instead
	}
	for stack := range bytes.SplitSeq(all, []byte("\n\n")) {
		goroutine := goroutineOf(stack)
		if _, stuck := stacks[goroutine]; stuck {
			stacks[goroutine] = cut(string(stack), maxStack)
		}
	}
	for i := range calls {
		c := calls[i].call
		t.mu.Lock()
		if c.running { // Otherwise the stack may be that of the next call.
			c.stack = stacks[c.goroutine]
			calls[i].Stack = c.stack
		}
		t.mu.Unlock()
	}
}

// maxGoroutines is the number of goroutines above which no stacks are read. See Options.StuckAfter.
const maxGoroutines = 3000

// allStacks returns the stacks of all goroutines, as far as the buffer has room, and a text to show for a
// goroutine that is not among them.
func allStacks() (stacks []byte, instead string) {
	n := runtime.NumGoroutine()
	if n > maxGoroutines {
		return nil, fmt.Sprintf("not read: there are %d goroutines", n)
	}
	// runtime.Stack walks all goroutines even if the buffer is full, so it is called once, with a buffer that
	// is probably large enough: 16 KiB a goroutine up to 8 MiB in all, and never less than 2 KiB a goroutine.
	stacks = make([]byte, 64<<10+max(n*2<<10, min(n*16<<10, 8<<20)))
	return stacks[:runtime.Stack(stacks, true)], "not read: the stacks of the other goroutines are too long"
}

// goroutineOf returns the number of the goroutine whose stack begins with "goroutine 12 [running]:".
func goroutineOf(stack []byte) string {
	number, _, _ := bytes.Cut(bytes.TrimPrefix(stack, []byte("goroutine ")), []byte(" "))
	return string(number)
}

// currentGoroutine returns the number of this goroutine, or nothing without StuckAfter.
func (t *Tracker[T]) currentGoroutine() string {
	if t.options.StuckAfter == 0 {
		return ""
	}
	var stack [64]byte
	return goroutineOf(stack[:runtime.Stack(stack[:], false)])
}

func (t *Tracker[T]) reportStuck(c stuckCall[T]) {
	args := t.withCauses([]any{"key", c.Key, "running", c.Duration, "stack", c.Stack}, c.Key)
	t.log(c.call.base, slog.LevelWarn, "A handler is stuck", args...)
	if t.options.OnStuck != nil {
		t.options.OnStuck(c.call.ctx, c.RunningKey)
	}
}
