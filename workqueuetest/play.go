package workqueuetest

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
)

func scriptCases() []testCase {
	var all []testCase
	for _, s := range scripts {
		all = append(all, bubbled(s.name, s.promise, s.try))
	}
	return all
}

func (s script) try(r *run) {
	if strings.HasPrefix(s.name, "Shared") && !r.suite.Shared {
		r.skip("the queue is not shared")
	}
	parts := strings.Split(s.steps, " | ")
	_, delays := r.queue(Config[string]{}).(delaying)
	for _, steps := range parts {
		needs := func(word string) bool { return len(parts) > 1 && strings.Contains(steps, word) }
		if needs("after") && !delays || needs("metrics") && r.suite.NoMetrics {
			continue
		}
		for i, e := range enders(r.queue(Config[string]{})) {
			if i == 0 || strings.Contains(steps, "end") {
				r.play(steps, e)
			}
		}
	}
}

// play plays steps on a new queue.
func (r *run) play(steps string, e ender) {
	p := &player{run: r, limiter: &scriptedLimiter{}, metrics: &testkit.Recorder{}, ender: e}
	p.model.shared, p.model.oneEntry = r.suite.Shared, r.suite.OneEntry
	c := Config[string]{RateLimiter: p.limiter}
	uses := func(word string) bool { return strings.Contains(steps, word) }
	if uses("idle") {
		synctest.Wait() // so that other queues have started
		p.before = testkit.Goroutines()
	}
	if named := uses("metrics"); named || uses("unnamed") {
		if r.suite.NoMetrics {
			r.lacks("metrics")
		}
		c.MetricsProvider = p.metrics
		if named {
			c.Name = queueName
		}
	}
	p.q = r.queue(c)
	if uses("retry") || uses("forget") {
		need[limiting](r, p.q)
	}
	if uses("after") {
		need[delaying](r, p.q)
	}
	if uses("canceled") || uses("deadline") || uses("giveup") {
		need[extended](r, p.q)
	}
	synctest.Wait() // client-go's ticker starts in a goroutine of its own.
	for step := range strings.SplitSeq(steps, "; ") {
		p.when = strings.TrimPrefix(p.when+"; "+step, "; ")
		words := strings.Fields(step)
		p.step(words[0], words[1:])
		p.compare()
	}
	p.when += ", an hour later"
	p.pass(time.Hour)
	p.compare()
}

// player plays a script on a queue, and does the same to a model.
type player struct {
	*run
	q       fifo
	model   slowQueue
	limiter *scriptedLimiter
	asked   []string // what the limiter must have been asked
	metrics *testkit.Recorder
	before  testkit.GoroutineSet // those without the queue
	ender   ender
	ends    []*call[error] // the calls of enders that wait
	getters []*call[got]   // the calls of Get and GetContext that wait
	when    string         // for messages: the steps until now
}

// compare asserts that the queue looks as the model does, and that those calls have returned that can.
func (p *player) compare() {
	synctest.Wait()
	if !slices.Equal(p.limiter.asked, p.asked) {
		p.Fatalf("%s: the limiter was asked %q, want %q", p.when, p.limiter.asked, p.asked)
	}
	p.serve()
	p.wantLen(p.q, p.when, len(p.model.queued))
	if down := p.q.ShuttingDown(); down != p.model.down {
		p.Fatalf("%s: ShuttingDown() = %v, want %v", p.when, down, p.model.down)
	}
	if p.model.down && p.model.empty() {
		p.wantShutDown(p.q, p.when)
	}
	p.wantStats()
	if len(p.metrics.Made()) > 0 {
		p.metrics.Want(p, p.when, testkit.Values{"adds": p.model.stats.Adds, "depth": p.model.dirty.len()})
	}
	if p.ender.drain && !p.model.drained() {
		for _, c := range p.ends {
			c.mustBlock(p.when)
		}
	} else {
		p.wantEnded(nil)
	}
	p.check(p.q)
}

