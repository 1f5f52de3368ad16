package handlertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/keyedqueue/workqueue/worker"
)

// ErrUnchanged is returned by the function of [Process.Write] if the truth already was as it must be. Write then returns nil, and a handler that
// goes on writing the same comes to rest.
var ErrUnchanged = errors.New("handlertest: nothing has changed")

// Process is one life of the program that is tested, from its start to a crash or the end of the run. Scenario.Start gets it. When it crashes, its
// context ends, and none of its goroutines gets past its next use of the Process or of a [Client]: such a use ends the goroutine, deferred calls
// included, as [runtime.Goexit] does.
//
// A program whose world is not a [World] reports what it does to the run, by Point, Write and Show. All methods may be called from any goroutine of the
// bubble.
type Process struct {
	sim   *sim
	name  string // "the process", or "process 2" if there are several
	ctx   context.Context
	end   context.CancelFunc
	gone  chan struct{} // closed by kill
	dead  atomic.Bool
	shown map[string]time.Time // when the last event of each stream is shown; guarded by the sim's mu
	// crashed ends and restarts the process.
	crashed func(down time.Duration, where string)
}

func (p *Process) isDead() bool { return p.dead.Load() }

func (p *Process) kill() {
	if !p.dead.Swap(true) {
		p.end() // Before gone: a worker whose handler has just ended would ask for another key.
		close(p.gone)
	}
}

// Context returns the context of the process, for goroutines that it has beside its handlers. It ends with the process.
func (p *Process) Context() context.Context { return p.ctx }

// step lets time pass, and others do what they do meanwhile. What follows happens at one moment of the run. It does not return if the process
// crashes. A step is named after its key or, outside a handler's call, after what it does.
func (p *Process) step(ctx context.Context, what string) {
	s, name := p.sim, p.named(cmp.Or(callOf(ctx).text, what))
	if p.isDead() {
		s.mu.Lock()
		ended := s.buried
		s.mu.Unlock()
		if ended { // The caller is in another run, or in none.
			panic("handlertest: a process or its client is used after its run: make what uses it in Scenario.Start")
		}
		runtime.Goexit()
	}
	granted := make(chan struct{})
	s.check("a process or its client")
	s.mu.Lock()
	d := stepTime + s.decide(slow, name)
	s.addLocked(time.Now().Add(d), name, p, func() { close(granted) })
	s.mu.Unlock()
	select {
	case <-granted:
	case <-p.gone:
	}
	if p.isDead() {
		runtime.Goexit()
	}
}

// tell adds to the story what the process, or the call whose context ctx is, does.
func (p *Process) tell(ctx context.Context, format string, args ...any) {
	if p.sim.telling && !p.isDead() {
		who := p.name
		if c := callOf(ctx); c.process != nil {
			who = c.String()
		}
		p.sim.tell("%s: %s", who, fmt.Sprintf(format, args...))
	}
}

func (c *call) String() string { return c.process.named(c.text) }

// named returns a name for what the process has, if there are others that have it, too.
func (p *Process) named(name string) string {
	if p.name == onlyProcess {
		return name
	}
	return name + " in " + p.name
}

// crashPoint is where the process may crash. Then it does not return.
func (p *Process) crashPoint(where string) {
	s := p.sim
	s.mu.Lock()
	down := time.Duration(0)
	if !s.over && !p.isDead() {
		down = s.decide(crashes, "")
	}
	s.mu.Unlock()
	if down > 0 {
		s.after(0, "", p, func() { p.crashed(down, where) }) // When everything has happened that happens at this moment without it.
		<-p.gone
		runtime.Goexit()
	}
}

// Point is a place where the process may crash, for a fake of an effect outside the worlds, such as sending mail. Time passes before it. The context
// is the handler's, or made from it.
func (p *Process) Point(ctx context.Context, name string) {
	p.step(ctx, name)
	p.tell(ctx, "%s", name)
	p.crashPoint("after " + name)
}

