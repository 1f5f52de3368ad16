package handlertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"time"
)

// ErrUnchanged is returned by the function of [Process.Write] if the truth already was as it must be. Write
// then returns nil, and a handler that keeps writing the same comes to rest.
var ErrUnchanged = errors.New("handlertest: nothing has changed")

// ErrUnavailable is returned by calls of clients that fail as the network fails. A read has not
// happened. A write may have.
var ErrUnavailable = errors.New("unavailable: a timeout, or the connection is lost")

// Process is one life of the program that is tested, from its start to a crash or the end of the run.
// Scenario.Start gets it. When it crashes, its context ends, and none of its goroutines gets past its next
// use of the Process or of a [Client]: such a use ends the goroutine, deferred calls included, as
// [runtime.Goexit] does.
//
// A program whose world is not a [World] reports what it does to the run, by Point, Write and Show. All
// methods may be called from any goroutine of the bubble.
type Process struct {
	sim           *sim
	name          string // "the process", or "process 2" if there are several
	ctx           context.Context
	end           context.CancelFunc
	gone          chan struct{} // closed by kill
	dead          atomic.Bool
	shown         map[string]time.Time // when the last event of each stream is shown; guarded by the sim's mu
	conflictUntil time.Time            // guarded likewise
	// crash ends the process, and starts it again when it has been down that long.
	crash func(down time.Duration, where string)
}

func (p *Process) isDead() bool { return p.dead.Load() }

func (p *Process) kill() {
	if !p.dead.Swap(true) {
		p.end() // Before gone: a worker whose handler has just ended would ask for another key.
		close(p.gone)
	}
}

// Context returns the context of the process, for goroutines that it has beside its handlers. It ends with
// the process.
func (p *Process) Context() context.Context { return p.ctx }

// step lets time pass, and others do what they do meanwhile. What follows happens at one moment of the run.
// It does not return if the process crashes. A step is named after its key or, outside a handler's call,
// after what it does.
func (p *Process) step(ctx context.Context, what string) {
	p.pass(ctx, what, stepTime, true)
}

// pass is a step that takes so long, or longer if it may be slow.
func (p *Process) pass(ctx context.Context, what string, d time.Duration, maySlow bool) {
	s, name := p.sim, p.stepName(ctx, what)
	if p.isDead() {
		s.mu.Lock()
		ended := s.goroutinesEnded
		s.mu.Unlock()
		if ended { // The caller is in another run, or in none.
			panic("handlertest: a process or its client is used after its run: make what uses it in Scenario.Start")
		}
		runtime.Goexit()
	}
	granted := make(chan struct{})
	s.mu.Lock()
	if maySlow {
		if by := s.disturb(slow, name); by > 0 {
			d += by
			c := callOf(ctx)
			s.tellSoonLocked(p, c.text, name, "%s: is slow: its next step takes %v longer", cmp.Or(c.named(), p.name),
				by)
		}
	}
	s.addLocked(time.Now().Add(d), name, p, func() { close(granted) })
	s.mu.Unlock()
	select {
	case <-granted:
	case <-p.gone:
	case <-time.After(d + stuckAfter): // A step is granted at its time, unless the run itself waits for one.
		panic("handlertest: a Client or a Process is used by At, Sometime, Others, Measure, Check or Always, " +
			"whose calls take no time: use the World")
	}
	if p.isDead() {
		runtime.Goexit()
	}
}

// stepName is the name of a step in a schedule. Outside of calls it is what the step does, without a version:
// each name has a number of disturbances.
func (p *Process) stepName(ctx context.Context, what string) string {
	what, _, _ = strings.Cut(what, "@")
	return p.named(cmp.Or(callOf(ctx).text, what))
}

// tell adds to the story what the process, or the call whose context ctx is, does.
func (p *Process) tell(ctx context.Context, format string, args ...any) {
	if p.sim.telling && !p.isDead() {
		c := callOf(ctx)
		p.sim.tell(c.text, "%s: %s", cmp.Or(c.named(), p.name), fmt.Sprintf(format, args...))
	}
}

// named returns a name for what the process has, if others have it as well.
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
		down = s.disturb(crashes, "")
	}
	s.mu.Unlock()
	if down > 0 {
		// When everything has happened that happens at this moment without it.
		s.after(0, "", p, func() { p.crash(down, where) })
		<-p.gone
		runtime.Goexit()
	}
}

