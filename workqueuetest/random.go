package workqueuetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

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

// modelOptions choose the steps of random scripts. With ties, keys are often due at the same time, and never otherwise.
type modelOptions struct{ shutDown, unmatchedDone, ties, delays, clockGoesBack bool }

// kinds are the steps to draw. Frequent ones are listed more than once, and rapid prefers the first.
func (m modelOptions) kinds() []string {
	kinds := []string{"add", "get", "finish", "jump", "add", "get", "finish", "add", "canceled"}
	if m.unmatchedDone {
		kinds = append(kinds, "done")
	}
	if m.delays {
		kinds = slices.Insert(kinds, 2, "after")
	}
	if m.delays && m.ties {
		kinds = append(kinds, "after", "after", "after")
	}
	return kinds
}

// randomStep is a step as data: rapid leaves out some and simplifies others, until the shortest script that still fails
// is left.
type randomStep struct {
	kind string
	key  int           // or, of finish, which of the held keys
	d    time.Duration // of after and jump
}

func (s randomStep) String() string {
	switch s.kind {
	case "add", "done":
		return s.kind + " " + modelKey(s.key)
	case "after":
		return fmt.Sprintf("after %s %v", modelKey(s.key), s.d)
	case "finish":
		return fmt.Sprintf("finish %d", s.key)
	case "jump":
		return fmt.Sprintf("jump %v", s.d)
	}
	return s.kind
}

// GoString makes rapid print the steps readably.
func (s randomStep) GoString() string { return s.String() }

func (m modelOptions) draw(t *rapid.T) []randomStep {
	one := rapid.Custom(func(t *rapid.T) randomStep {
		s := randomStep{
			kind: rapid.SampledFrom(m.kinds()).Draw(t, "kind"),
			key:  rapid.IntRange(0, modelKeys-1).Draw(t, "key"),
		}
		seconds := func(least, most int) {
			s.d = time.Duration(rapid.IntRange(least, most).Draw(t, "seconds")) * time.Second
		}
		switch {
		case s.kind == "after" && m.ties:
			s.d = rapid.SampledFrom([]time.Duration{10 * time.Second, 20 * time.Second}).Draw(t, "delay")
		case s.kind == "jump" && m.ties:
			s.d = 10 * time.Second
		case s.kind == "after":
			seconds(-2, 20)
		case s.kind == "jump" && m.clockGoesBack:
			seconds(-3, 15)
		case s.kind == "jump":
			seconds(1, 15)
		}
		return s
	})
	// A slice of slices, because rapid prefers slices that are close to their least length.
	steps := slices.Concat(rapid.SliceOfN(rapid.SliceOfN(one, 0, 12), 8, 16).Draw(t, "calls")...)
	if m.shutDown && rapid.Bool().Draw(t, "end") {
		steps = append(steps, randomStep{kind: rapid.SampledFrom([]string{"shutdown", "giveup"}).Draw(t, "kind of end")})
		steps = append(steps, rapid.SliceOfN(one, 0, 30).Draw(t, "calls after it")...)
	}
	return steps
}

// tryModel draws scripts, and lets rapid shrink one that fails.
func (r *run) tryModel(m modelOptions) {
	_, m.delays = r.queue(Config[string]{}).(delaying)
	m.clockGoesBack = !r.suite.IgnoresClock
	for range 3 { // times -rapid.checks, which is 100 by default
		rapid.Check(&rapidTB{TB: r.t, run: r}, func(t *rapid.T) {
			if o := r.playRandom(m, m.draw(t)); len(o.failures) > 0 {
				t.Fatalf("%s", o)
			}
		})
	}
}

// playRandom plays steps in a bubble. Every second queue has metrics.
func (r *run) playRandom(m modelOptions, steps []randomStep) outcome {
	var script []string
	if !r.suite.NoMetrics && len(steps)%2 == 0 {
		script = append(script, "metrics")
	}
	for i, s := range steps {
		if s.kind == "after" && s.d > 0 && !m.ties {
			s.d += time.Duration(i) * time.Microsecond
		}
		script = append(script, s.String())
	}
	sub := newRun(r.suite, r.t, !r.suite.IgnoresClock)
	if len(script) > 0 {
		sub.bubbled(func() { sub.play(strings.Join(script, "; "), ender{}) })
	}
	return sub.outcome()
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
