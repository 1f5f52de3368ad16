package handlertest

import (
	"cmp"
	"fmt"
	"reflect"
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
	steps atomic.Int64  // how many events have happened
	moved time.Time     // when the last one was, for drive

	mu sync.Mutex // guards what follows; no foreign code runs under it
	decider
	events  []*event
	version int64 // of the last change of any world
	writes  int
	made    int // objects that others have made
	counted int // the events that happened while nothing was disturbed
	// disturbedUntil is when the last disturbance so far ends.
	disturbedUntil time.Time
	reactions      []*reaction
	changed        time.Time   // when the truth, or what a cache shows of it, changed last
	calls          map[any]int // the calls of each key since then
	// callsSinceDisturbed are those of calls since the last disturbance of a call.
	callsSinceDisturbed map[any]int
	story               []told // nil unless telling
	telling             bool
	failed              *failure
	accepted            []acceptance
	known               map[acceptance]bool // those of them that have happened
	over                bool                // the outcome is known
	buried              bool                // and the goroutines have ended
	called              int                 // how many calls of handlers have begun
	atRest              []func()
	// of events, since the run began, until the first of atRest is called; for drive
	moments []time.Duration

	others      chan struct{} // closed when what asOthers calls returns; nil if it calls nothing; guarded by mu
	measuring   atomic.Bool   // Measure runs
	afterEvents func()        // checks invariants
}

// reaction is a program beside the tested one. See [Scenario.Others].
type reaction struct {
	name    string
	do      func()
	pending bool // It will be called. Guarded by the sim's mu.
}

// event is something that happens at its time. Events of one time happen in the order of their labels,
// because goroutines that run at the same time may add them in any order.
type event struct {
	at    time.Time
	label string
	of    *Process // nothing happens if it has crashed
	do    func()
}

// first begins the labels of what caches show: it comes before the steps of the same moment, for all names of
// objects and keys.
const first = "\x00"

func newSim(d decider, tell bool) *sim {
	now := time.Now()
	return &sim{began: now, moved: now, changed: now, wake: make(chan struct{}, 1), decider: d, telling: tell,
		known: make(map[acceptance]bool), calls: make(map[any]int), callsSinceDisturbed: make(map[any]int),
		afterEvents: func() {}}
}

// bubbleYears is more virtual time than a run ever takes. A bubble's clock starts in the year 2000, so a
// longer time means that the caller is outside.
const bubbleYears = 10 * 365 * 24 * time.Hour

// textOf returns the text of a key, for the story and the order of events. A struct that embeds a type with a
// method String also has that method, which leaves out the fields beside: their texts follow.
func textOf(key any) string {
	if _, ok := key.(fmt.Stringer); ok {
		v := reflect.ValueOf(key)
		for i := 0; v.Kind() == reflect.Struct && i < v.NumField(); i++ {
			if f := v.Type().Field(i); f.Anonymous && f.Type.Implements(reflect.TypeFor[fmt.Stringer]()) {
				var fields []string
				for i := range v.NumField() {
					fields = append(fields, fmt.Sprint(v.Field(i)))
				}
				return strings.Join(fields, " ")
			}
		}
	}
	return fmt.Sprint(key)
}