// Write is for a world of the program's own. It lets time pass, calls write, which changes the truth at one moment, and returns its error. The
// process may crash afterwards, before the caller learns that the write has succeeded. If ctx has ended when the time has passed, Write returns its
// error and does not call write. It notices the end only then, not earlier. What names the write in the story.
func (p *Process) Write(ctx context.Context, what string, write func() error) error {
	p.step(ctx, what)
	err := ctx.Err()
	if err == nil {
		err = write()
	}
	unchanged := errors.Is(err, ErrUnchanged)
	if err != nil && !unchanged {
		p.tell(ctx, "%s: %v", what, err)
		return err
	}
	p.tell(ctx, "%s", what)
	if !unchanged {
		p.sim.change(1)
	}
	p.crashPoint("after that write")
	return nil
}

// Read is for a world of the program's own. It lets time pass and calls read, unless ctx has ended. It returns the error.
func (p *Process) Read(ctx context.Context, read func() error) error {
	p.step(ctx, "")
	if err := ctx.Err(); err != nil {
		return err
	}
	return read()
}

// Show is for a world of the program's own, which calls it when the truth has changed. It returns at once and calls show later, when the cache of
// this process shows the change. The changes of a stream, which has a name, are shown in their order. It does not call show if the process has
// crashed meanwhile. What names the change in the story.
func (p *Process) Show(stream, what string, show func()) {
	p.sim.check("a process")
	p.sim.mu.Lock()
	defer p.sim.mu.Unlock()
	p.showLocked(stream, p.sim.decide(lag, stream), func() {
		p.tell(p.ctx, "its cache shows %s", what)
		show()
	})
}

// showLocked is Show with a delay.
func (p *Process) showLocked(stream string, by time.Duration, show func()) {
	at := time.Now().Add(stepTime + by)
	if last := p.shown[stream]; at.Before(last) {
		at = last
	}
	p.shown[stream] = at
	p.sim.addLocked(at, stream, p, func() {
		p.sim.change(0)
		show()
	})
}

// handle returns what the workers of the process call.
func handle[K comparable](r *run[K], p *Process, h worker.Handler[K]) worker.Handler[K] {
	return func(ctx context.Context, key K) (err error) {
		c := &call{process: p, key: key, text: textOf(key)}
		c.ctx = context.WithValue(ctx, callKey{}, c)
		p.step(c.ctx, "")
		if err := ctx.Err(); err != nil {
			return err // Its lease or its timeout ended before the handler was called.
		}
		p.tell(c.ctx, "the handler begins")
		defer r.begin(c)()
		returned := false
		defer func() {
			if v := recover(); v != nil {
				r.sim.fail("panic", "%s: the handler panics: %v\n%s", c, v, debug.Stack())
				err = fmt.Errorf("panic: %v", v)
			} else if !returned && !p.isDead() {
				r.sim.fail("panic", "%s: the handler has ended its goroutine (runtime.Goexit)", c)
			}
		}()
		err = h(c.ctx, key)
		returned = true
		p.tell(c.ctx, "the handler returns %v", cmp.Or[any](err, "nil"))
		p.crashPoint("before the key is done")
		return err
	}
}

// begin notes that a call begins, and returns what notes its end. Two calls of one key at once are a failure, unless the lease of the first one has
// ended.
func (r *run[K]) begin(c *call) (end func()) {
	s, twice := r.sim, false
	s.mu.Lock()
	s.calls[c.key]++
	s.calm[c.key]++
	for other := range r.running {
		oneQueue := r.Shared || other.process == c.process
		twice = twice || oneQueue && other.key == c.key && other.ctx.Err() == nil
	}
	r.running[c] = struct{}{}
	s.mu.Unlock()
	if twice {
		s.fail("twice", "%s: two calls of one key at once", c)
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(r.running, c)
	}
}