// wantStats checks Stats, if the queue has it.
func (p *player) wantStats() {
	e, ok := p.q.(extended)
	if !ok {
		return
	}
	m, st := p.model, e.Stats()
	// The others depend on metrics.
	st.Name, st.OldestQueued, st.LongestRunning, st.UnfinishedWork = "", 0, 0, 0
	st.Latency, st.WorkDuration, st.ByPriority = nil, nil, nil
	want := m.stats
	want.Queued, want.Processing, want.Waiting = len(m.queued), m.held.len(), len(m.waiting)
	want.Again, want.ShuttingDown = m.dirty.len()-len(m.queued), m.down
	if p.suite.PartialStats {
		st, want = workqueue.Stats{Queued: st.Queued}, workqueue.Stats{Queued: want.Queued}
	}
	if st != want {
		p.Fatalf("%s: Stats() = %+v, want %+v", p.when, st, want)
	}
}

func (p *player) step(kind string, words []string) {
	switch kind {
	case "add":
		for _, key := range words {
			p.q.Add(key)
			p.model.add(key)
		}
	case "after":
		d := must(time.ParseDuration(words[1]))
		p.q.(delaying).AddAfter(words[0], d)
		p.model.addAfter(words[0], p.clock.Now(), d)
	case "retry":
		p.retry(words[0], must(time.ParseDuration(words[1])))
	case "panic":
		p.limiter.delays = nil
		testkit.WantPanic(p, p.when, func() { p.q.(limiting).AddRateLimited(words[0]) }, limiterPanic)
	case "forget":
		p.q.(limiting).Forget(words[0])
		p.asked = append(p.asked, "Forget "+words[0])
	case "requeues":
		if n := p.q.(limiting).NumRequeues(words[0]); n != limiterRequeues {
			p.Fatalf("%s: NumRequeues() = %d, and the limiter says %d", p.when, n, limiterRequeues)
		}
		p.asked = append(p.asked, "NumRequeues "+words[0])
	case "get":
		if p.model.queued != "" {
			p.hold(p.model.queued[:1])
		}
	case "canceled":
		for _, ctx := range doneContexts() {
			g := p.startGetContext(ctx, p.q.(extended)).mustReturn(p.when)
			down := p.model.down && g.err == workqueue.ErrShutDown
			if g.key != "" || !down && !errors.Is(g.err, ctx.Err()) {
				p.Fatalf("%s: GetContext() = %q, %v, want no key and %v", p.when, g.key, g.err, ctx.Err())
			}
		}
	case "deadline":
		p.untilDeadline(words[0], func(ctx context.Context) *call[got] {
			return p.startGetContext(ctx, p.q.(extended))
		})
	case "hold":
		p.hold(words...)
	case "done":
		p.done(words...)
	case "finish":
		if held := p.model.held.keys(); len(held) > 0 {
			p.done(held[must(strconv.Atoi(words[0]))%len(held)])
		}
	case "again":
		if p.suite.OneEntry {
			words = nil
		}
		fallthrough
	case "take":
		p.hold(words...)
		p.wantLen(p.q, p.when, 0)
		p.done(words...)
	case "wait":
		for range must(strconv.Atoi(words[0])) {
			p.getters = append(p.getters, p.startGet(p.q))
			if e, ok := p.q.(extended); ok {
				p.getters = append(p.getters, p.startGetContext(context.Background(), e))
			}
		}
	case "pass":
		n := p.q.Len()
		p.pass(must(time.ParseDuration(words[0])) - 1)
		p.wantLen(p.q, p.when+" but for a nanosecond", n)
		p.pass(1)
	case "jump":
		d := must(time.ParseDuration(words[0]))
		if d < 0 {
			p.needFakeClock()
		}
		p.pass(d)
	case "sleep":
		p.needFakeClock()
		time.Sleep(must(time.ParseDuration(words[0])))
	case "shutdown":
		p.q.ShutDown()
		p.model.shutDown()
		var want error
		if p.ender.name == "ShutDownContext" {
			want = workqueue.ErrShutDown
		}
		p.wantEnded(want)
	case "end":
		p.end(p.ender)
	case "endall":
		for _, e := range enders(p.q) {
			p.end(e)
		}
	case "giveup":
		shutDown := func(ctx context.Context) *call[got] {
			return start(p.run, "ShutDownContext", func() got { return got{err: p.q.(extended).ShutDownContext(ctx)} })
		}
		if len(words) > 0 {
			p.untilDeadline(words[0], shutDown)
			break
		}
		p.model.shutDown()
		for _, ctx := range doneContexts() {
			want := ctx.Err()
			if p.model.drained() {
				want = nil
			}
			if g := shutDown(ctx).mustReturn(p.when); g.err != want {
				p.Fatalf("%s: ShutDownContext() = %v, want %v", p.when, g.err, want)
			}
		}
	case "idle":
		// Over a queue that has no ShutDownContext, ours waits in a goroutine of its own.
		if !p.suite.PartialStats || p.ender.name != "ShutDownContext" || len(p.ends) == 0 {
			p.before.WantMore(p, p.when+", callers apart", len(p.ends)+len(p.getters))
		}
	case "notimer":
		if p.needFakeClock().HasWaiters() {
			p.Fatalf("%s: the queue has a timer", p.when)
		}
	case "metrics":
		p.wantMetrics(words)
	case "unnamed":
		if made := p.metrics.Made(); len(made) > 0 {
			p.Fatalf("%s: metrics were made: %q", p.when, made)
		}
	default:
		panic("no such step: " + kind)
	}
}