// check is called by everything that a test may call at the wrong time or place.
func (s *sim) check(what string) {
	if time.Since(s.began) > bubbleYears {
		panic(fmt.Sprintf("handlertest: %s is used outside the bubble of its run: make and use it in the "+
			"function of Converges", what))
	}
	s.mu.Lock()
	over := s.over
	s.mu.Unlock()
	if over {
		panic(fmt.Sprintf("handlertest: %s is used after its run: each run makes a new one, in the function of "+
			"Converges", what))
	}
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

// asOthers calls a function of the scenario in the goroutine of drive.
func (s *sim) asOthers(do func()) {
	returned := make(chan struct{})
	set := func(others chan struct{}) {
		s.mu.Lock()
		s.others = others
		s.mu.Unlock()
	}
	set(returned)
	defer func() {
		set(nil)
		close(returned)
	}()
	do()
}

// awaitOthers returns when what asOthers calls has returned, and false if it waits: then no goroutine of the
// bubble runs, and time passes. It most likely waits for the caller, which is a call of a process.
func (s *sim) awaitOthers() bool {
	s.mu.Lock()
	others := s.others
	s.mu.Unlock()
	if others == nil {
		return true
	}
	select {
	case <-others:
		return true
	case <-time.After(1):
		return false
	}
}

// fail ends the run. The first failure counts.
func (s *sim) fail(kind, format string, args ...any) {
	f := &failure{kind: kind, text: fmt.Sprintf(format, args...)}
	s.mu.Lock()
	// After these a run continues as it would without them.
	canGoOn := kind == "check" || kind == "fails" || strings.HasPrefix(kind, "always ")
	if known := f.acceptedBy(s.accepted); canGoOn && known != nil {
		s.known[known[0]] = true
	} else if s.failed == nil {
		s.failed = f
	}
	s.mu.Unlock()
	s.after(0, "", nil, func() {}) // Wakes drive.
}

// decide says whether the next site of a kind and name is disturbed. What disturbed calls did says nothing
// about the undisturbed ones that follow. The caller locks.
func (s *sim) decide(kind, name string) time.Duration {
	by := s.decider.decide(kind, name)
	if until := time.Now().Add(by); by > 0 && kind != sometime && until.After(s.disturbedUntil) {
		s.disturbedUntil = until
	}
	if by > 0 && faultOf[kind]&(Slow|Leases|failedCalls) != 0 {
		clear(s.callsSinceDisturbed)
	}
	return by
}

// change notes that the truth, or what a cache shows of it, has changed: by that many writes of processes.
func (s *sim) change(writes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.calls)
	clear(s.callsSinceDisturbed)
	s.changed = time.Now()
	if s.changed.After(s.disturbedUntil) {
		s.writes += writes
	}
	for _, r := range s.reactions {
		s.reactLocked(r)
	}
}

// reactTime is how long another program takes to react to a change.
const reactTime = 5 * stepTime

// reactLocked lets a program beside the tested one react, perhaps later.
func (s *sim) reactLocked(r *reaction) {
	if r.pending {
		return
	}
	r.pending = true
	by := s.decide(late, r.name)
	if by > 0 {
		s.tellSoonLocked(nil, "", r.name, "%s: reacts %v later", r.name, by)
	}
	s.addLocked(time.Now().Add(reactTime+by), r.name, nil, func() {
		s.mu.Lock()
		r.pending = false
		s.mu.Unlock()
		s.asOthers(r.do)
	})
}

// addOther notes that others have made an object: more objects take more writes.
func (s *sim) addOther() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made++
}

// nextVersion is called when a world has changed.
func (s *sim) nextVersion() int64 {
	s.change(0)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	return s.version
}

// ended reports whether the run has failed, or takes too long.
func (s *sim) ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	took := time.Since(s.began).Round(time.Millisecond)
	writes, steps := maxWrites+s.made*maxWrites/100, maxSteps+s.made*maxSteps/100
	// What a handler does while its cache shows what no longer is says nothing, unless that never ends.
	if s.steps.Load() > int64(10*steps) {
		s.counted = steps + 1
	} else if time.Now().After(s.disturbedUntil) {
		s.counted++
	}
	switch {
	case s.failed != nil:
	case s.writes > writes:
		s.failed = &failure{kind: "rest",
			text: fmt.Sprintf("it never comes to rest: after %d writes in %v it still writes", writes, took)}
	case s.counted > steps:
		s.failed = &failure{kind: "rest",
			text: fmt.Sprintf("it never comes to rest: after %d steps in %v it still runs", steps, took)}
	}
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
			if s.steps.Add(1); s.ended() {
				return
			}
			if e.of == nil || !e.of.isDead() {
				s.moved = time.Now()
				s.noteMoment()
				e.do()
			}
			continue
		case d < 0:
			if resting(time.Since(s.moved)) && !s.goOn() || s.ended() {
				return
			}
			d = max(10*time.Second, time.Since(s.moved)/8) // A key may wait for months.
		}
		timer := time.NewTimer(d)
		select {
		case <-s.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// noteMoment notes when an event happens.
func (s *sim) noteMoment() {
	at := time.Since(s.began)
	if len(s.atRest) > 0 && at > 0 && (len(s.moments) == 0 || s.moments[len(s.moments)-1] != at) {
		s.moments = append(s.moments, at)
	}
}

// goOn lets somebody do what is to be done when all else rests. It reports whether there was something.
func (s *sim) goOn() bool {
	s.mu.Lock()
	if len(s.atRest) == 0 || s.failed != nil {
		s.mu.Unlock()
		return false
	}
	do := s.atRest[0]
	s.atRest = s.atRest[1:]
	s.mu.Unlock()
	s.change(0)
	s.moved = time.Now()
	do()
	return true
}
