package workqueuetest

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"pgregory.net/rapid"
)

func modelCases() []testCase {
	return []testCase{
		unbubbled("Model", "For any sequence of calls, the queue does what the model does.",
			func(r *run) { r.tryModel(modelOptions{}) }),
		unbubbled("ModelWithShutDown", "For any sequence of calls before, during and after shutdown, the queue does what the model does.",
			func(r *run) { r.tryModel(modelOptions{shutDown: true}) }),
		unbubbled("ModelWithUnmatchedDone", "For any sequence of calls, also of Done for keys that no worker holds, the queue does what the model does.",
			func(r *run) { r.tryModel(modelOptions{unmatchedDone: true}) }),
		unbubbled("ModelWithTies", "For any sequence of calls, also with keys that are due at the same time, the queue does what the model does.",
			func(r *run) { r.tryModel(modelOptions{ties: true, shutDown: true}) }),
	}
}

// modelOptions add unusual calls to the sequences. With ties, keys are often due at the same time, and never
// otherwise.
type modelOptions struct{ shutDown, unmatchedDone, ties bool }

// op is one call, as data: rapid leaves out some and simplifies others, until the shortest sequence that still fails
// is left.
type op struct {
	kind string
	// key is the number of a key or, for Done, of one of the keys that are held.
	key int
	// d is how long AddAfter delays, or how much time passes.
	d time.Duration
}

func (o op) String() string {
	switch o.kind {
	case "pass":
		return fmt.Sprintf("pass %v", o.d)
	case "AddAfter":
		return fmt.Sprintf("AddAfter(%d, %v)", o.key, o.d)
	case "Add", "Done of any":
		return fmt.Sprintf("%s(%d)", o.kind, o.key)
	}
	return o.kind
}

// GoString makes rapid print the calls readably.
func (o op) GoString() string { return o.String() }

const modelKeys = 8

// kinds are the calls to draw. Frequent ones are listed more than once, and rapid prefers the first.
func (m modelOptions) kinds() []string {
	kinds := []string{"Add", "Get", "AddAfter", "Done", "pass", "Add", "Get", "Done", "Add", "Get canceled"}
	if m.unmatchedDone {
		kinds = append(kinds, "Done of any")
	}
	if m.ties {
		kinds = append(kinds, "AddAfter", "AddAfter", "AddAfter")
	}
	return kinds
}

func (m modelOptions) draw(t *rapid.T) []op {
	one := rapid.Custom(func(t *rapid.T) op {
		o := op{
			kind: rapid.SampledFrom(m.kinds()).Draw(t, "kind"),
			key:  rapid.IntRange(0, modelKeys-1).Draw(t, "key"),
		}
		switch {
		case o.kind == "AddAfter" && m.ties:
			o.d = rapid.SampledFrom([]time.Duration{10 * time.Second, 20 * time.Second}).Draw(t, "delay")
		case o.kind == "pass" && m.ties:
			o.d = 10 * time.Second
		case o.kind == "AddAfter":
			o.d = time.Duration(rapid.IntRange(-2, 20).Draw(t, "seconds")) * time.Second
		case o.kind == "pass":
			o.d = time.Duration(rapid.IntRange(-3, 15).Draw(t, "seconds")) * time.Second
		}
		return o
	})
	// A slice of slices, because rapid prefers slices that are close to their least length.
	ops := slices.Concat(rapid.SliceOfN(rapid.SliceOfN(one, 0, 12), 8, 16).Draw(t, "calls")...)
	if m.shutDown && rapid.Bool().Draw(t, "end") {
		ops = append(ops, op{kind: rapid.SampledFrom([]string{"ShutDown", "drain"}).Draw(t, "kind of end")})
		ops = append(ops, rapid.SliceOfN(one, 0, 30).Draw(t, "calls after it")...)
	}
	return ops
}

// tryModel draws sequences of calls, and lets rapid shrink one that fails.
func (r *run) tryModel(m modelOptions) {
	for range 3 { // times -rapid.checks, which is 100 by default
		rapid.Check(&rapidTB{run: r}, func(t *rapid.T) {
			ops := m.draw(t)
			sub := newRun(r.suite, r.t, !r.suite.IgnoresClock)
			at := -1
			sub.bubbled(func() { sub.playModel(m, ops, &at) })
			if o := sub.outcome(); len(o.failures) > 0 {
				t.Fatalf("after %v:\n%s", ops[:min(at+1, len(ops))], o)
			}
		})
	}
}