// retry calls AddRateLimited. If the queue merges retries or is shut down, it need not ask the limiter.
func (p *player) retry(key string, d time.Duration) {
	p.limiter.delays = []time.Duration{d}
	p.q.(limiting).AddRateLimited(key)
	switch {
	case len(p.limiter.delays) == 0 || !p.model.down && !(p.suite.MergesRetries && p.model.waits(key)):
		p.asked = append(p.asked, "When "+key)
		p.model.addAfter(key, p.clock.Now(), d)
	case !p.model.down:
		p.model.stats.Retries++
	}
}

// hold lets a worker get keys, which must be the first in line.
func (p *player) hold(keys ...string) {
	for _, want := range keys {
		p.run.hold(p.q, want)
		if key := p.model.get(); key != want {
			p.Fatalf("%s: got key %s, and the model %s", p.when, want, key)
		}
	}
}

func (p *player) done(keys ...string) {
	for _, key := range keys {
		p.q.Done(key)
		p.model.done(key)
	}
}

// doneContexts returns a context that is canceled, and one whose deadline has passed.
func doneContexts() []context.Context {
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	expired, cancel := context.WithTimeout(context.Background(), 0)
	cancel()
	return []context.Context{canceled, expired}
}

// untilDeadline asserts that a call waits until the deadline of its context, and then gives up.
func (p *player) untilDeadline(after string, start func(context.Context) *call[got]) {
	d := must(time.ParseDuration(after))
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	c := start(ctx)
	time.Sleep(d - 1)
	c.mustBlock(p.when + ", before its deadline")
	time.Sleep(1)
	if g := c.mustReturn(p.when + ", after its deadline"); g.key != "" || g.err != context.DeadlineExceeded {
		p.Fatalf("%s: %s = %q, %v, want no key and DeadlineExceeded", p.when, c.what, g.key, g.err)
	}
	p.model.pass(p.clock.Now())
}

func (p *player) pass(d time.Duration) {
	p.run.pass(d)
	p.model.pass(p.clock.Now())
}

