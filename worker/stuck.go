package worker

import (
	"bytes"
	"log/slog"
	"runtime"
	"time"

	"github.com/keyedqueue/workqueue/internal/dueloop"
)

// watchForStuck starts a goroutine that reports stuck handlers until end is called.
func (p *Pool[T]) watchForStuck() (end func()) {
	if p.options.StuckAfter == 0 {
		return func() {}
	}
	stop := make(chan struct{})
	loop := dueloop.New(p.options.Clock, nil) // for its clock and its timer
	go p.guarded(func() { p.watchHandlers(loop, stop) })
	return func() {
		close(stop)
		loop.Wake()
	}
}

// watchHandlers sleeps until the handler that has run for longest would be stuck. Handlers that start while it
// sleeps need not wake it, because none of them can be stuck before limit has passed.
func (p *Pool[T]) watchHandlers(loop *dueloop.Loop, stop <-chan struct{}) {
	limit := dueloop.AddSaturated(p.options.HandlerTimeout, p.options.StuckAfter)
	timer := loop.NewTimer()
	defer timer.Stop()
	for !isClosed(stop) {
		now := loop.Now()
		calls, next := p.findStuck(loop.Time(now), limit)
		p.readStacks(calls)
		for _, c := range calls {
			if isClosed(stop) {
				return
			}
			p.reportStuck(c)
		}
		timer.Sleep(dueloop.AddSaturated(now, next))
	}
}

// stuckCall is a call that is to be reported.
type stuckCall[T comparable] struct {
	worker    *worker[T]
	goroutine string
	current[T]
}

// findStuck returns the calls that are stuck and were not reported, and after how long the next one may be.
func (p *Pool[T]) findStuck(now time.Time, limit time.Duration) (stuck []stuckCall[T], next time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next = limit
	for w := range p.handlingLocked() {
		running := now.Sub(w.Started)
		switch {
		case w.Stuck:
		case running >= limit:
			w.Stuck = true
			c := stuckCall[T]{w, w.goroutine, w.current}
			c.Duration = running
			stuck = append(stuck, c)
		default:
			next = min(next, limit-running)
		}
	}
	return stuck, next
}

// readStacks sets the stacks of calls. It stops all goroutines of the program for as long as it takes to write their stacks
// down, so it does that once for all calls that were found stuck together.
func (p *Pool[T]) readStacks(calls []stuckCall[T]) {
	if len(calls) == 0 {
		return
	}
	stacks := make(map[string]string, len(calls))
	for _, c := range calls {
		stacks[c.goroutine] = ""
	}
	for stack := range bytes.SplitSeq(allStacks(), []byte("\n\n")) {
		goroutine := goroutineOf(stack)
		if _, stuck := stacks[goroutine]; stuck {
			stacks[goroutine] = cut(string(stack), maxStack)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range calls {
		c := &calls[i]
		if c.worker.base == c.base { // Otherwise it has ended, and the stack may be that of the next one.
			c.Stack = stacks[c.goroutine]
			c.worker.Stack = c.Stack
		}
	}
}

// allStacks returns the stacks of all goroutines, or those that fit into 8 MiB.
func allStacks() []byte {
	for size := 64 << 10; ; size *= 2 {
		stacks := make([]byte, size)
		if n := runtime.Stack(stacks, true); n < size || size >= 8<<20 {
			return stacks[:n]
		}
	}
}

// goroutineOf returns the number of the goroutine whose stack begins with "goroutine 12 [running]:".
func goroutineOf(stack []byte) string {
	number, _, _ := bytes.Cut(bytes.TrimPrefix(stack, []byte("goroutine ")), []byte(" "))
	return string(number)
}

// noteGoroutine notes the goroutine that runs w.
func (p *Pool[T]) noteGoroutine(w *worker[T]) {
	if p.options.StuckAfter == 0 {
		return
	}
	var stack [64]byte
	goroutine := goroutineOf(stack[:runtime.Stack(stack[:], false)])
	p.locked(func() { w.goroutine = goroutine })
}

func (p *Pool[T]) reportStuck(c stuckCall[T]) {
	if p.logger != nil {
		attrs := p.withCauses([]slog.Attr{slog.Any("key", c.Key), slog.Duration("running", c.Duration)}, c.Key)
		if c.Stack != "" {
			attrs = append(attrs, slog.String("stack", c.Stack))
		}
		p.logger.LogAttrs(p.handling, slog.LevelWarn, "A handler is stuck", attrs...)
	}
	if p.options.OnStuck != nil {
		p.options.OnStuck(c.ctx, c.RunningKey)
	}
}
