package workqueuetest

import (
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
)

func (s script) try(r *run) {
	if strings.HasPrefix(s.name, "Shared") && !r.suite.Shared {
		r.skip("the queue is not shared")
	}
	parts := strings.Split(s.steps, " | ")
	for _, steps := range parts {
		if r.suite.NoMetrics && (strings.Contains(steps, "metrics") || strings.Contains(steps, "unnamed")) &&
			!strings.Contains(steps, "added") {
			r.skip("the queue makes no metrics")
		}
		q := r.queue(Config[string]{})
		if what := r.missing(q, steps); what != "" {
			if _, named := r.suite.Lacks[what]; !named || len(parts) == 1 {
				r.lacks(what)
			}
			continue
		}
		for way := range enders(q) {
			if way == 0 || strings.Contains(steps, "end") {
				r.play(steps, way)
			}
		}
	}
}

// missing returns what q lacks that steps need.
func (r *run) missing(q fifo, steps string) string {
	uses := func(words ...string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(steps, word) })
	}
	_, delays := q.(delaying)
	_, limits := q.(limiting)
	_, extends := q.(extended)
	_, fails := q.(failing)
	switch {
	case uses("after") && !delays:
		return Delays
	case uses("retry", "forget") && !limits:
		return Limiter
	case uses("canceled", "deadline", "giveup", "added", "cause", "again?", "drop", "find", "onhold") &&
		!extends:
		return Extended
	case uses("fail") && !fails:
		return Failures
	}
	return ""
}

// play plays steps on a new queue. "end" stands for that one of its enders.
func (r *run) play(steps string, way int) {
	p := &player{run: r, limiter: &scriptedLimiter{}, metrics: &testkit.Recorder{}}
	p.model.shared, p.model.oneEntry = r.suite.Shared, r.suite.OneEntry
	p.model.placeOfAdd = r.suite.PlaceOfAdd
	c := Config[string]{RateLimiter: p.limiter}
	uses := func(word string) bool { return strings.Contains(steps, word) }
	if uses("idle") {
		synctest.Wait() // so that other queues have started
		p.before = testkit.Goroutines()
	}
	switch {
	case uses("added"), uses("timed"):
		c.MetricsProvider = testkit.Times{MetricsProvider: p.metrics}
	case uses("metrics"), uses("unnamed"):
		c.MetricsProvider = p.metrics
	}
	if c.MetricsProvider != nil && !uses("unnamed") {
		c.Name = queueName
	}
	p.q = r.queue(c)
	p.ender, p.drains = enders(p.q)[way], way > 0
	synctest.Wait() // client-go's ticker starts in a goroutine of its own.
	for step := range strings.SplitSeq(steps, "; ") {
		p.when = strings.TrimPrefix(p.when+"; "+step, "; ")
		words := strings.Fields(step)
		began := time.Now() // by the bubble's clock
		p.step(words[0], words[1:])
		if d := time.Since(began); d > 0 && !r.suite.Shared && !slices.Contains(letTimePass, words[0]) {
			p.Fatalf("%s: waits for %v", p.when, d)
		}
		p.compare()
	}
	p.when += ", an hour later"
	p.pass(time.Hour)
	p.compare()
}

// letTimePass are the steps that do. All others must not wait for the clock. (A shared queue may wait for its
// server.)
var letTimePass = []string{"pass", "jump", "sleep", "deadline", "giveup"}

// player plays a script on a queue, and does the same to a model.
type player struct {
	*run
	q       fifo
	model   slowQueue
	limiter *scriptedLimiter
	asked   []string // what the limiter must have been asked
	metrics *testkit.Recorder
	before  testkit.GoroutineSet // those without the queue
	ender   ender                // what "end" does
	drains  bool                 // it waits for keys
	ends    []*call[error]       // the calls of enders that wait
	getters []*call[got]         // the calls of Get and GetContext that wait
	when    string               // for messages: the steps until now
}

// compare asserts that the queue looks as the model does, and that those calls have returned that can.
func (p *player) compare() {
	synctest.Wait()
	if !slices.Equal(p.limiter.asked, p.asked) {
		p.Fatalf("%s: the limiter was asked %q, want %q", p.when, p.limiter.asked, p.asked)
	}
	if p.model.down && p.model.empty() {
		p.wait(1) // must not block
	}
	p.serve()
	p.wantLen(p.q, p.when, len(p.model.queued))
	if down := p.q.ShuttingDown(); down != p.model.down {
		p.Fatalf("%s: ShuttingDown() = %v, want %v", p.when, down, p.model.down)
	}
	p.wantStats()
	if len(p.metrics.Made()) > 0 {
		depth := len(p.model.queued) + p.model.again() // without keys on hold
		p.metrics.Want(p, p.when, testkit.Values{"adds": p.model.stats.Adds, "depth": depth})
	}
	if p.drains && !p.model.drained() {
		for _, c := range p.ends {
			c.mustBlock(p.when)
		}
	} else {
		p.wantEnded(nil)
	}
	p.check(p.q)
}

func (p *player) wantStats() {
	e, ok := p.q.(extended)
	if !ok {
		return
	}
	m, st := p.model, e.Stats()
	// The others depend on metrics.
	st.Name, st.OldestQueued, st.LongestRunning, st.UnfinishedWork = "", 0, 0, 0
	st.Latency, st.WorkDuration, st.ByPriority = nil, nil, nil
	st.Failing = 0 // See wantFailing.
	want := m.stats
	want.Queued, want.Processing, want.Waiting = len(m.queued), len(m.held), len(m.waiting)
	want.OnHold, want.Again, want.ShuttingDown = len(m.onHold), m.again(), m.down
	if p.suite.Shared && m.onHold != "" { // Its server does not know which keys are on hold.
		st.Again, want.Again = 0, 0
	}
	if m.dropping && m.held != "" { // A held key is dropped at once, or when it is Done.
		st.Again, st.Dropped, want.Again, want.Dropped = 0, 0, 0, 0
	}
	if p.suite.PartialStats {
		st, want = workqueue.Stats{Queued: st.Queued}, workqueue.Stats{Queued: want.Queued}
	}
	if st != want {
		p.Fatalf("%s: Stats() = %+v, want %+v", p.when, st, want)
	}
}

// scriptedLimiter returns delays, and records its calls. It panics if no delay is left.
type scriptedLimiter struct {
	asked  []string
	delays []time.Duration
}

const limiterRequeues = 42

func (l *scriptedLimiter) note(what string) { l.asked = append(l.asked, what) }

func (l *scriptedLimiter) When(item string) time.Duration {
	if len(l.delays) == 0 {
		panic("no delay is left")
	}
	l.note("When " + item)
	d := l.delays[0]
	l.delays = l.delays[1:]
	return d
}

func (l *scriptedLimiter) Forget(item string) { l.note("Forget " + item) }

func (l *scriptedLimiter) NumRequeues(item string) int {
	l.note("NumRequeues " + item)
	return limiterRequeues
}
