package handlertest

import (
	"cmp"
	"fmt"
	"time"
)

// Others are all but the processes of the tested program: what happens in their name.

// tellOther adds a line to the story: what another program does, while it reacts, or somebody.
func (s *sim) tellOther(format string, args ...any) {
	if s.telling {
		s.mu.Lock()
		who := cmp.Or(s.reacting, "somebody")
		s.mu.Unlock()
		s.tell("", "%s: %s", who, fmt.Sprintf(format, args...))
	}
}

// reaction is a program beside the tested one. See [Scenario.Others].
type reaction struct {
	name    string
	do      func()
	pending bool // It will be called. Guarded by the sim's mu.
}

// reactTime is how long another program takes to react to a change.
const reactTime = 5 * stepTime

// reactLocked lets a program beside the tested one react, perhaps later.
func (s *sim) reactLocked(r *reaction) {
	if r.pending || !s.begun {
		return
	}
	r.pending = true
	by := s.disturb(late, r.name)
	if by > 0 {
		s.tellSoonLocked(nil, "", r.name, "%s: reacts %v later", r.name, by)
	}
	s.addLocked(time.Now().Add(reactTime+by), afterCaches+r.name, nil, func() {
		s.mu.Lock()
		r.pending, s.reacting = false, r.name
		s.mu.Unlock()
		r.do()
		s.mu.Lock()
		s.reacting = ""
		s.mu.Unlock()
	})
}

// begin lets other programs look at what the scenario has declared.
func (s *sim) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun = true
	for _, r := range s.reactions {
		s.reactLocked(r)
	}
}

// counted is do, which allows more steps and writes by what it changes.
func (s *sim) counted(do func()) func() {
	return func() {
		before := s.changes.Load()
		do()
		s.byScript += int(s.changes.Load() - before)
	}
}

// noteMoment notes when an event happens.
func (s *sim) noteMoment() {
	at := time.Since(s.began)
	if len(s.atRest) > 0 && at > 0 && (len(s.moments) == 0 || s.moments[len(s.moments)-1] != at) {
		s.moments = append(s.moments, at)
	}
}

// doAtRest lets somebody do what is to be done when all else rests. It reports whether there was something.
func (s *sim) doAtRest() bool {
	s.mu.Lock()
	if len(s.atRest) == 0 || s.failed != nil {
		s.mu.Unlock()
		return false
	}
	do := s.atRest[0]
	s.atRest = s.atRest[1:]
	s.noteChangeLocked()
	s.mu.Unlock()
	s.lastEvent = time.Now()
	do()
	return true
}
