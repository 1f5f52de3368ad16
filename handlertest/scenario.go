package handlertest

import (
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// Scenario is what is tested: a program, its world, and what others do meanwhile. The function of Converges,
// which is called once for each run, sets its fields. Start is required. The zero values of all other fields
// make sense.
type Scenario[K comparable] struct {
	// Start is called whenever the process starts, and returns its handler, which a [worker.Pool] runs over a
	// queue. What the handler remembers must be made here: a crash loses it. When Start has returned, the
	// keys of all that the caches have listed are added.
	Start func(p *Process) worker.Handler[K]
	// Options are the pool's options. Drain, CancelGrace and KeepQueue are ignored. Unless set, Workers are 2,
	// and nothing is logged. With MaxRetries, calls do not fail by themselves: too many in a row would
	// give a key up.
	Options worker.Options[K]
	// Replicas is how many processes run at once. Each has its own memory, caches and queue. Zero means 1.
	Replicas int
	// Measure returns what must be equal in all runs, read at the end of each: usually a part of the truth.
	// Leave out what may differ: times (also virtual ones, such as a condition's), made-up names, counters of
	// tries. Values are compared by [reflect.DeepEqual]. Nil means the values of all objects of all worlds,
	// which also are equal if their texts are.
	Measure func() any
	// Settle is how long nothing must change, and no disturbance last, until a run ends. A key that still comes
	// back by itself must also have come twice since. If something outside the Worlds becomes ready by time,
	// set Settle longer than that, or let At make it ready. Zero means 10 s.
	Settle time.Duration
	// Runs is how many runs there are with one disturbance, and how many under random schedules, each at most.
	// It is for programs whose runs take long. Zero means 400 and 1,000.
	Runs int

	run *run[K]
}

// At calls do, in the name of somebody else, who changes a [World] for example, after that much virtual time
// since the run began.
func (s *Scenario[K]) At(after time.Duration, do func()) {
	s.run.sim.after(after-time.Since(s.run.sim.began), "", nil, s.run.sim.counted(do))
}

// Sometime calls do once, in the name of somebody else, at a time that differs from run to run, as when a
// user deletes something. The undisturbed run calls it when all else rests. Then there is a run for each of
// the first moments at which something happened in that one (Runs is the limit), and it comes early or late
// in the random runs. It must be possible at any time since the run began, and the outcome must be the same
// whenever it happens. What names it in the story and the schedule.
func (s *Scenario[K]) Sometime(what string, do func()) {
	m := s.run.sim
	tell := m.counted(func() {
		m.tellOther("%s", what)
		do()
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	if after := m.disturb(sometime, what); after > 0 {
		m.addLocked(m.began.Add(after), "", nil, tell)
	} else {
		m.atRest = append(m.atRest, tell)
	}
}

// Others declares a program beside the tested one, such as the controller that completes Jobs: react
// is called, in the name of others, 5 ms after the truth has changed, sometimes later, and once for all that
// has changed since its last call. It looks at the truth and does what that program would do. When nothing is
// left to do it must change nothing, or the run never comes to rest. The name is for the story.
func (s *Scenario[K]) Others(name string, react func()) {
	m := s.run.sim
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &reaction{name: name, do: react}
	m.reactions = append(m.reactions, r)
	m.reactLocked(r)
}

// Changed tells the run that somebody else has changed a world of the program's own. A [World] does so
// itself.
func (s *Scenario[K]) Changed() { s.run.sim.changed(0) }

// Always declares what must hold at each moment: holds is called after every event of a run, and a run in
// which it returns an error fails. It must not take time. The name is for the report.
func (s *Scenario[K]) Always(name string, holds func() error) {
	s.run.always = append(s.run.always, invariant{name, holds})
}

// Check declares what must hold at the end of each run, also the undisturbed one: a run in which check
// returns an error fails. Converges otherwise only compares outcomes, and finds no mistake that happens in
// every run.
func (s *Scenario[K]) Check(check func() error) {
	s.run.checks = append(s.run.checks, check)
}

// Without excludes kinds of disturbances: those that the handler need not survive, or by which a known
// mistake is found again and again.
func (s *Scenario[K]) Without(faults ...Fault) {
	s.run.sim.mu.Lock()
	defer s.run.sim.mu.Unlock()
	for _, f := range faults {
		s.run.sim.without |= f
	}
}

// Accept declares that a failure is known: a run whose report says text passes. If an outcome differs in
// several lines, each must be accepted. So one finding does not hide the next one. The reason says why it may
// stay, and is logged with the number of runs. The undisturbed run may fail so in a Check, in what Always
// holds, with keys that still fail, and with goroutines that are left.
func (s *Scenario[K]) Accept(text, reason string) {
	if text == "" || reason == "" {
		panic("handlertest: Accept needs a text that a report has, and a reason")
	}
	m := s.run.sim
	m.mu.Lock()
	defer m.mu.Unlock()
	m.accepted = append(m.accepted, acceptance{text, reason})
}

// Tell adds a line to the story, for a world of the program's own: what somebody else does to it. It begins
// with the name of the program that Others has declared, if that is who does it, and with "somebody" if not.
func (s *Scenario[K]) Tell(format string, args ...any) { s.run.sim.tellOther(format, args...) }

// QueueOf returns the queue of a process. It is for what adds keys beside the
// caches of Worlds: a handler that adds others, or the events of a world of the program's own.
func (s *Scenario[K]) QueueOf(p *Process) workqueue.TypedRateLimitingInterface[K] {
	for _, m := range s.run.members {
		if m != nil && m.Process == p {
			return m.queue
		}
	}
	panic("handlertest: QueueOf needs the Process that Start has got")
}