// playModel makes the calls on a queue and on the model, and keeps the index of the current call in at. Every second
// queue has metrics.
func (r *run) playModel(m modelOptions, ops []op, at *int) {
	p := &modelRun{run: r, model: newSlowQueue(r.suite.OneEntry)}
	var c Config[string]
	if !r.suite.NoMetrics && len(ops)%2 == 0 {
		p.metrics = &testkit.Recorder{}
		c.Name, c.MetricsProvider = queueName, p.metrics
	}
	p.q = r.queue(c)
	for i, o := range ops {
		*at = i
		if !m.ties && o.kind == "AddAfter" && o.d > 0 {
			o.d += time.Duration(i) * time.Microsecond
		}
		p.call(o)
		p.compare()
	}
}

// modelRun is a queue beside its model.
type modelRun struct {
	*run
	q       fifo
	model   *slowQueue
	metrics *testkit.Recorder // nil if the queue has none
	held    []int
}

// call makes a call on the queue and the model, unless it would block.
func (p *modelRun) call(o op) {
	key := strconv.Itoa(o.key)
	switch o.kind {
	case "Add":
		p.q.Add(key)
		p.model.add(o.key)
	case "Get":
		p.get()
	case "Get canceled":
		if e, ok := p.q.(extended); ok {
			if key, err := e.GetContext(canceled()); key != "" || err == nil {
				p.Fatalf("GetContext() of a done context = %q, %v", key, err)
			}
		}
	case "Done":
		if len(p.held) > 0 {
			n := o.key % len(p.held)
			p.q.Done(strconv.Itoa(p.held[n]))
			p.model.done(p.held[n])
			p.held = slices.Delete(p.held, n, n+1)
		}
	case "Done of any":
		p.q.Done(key)
		p.model.done(o.key)
		p.held = slices.DeleteFunc(p.held, func(n int) bool { return n == o.key })
	case "AddAfter":
		p.addAfter(o.key, o.d)
	case "pass":
		p.pass(o.d)
	case "ShutDown":
		p.q.ShutDown()
		p.model.shutDown()
	case "drain":
		if e, ok := p.q.(extended); ok {
			_ = e.ShutDownContext(canceled()) // It does not wait.
			p.model.shutDown()
		}
	}
}

func (p *modelRun) get() {
	queued := len(p.model.queued) > 0
	if !queued && !p.model.down {
		return
	}
	g := p.startGet(p.q).mustReturn("when the model's would")
	if (g.err == nil) != queued {
		p.Fatalf("Get() = %q, %v, and keys %v are queued", g.key, g.err, p.model.queued)
	}
	if !queued {
		return
	}
	want := p.model.get()
	if g.key != strconv.Itoa(want) {
		p.Fatalf("Get() = %s, want %d", g.key, want)
	}
	p.held = append(p.held, want)
}

func (p *modelRun) addAfter(key int, d time.Duration) {
	if q, ok := p.q.(delaying); ok {
		q.AddAfter(strconv.Itoa(key), d)
		p.model.addAfter(key, p.clock.Now(), d)
	}
}

func (p *modelRun) pass(d time.Duration) {
	if p.fake != nil || d > 0 { // The real clock does not go back.
		p.run.pass(d)
		p.model.pass(p.clock.Now())
	}
}

// compare asserts that the queue and the model look the same.
func (p *modelRun) compare() {
	synctest.Wait()
	n, down := p.q.Len(), p.q.ShuttingDown()
	if n != len(p.model.queued) || down != p.model.down {
		p.Fatalf("Len() = %d, ShuttingDown() = %v, want %d %v, %v", n, down, len(p.model.queued), p.model.queued, p.model.down)
	}
	p.wantStats(p.q, "after this", p.model.wantStats())
	if p.metrics != nil {
		adds, depth := p.metrics.Value("adds"), p.metrics.Value("depth")
		if adds != float64(p.model.stats.Adds) || depth != float64(len(p.model.dirty)) {
			p.Fatalf("metrics: adds %v, depth %v, want %d, %d", adds, depth, p.model.stats.Adds, len(p.model.dirty))
		}
	}
	p.check(p.q)
}