// Point is a place where the process may crash, for a fake of an effect outside the worlds, such as sending
// mail. Time passes before it. The context is the handler's, or made from it.
func (p *Process) Point(ctx context.Context, name string) {
	p.step(ctx, name)
	p.tell(ctx, "%s", name)
	p.crashPoint("after " + name)
}

// Write is for a world of the program's own. It lets time pass, calls write, which changes the truth at one
// moment, and returns its error. The process may crash afterwards, before the caller learns that the write
// has succeeded. If ctx has ended when the time has passed, Write returns its error and does not call write.
// It notices the end only then, not earlier. It may also return [ErrUnavailable], before the write or after
// it. What names the write in the story.
func (p *Process) Write(ctx context.Context, what string, write func() error) error {
	p.step(ctx, what)
	err := ctx.Err()
	if err == nil {
		err = p.mayFail(ctx, fail, what)
	}
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
		p.sim.changed(1)
	}
	p.crashPoint("after that write")
	return p.mayFail(ctx, lost, what)
}

// mayFail makes some calls of handlers fail.
func (p *Process) mayFail(ctx context.Context, kind, what string) error {
	s, name := p.sim, p.stepName(ctx, what)
	if callOf(ctx).process == nil {
		return nil // Start and its goroutines have no worker that tries again.
	}
	s.mu.Lock()
	by := s.disturb(kind, name)
	s.mu.Unlock()
	if by <= 0 {
		return nil
	}
	p.pass(ctx, what, by, false)
	if kind == lost {
		p.tell(ctx, "gets no answer: %v", ErrUnavailable)
	}
	return ErrUnavailable
}

// Conflict is for the writes of a world of the program's own that are for one version of an object. If it
// returns true, somebody writes to the object at this moment, and the write is one to an old version.
func (p *Process) Conflict(ctx context.Context, what string) bool {
	if callOf(ctx).process == nil {
		return false
	}
	s, name := p.sim, p.stepName(ctx, what)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if by := s.disturb(conflict, name); by > 0 && p.conflictUntil.Before(now.Add(by)) {
		p.conflictUntil = now.Add(by)
	}
	return now.Before(p.conflictUntil)
}

// Read is for a world of the program's own. It lets time pass and calls read, unless ctx has ended. It
// returns the error, or [ErrUnavailable].
func (p *Process) Read(ctx context.Context, read func() error) error {
	p.step(ctx, "")
	err := ctx.Err()
	if err == nil {
		if err = p.mayFail(ctx, fail, ""); err != nil {
			p.tell(ctx, "reads: %v", err)
		}
	}
	if err != nil {
		return err
	}
	return read()
}

// Show is for a world of the program's own, which calls it when the truth has changed. It returns at once and
// calls show later, when the cache of this process shows the change. The changes of a stream, which has a
// name, are shown in their order. If the watch of the cache is lost, list is called instead, still later: it
// makes the cache show what the truth is then, and later calls of show for changes that this includes must do
// nothing. With a nil list, no watch is lost. Neither is called if the process has crashed meanwhile. Both
// tell the story themselves, by Tell. What names the change in the story.
func (p *Process) Show(stream, what string, show, list func()) {
	s, site := p.sim, p.named(stream)
	s.mu.Lock()
	defer s.mu.Unlock()
	by := s.disturb(lag, site)
	if list != nil {
		if lost := s.disturb(relist, site); lost > 0 {
			s.tellSoonLocked(p, "", site, "%s: loses its watch of %s for %v", p.name, stream, lost)
			p.showLocked(site, lost, list)
			return
		}
	}
	if by > 0 {
		s.tellSoonLocked(p, "", site, "%s: its cache lags: it shows %s %v later", p.name, what, by)
	}
	p.showLocked(site, by, show)
}

// Tell adds to the story what the process does.
func (p *Process) Tell(format string, args ...any) { p.tell(p.ctx, format, args...) }

// showLocked is Show with a delay.
func (p *Process) showLocked(stream string, by time.Duration, show func()) {
	at := time.Now().Add(stepTime + by)
	if last := p.shown[stream]; at.Before(last) {
		at = last
	}
	p.shown[stream] = at
	p.sim.addLocked(at, ofCaches+stream, p, func() {
		p.sim.mu.Lock()
		p.sim.noteChangeLocked()
		p.sim.mu.Unlock()
		show()
	})
}
