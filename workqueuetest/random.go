package workqueuetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

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
	// key is the number of a key or, for Done, of one of those that are held.
	key int
	// d is how long AddAfter delays, or how much time passes.
	d time.Duration
}

func (o op) String() string {
	switch o.kind {
	case "pass":
		return fmt.Sprintf("pass %v", o.d)
	case "AddAfter":
		return fmt.Sprintf("AddAfter(%s, %v)", modelKey(o.key), o.d)
	case "Add", "Done of any":
		return fmt.Sprintf("%s(%s)", o.kind, modelKey(o.key))
	}
	return o.kind
}

// GoString makes rapid print the calls readably.
func (o op) GoString() string { return o.String() }

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
		rapid.Check(&rapidTB{TB: r.t, run: r}, func(t *rapid.T) {
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
	var c Config[string]
	var metrics *testkit.Recorder
	if !r.suite.NoMetrics && len(ops)%2 == 0 {
		metrics = &testkit.Recorder{}
		c.Name, c.MetricsProvider = queueName, metrics
	}
	p := r.beside(r.queue(c), "after this")
	for i, o := range ops {
		*at = i
		if !m.ties && o.kind == "AddAfter" && o.d > 0 {
			o.d += time.Duration(i) * time.Microsecond
		}
		p.call(o)
		p.compare()
		if metrics != nil {
			adds, depth := metrics.Value("adds"), metrics.Value("depth")
			if adds != float64(p.model.stats.Adds) || depth != float64(p.model.dirty.len()) {
				p.Fatalf("metrics: adds %v, depth %v, want %d, %d", adds, depth, p.model.stats.Adds, p.model.dirty.len())
			}
		}
	}
}

// call makes a call on the queue and the model, unless it would block.
func (p *modelRun) call(o op) {
	switch key := modelKey(o.key); o.kind {
	case "Add":
		p.add(key)
	case "Get":
		if p.model.queued != "" {
			p.get()
		}
	case "Get canceled":
		if e, ok := p.q.(extended); ok {
			if key, err := e.GetContext(canceled()); key != "" || err == nil {
				p.Fatalf("GetContext() of a done context = %q, %v", key, err)
			}
		}
	case "Done":
		if held := p.model.held.keys(); len(held) > 0 {
			p.done(held[o.key%len(held)])
		}
	case "Done of any":
		p.done(key)
	case "AddAfter":
		if _, ok := p.q.(delaying); ok {
			p.addAfter(key, o.d)
		}
	case "pass":
		if p.fake != nil || o.d > 0 { // The real clock does not go back.
			p.pass(o.d)
		}
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

// rapidTB lets rapid report to a run what it would report to the test.
type rapidTB struct {
	rapid.TB
	run  *run
	said []string
}

// Logf drops what rapid says about runs that passed.
func (tb *rapidTB) Logf(format string, args ...any) {
	if tb.Failed() {
		tb.said = append(tb.said, fmt.Sprintf(format, args...))
	}
}
func (tb *rapidTB) Log(args ...any)                   { tb.Logf("%s", fmt.Sprint(args...)) }
func (tb *rapidTB) Errorf(format string, args ...any) { tb.run.Errorf(format, args...) }
func (tb *rapidTB) Fatalf(format string, args ...any) { tb.run.Fatalf(format, args...) }
func (tb *rapidTB) Failed() bool                      { return tb.run.Failed() }

// FailNow is rapid's last call, after it has logged how to repeat the failure.
func (tb *rapidTB) FailNow() { tb.run.Fatalf("%s", strings.Join(tb.said, "\n")) }
