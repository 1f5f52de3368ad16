package handlertest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"
)

// stepTime is how long a call of a client, and the beginning of a handler's call, takes if nothing disturbs
// it.
const stepTime = time.Millisecond

// sim is the run of a scenario: a list of events that happen one at a time, in the order of virtual
// time. Everything that may happen in another order is an event, and between two events all goroutines of the
// bubble are blocked. So a run depends on its schedule alone, as long as the handler itself does.
type sim struct {
	began time.Time
	wake  chan struct{} // has an element when there is a new event
	// Only drive writes these.
	steps     int // how many events have happened
	byScript  int // the changes that the function of Converges, At and Sometime have made
	lastEvent time.Time
	moments   []time.Duration // of events, since the run began, until the first of atRest is called

	afterEvents func() // checks invariants
	changes     atomic.Int64

	mu sync.Mutex // guards what follows; no foreign code runs under it
	decider
	events  []*event
	version int64 // of the last change of any world

	// What others do: see others.go.
	reactions []*reaction
	reacting  string // the name of the one that is called now
	atRest    []func()

	// When the run is at rest, or takes too long.
	begun          bool      // the scenario is declared
	disturbedUntil time.Time // the end of the last disturbance so far
	lastChange     time.Time // of the truth, or of what a cache shows of it
	writes         int       // after the disturbances
	calmSteps      int       // the events that happened while nothing was disturbed
	callsBegun     int
	calmCalls      map[processKey]int // since something has changed, and after the disturbances

	// What is known of it.
	story           []told // nil unless telling
	telling         bool
	failed          *failure
	accepted        []acceptance
	known           map[acceptance]bool // those of them that have happened
	over            bool                // the outcome is known
	goroutinesEnded bool
}

// event is something that happens at its time. Events of one time happen in the order of their labels,
// because goroutines that run at the same time may add them in any order.
type event struct {
	at    time.Time
	label string
	of    *Process // nothing happens if it has crashed
	do    func()
}

// These begin the labels of what comes before the steps of the same moment, for all names of objects and
// keys.
const (
	ofCaches    = "\x00" // what caches show
	afterCaches = "\x01" // what other programs do
)

func newSim(d decider, telling bool) *sim {
	now := time.Now()
	return &sim{began: now, lastEvent: now, lastChange: now, wake: make(chan struct{}, 1), decider: d,
		telling: telling, known: make(map[acceptance]bool), calmCalls: make(map[processKey]int),
		afterEvents: func() {}}
}

// after lets do happen after d. Its label is for the order of events that happen at the same time.
func (s *sim) after(d time.Duration, label string, of *Process, do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addLocked(time.Now().Add(d), label, of, do)
}

func (s *sim) addLocked(at time.Time, label string, of *Process, do func()) {
	s.events = append(s.events, &event{at, label, of, do})
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// next takes the next event if its time has come, and otherwise returns how long it is until then: -1 without
// events.
func (s *sim) next() (*event, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.events) == 0 {
		return nil, -1
	}
	e := slices.MinFunc(s.events, func(a, b *event) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.label, b.label))
	})
	if d := time.Until(e.at); d > 0 {
		return nil, d
	}
	i := slices.Index(s.events, e)
	s.events = slices.Delete(s.events, i, i+1) // Events with equal times and labels stay in their order.
	return e, 0
}

// failRun ends the run, unless the failure is accepted and the run can continue as it would without it. The
// first failure counts.
func (s *sim) failRun(kind, format string, args ...any) {
	f := &failure{kind: kind, text: fmt.Sprintf(format, args...)}
	s.mu.Lock()
	canGoOn := kind == "check" || kind == "fails" || strings.HasPrefix(kind, "always ")
	if known := f.acceptedBy(s.accepted); canGoOn && known != nil {
		s.known[known[0]] = true
		s.mu.Unlock()
		return
	}
	if s.failed == nil {
		s.failed = f
	}
	s.mu.Unlock()
	s.after(0, "", nil, func() {}) // Wakes drive.
}

// disturb says whether the next site of a kind and name is disturbed, and notes for how long. What calls did
// before says nothing about those that follow. The caller locks.
func (s *sim) disturb(kind, name string) time.Duration {
	by := s.decide(kind, name)
	if by > 0 && kind != sometime {
		clear(s.calmCalls)
		// A step that is slow takes the time of a step as well.
		if until := time.Now().Add(by + stepTime); until.After(s.disturbedUntil) {
			s.disturbedUntil = until
		}
	}
	return by
}

// isCalm reports whether no disturbance lasts. The caller locks.
func (s *sim) isCalm() bool { return time.Now().After(s.disturbedUntil) }

// changed notes that the truth has changed, by that many writes of processes. Other programs react.
func (s *sim) changed(writes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteChangeLocked()
	if s.isCalm() {
		s.writes += writes
	}
	for _, r := range s.reactions {
		s.reactLocked(r)
	}
}

// noteChangeLocked notes that the truth, or what a process knows of it, has changed.
func (s *sim) noteChangeLocked() {
	clear(s.calmCalls)
	s.changes.Add(1)
	s.lastChange = time.Now()
}

// nextVersion is called when a world has changed.
func (s *sim) nextVersion() int64 {
	s.changed(0)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	return s.version
}

// How long a run may be. Each change in byScript allows a hundredth more, because more objects take more
// writes. What Others do allows nothing more: it may never end.
const (
	maxSteps  = 20_000
	maxWrites = 1000 // of the truth, by processes
)

// countStep counts an event, and fails a run that takes too long.
func (s *sim) countStep() {
	s.steps++
	s.mu.Lock()
	defer s.mu.Unlock()
	mayStep, mayWrite := maxSteps+s.byScript*maxSteps/100, maxWrites+s.byScript*maxWrites/100
	// Steps during a disturbance count a tenth: a stale cache may cause many.
	if s.isCalm() {
		s.calmSteps++
	}
	tooLong := func(after int, what, still string) {
		took := time.Since(s.began).Round(time.Millisecond)
		s.failed = &failure{kind: "rest", text: fmt.Sprintf("it never comes to rest: after %d %s in %v it still %s",
			after, what, took, still)}
	}
	switch {
	case s.failed != nil:
	case s.writes > mayWrite:
		tooLong(mayWrite, "writes", "writes")
	case s.calmSteps > mayStep:
		tooLong(mayStep, "steps", "runs")
	case s.steps > 10*mayStep:
		tooLong(10*mayStep, "steps", "runs")
	}
}

func (s *sim) hasFailed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed != nil
}

// drive lets events happen until the run has failed, or resting reports that nothing will happen any more. It
// is asked when there are no events, with the time since the last one.
func (s *sim) drive(resting func(quiet time.Duration) bool) {
	for {
		synctest.Wait()
		s.afterEvents()
		select {
		case <-s.wake:
		default:
		}
		e, d := s.next()
		switch {
		case e != nil:
			if s.countStep(); s.hasFailed() {
				return
			}
			if e.of == nil || !e.of.isDead() {
				s.lastEvent = time.Now()
				s.noteMoment()
				e.do()
			}
			continue
		case d < 0:
			if resting(time.Since(s.lastEvent)) && !s.doAtRest() || s.hasFailed() {
				return
			}
			d = max(10*time.Second, time.Since(s.lastEvent)/8) // A key may wait for months.
		}
		timer := time.NewTimer(d)
		select {
		case <-s.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}