// serve asserts that of the getters as many have returned as there are keys for them or, after shutdown, all.
func (p *player) serve() {
	waiting, want, keys := p.getters, "", []string{}
	p.getters = nil
	for range min(len(waiting), len(p.model.queued)) {
		want += p.model.get()
	}
	for _, c := range waiting {
		if !p.model.down && !c.Returned() {
			p.getters = append(p.getters, c)
			continue
		}
		g := c.mustReturn(p.when)
		if g.err != nil && (g.err != workqueue.ErrShutDown || !p.model.down || g.key != "") {
			p.Fatalf("%s: %s = %q, %v", p.when, c.what, g.key, g.err)
		}
		keys = append(keys, g.key)
	}
	slices.Sort(keys)
	if got := strings.Join(keys, ""); got != want {
		p.Fatalf("%s: those who wait got keys %q, want %q", p.when, got, want)
	}
}

func (p *player) end(e ender) {
	p.ends = append(p.ends, e.start(p.run, p.q))
	p.model.shutDown()
}

// wantEnded asserts that the calls that shut down have returned, with that error.
func (p *player) wantEnded(want error) {
	for _, c := range p.ends {
		if err := c.mustReturn(p.when); err != want {
			p.Fatalf("%s: %s = %v, want %v", p.when, c.what, err, want)
		}
	}
	p.ends = nil
}

const queueName = "conformance"

func (p *player) wantMetrics(words []string) {
	want := testkit.Values{"depth": 0, "adds": 0, "latency": 0, "work": 0, "unfinished": 0, "longest": 0, "retries": 0}
	for _, word := range words {
		metric, value, _ := strings.Cut(word, "=")
		if want[metric] = value; metric == "latency" || metric == "work" {
			var seconds []float64
			for s := range strings.SplitSeq(value, ",") {
				seconds = append(seconds, float64(must(strconv.Atoi(s))))
			}
			want[metric] = seconds
		}
	}
	p.metrics.Want(p, p.when, want)
	for _, made := range p.metrics.Made() {
		if !strings.HasSuffix(made, " of "+queueName) {
			p.Fatalf("metric %q was made, want the name %q", made, queueName)
		}
	}
}

// wantShutDown asserts that q is shut down and has nothing queued: no getter blocks, and none gets a key.
func (r *run) wantShutDown(q fifo, when string) {
	if !q.ShuttingDown() {
		r.Fatalf("%s: ShuttingDown() = false", when)
	}
	if g := r.startGet(q).mustReturn(when); g.err == nil || g.key != "" {
		r.Fatalf("%s: Get() = %q, %v, want no key, and shutdown", when, g.key, g.err)
	}
	if e, ok := q.(extended); ok {
		g := r.startGetContext(context.Background(), e).mustReturn(when)
		if g.err != workqueue.ErrShutDown || g.key != "" {
			r.Fatalf("%s: GetContext() = %q, %v, want no key, and ErrShutDown", when, g.key, g.err)
		}
	}
}

// ender is one of the ways to shut a queue down.
type ender struct {
	name  string
	drain bool // whether it waits for the keys
	end   func(q fifo) error
}

// enders returns the ways to shut q down.
func enders(q fifo) []ender {
	all := []ender{
		{"ShutDown", false, func(q fifo) error { q.ShutDown(); return nil }},
		{"ShutDownWithDrain", true, func(q fifo) error { q.ShutDownWithDrain(); return nil }},
	}
	if _, ok := q.(extended); ok {
		all = append(all, ender{"ShutDownContext", true, func(q fifo) error {
			return q.(extended).ShutDownContext(context.Background())
		}})
	}
	return all
}

func (e ender) start(r *run, q fifo) *call[error] {
	return start(r, e.name, func() error { return e.end(q) })
}

// scriptedLimiter returns delays, and records its calls. It panics if no delay is left.
type scriptedLimiter struct {
	asked  []string
	delays []time.Duration
}

const (
	limiterPanic    = "no delay is left"
	limiterRequeues = 42
)

func (l *scriptedLimiter) note(what string) { l.asked = append(l.asked, what) }

func (l *scriptedLimiter) When(item string) time.Duration {
	if len(l.delays) == 0 {
		panic(limiterPanic)
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

// must is for what scripts say.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