// rapidTB makes a run a rapid.TB.
type rapidTB struct {
	*run
	said []string
}

func (tb *rapidTB) Helper()      {}
func (tb *rapidTB) Name() string { return tb.t.Name() }

// rapid's messages about runs that passed are dropped.
func (tb *rapidTB) Logf(format string, args ...any) {
	if tb.Failed() {
		tb.said = append(tb.said, fmt.Sprintf(format, args...))
	}
}
func (tb *rapidTB) Log(args ...any)                  { tb.Logf("%s", fmt.Sprint(args...)) }
func (tb *rapidTB) Skipf(format string, args ...any) { tb.skip(fmt.Sprintf(format, args...)) }
func (tb *rapidTB) Skip(args ...any)                 { tb.skip(fmt.Sprint(args...)) }
func (tb *rapidTB) SkipNow()                         { tb.skip("skipped") }
func (tb *rapidTB) Error(args ...any)                { tb.Errorf("%s", fmt.Sprint(args...)) }
func (tb *rapidTB) Fatal(args ...any)                { tb.Error(args...); tb.FailNow() }
func (tb *rapidTB) Fail()                            { tb.Errorf("failed") }

// FailNow is rapid's last call, after it has logged how to repeat the failure.
func (tb *rapidTB) FailNow() {
	tb.Fatalf("%s", strings.Join(tb.said, "\n"))
}

// slowQueue is a delaying queue, written in the obvious way. Its keys are numbers.
type slowQueue struct {
	oneEntry bool

	queued      []int
	dirty, held map[int]bool
	waiting     []slowWaiting
	seq         int
	down        bool
	stats       workqueue.Stats // the counters
}

type slowWaiting struct {
	key, seq int
	due      time.Time
}

func newSlowQueue(oneEntry bool) *slowQueue {
	return &slowQueue{oneEntry: oneEntry, dirty: make(map[int]bool), held: make(map[int]bool)}
}

func (m *slowQueue) add(key int) {
	if m.down {
		return
	}
	if m.oneEntry {
		m.waiting = slices.DeleteFunc(m.waiting, func(w slowWaiting) bool { return w.key == key })
	}
	if m.dirty[key] {
		return
	}
	m.stats.Adds++
	m.dirty[key] = true
	if !m.held[key] {
		m.queued = append(m.queued, key)
	}
}

func (m *slowQueue) get() int {
	key := m.queued[0]
	m.queued = m.queued[1:]
	delete(m.dirty, key)
	m.held[key] = true
	return key
}

func (m *slowQueue) done(key int) {
	if !m.held[key] {
		m.stats.UnmatchedDones++
		return
	}
	delete(m.held, key)
	if m.dirty[key] {
		m.queued = append(m.queued, key)
	}
}

func (m *slowQueue) addAfter(key int, now time.Time, d time.Duration) {
	if m.down {
		return
	}
	m.stats.Retries++
	if d <= 0 {
		m.add(key)
		return
	}
	if m.oneEntry && m.dirty[key] {
		return
	}
	m.seq++
	w := slowWaiting{key, m.seq, now.Add(d)}
	i := slices.IndexFunc(m.waiting, func(w slowWaiting) bool { return w.key == key })
	switch {
	case i < 0:
		m.waiting = append(m.waiting, w)
	case w.due.Before(m.waiting[i].due):
		m.waiting[i] = w
	}
}

// pass adds the keys that are due at now.
func (m *slowQueue) pass(now time.Time) {
	slices.SortFunc(m.waiting, func(a, b slowWaiting) int {
		return cmp.Or(a.due.Compare(b.due), a.seq-b.seq)
	})
	for len(m.waiting) > 0 && !m.waiting[0].due.After(now) {
		key := m.waiting[0].key
		m.waiting = m.waiting[1:]
		m.add(key)
	}
}

func (m *slowQueue) shutDown() {
	m.down = true
	m.stats.Dropped += uint64(len(m.waiting))
	m.waiting = nil
}

func (m *slowQueue) wantStats() workqueue.Stats {
	want := m.stats
	want.Queued, want.Processing, want.Waiting = len(m.queued), len(m.held), len(m.waiting)
	return want
}
