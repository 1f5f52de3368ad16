package workqueuetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/keyedqueue/workqueue"
)

// modelKeys is how many keys random scripts have: "a" and those after it.
const modelKeys = 8

func modelKey(n int) string { return string(rune('a' + n)) }

// slowFIFO is a queue, written in the obvious way. It is a value, which a search can copy and compare.
type slowFIFO struct {
	queued, dirty, held string // the keys, one letter each
	retried             string // those that are held, and dirty only because a retry has come due
	down                bool
	dropping            bool // since DropQueued
	shared, placeOfAdd  bool // as in Suite
}

// drained reports whether no drain waits.
func (m *slowFIFO) drained() bool { return m.held == "" && (m.queued == "" || m.shared) }

// empty reports whether nothing can be got.
func (m *slowFIFO) empty() bool { return m.queued == "" || m.down && m.shared }

// add returns whether it changed anything. Shutting down a shared queue ends that only when all workers are
// done.
func (m *slowFIFO) add(key string) bool {
	if m.down && (!m.shared || m.held == "") || strings.Contains(m.dirty, key) {
		return false
	}
	m.dirty += key
	if !strings.Contains(m.held, key) {
		m.queued += key
	}
	return true
}

func (m *slowFIFO) get() string {
	key := m.queued[:1]
	m.queued = m.queued[1:]
	m.dirty = strings.Replace(m.dirty, key, "", 1)
	m.held += key
	return key
}

// done returns whether the key was held.
func (m *slowFIFO) done(key string) bool {
	if !strings.Contains(m.held, key) {
		return false
	}
	m.held = strings.Replace(m.held, key, "", 1)
	m.retried = strings.Replace(m.retried, key, "", 1)
	switch {
	case !strings.Contains(m.dirty, key):
	case m.dropping:
		m.dirty = strings.Replace(m.dirty, key, "", 1)
	default:
		m.queued += key
	}
	if m.placeOfAdd {
		m.queued = strings.Map(func(key rune) rune {
			if strings.ContainsRune(m.held, key) {
				return -1
			}
			return key
		}, m.dirty)
	}
	return true
}

// slowQueue is a slowFIFO with AddAfter and Stats.
type slowQueue struct {
	slowFIFO
	oneEntry bool          // as in Suite
	onHold   string        // the held keys that are on hold
	waiting  []slowWaiting // by due, and keys due at the same time by their adds
	failures map[string]slowFailure
	stats    workqueue.Stats // the counters
}

type slowWaiting struct {
	key       string
	due       time.Time
	onlyRetry bool // only failures have asked for it
}

func (m *slowQueue) add(key string) {
	if m.oneEntry && !m.down {
		m.waiting = slices.DeleteFunc(m.waiting, func(w slowWaiting) bool { return w.key == key })
	}
	m.retried = strings.Replace(m.retried, key, "", 1)
	if m.slowFIFO.add(key) {
		m.stats.Adds++
	}
}

func (m *slowQueue) putOnHold(key string) {
	if strings.Contains(m.held, key) && !strings.Contains(m.onHold, key) {
		m.onHold += key
	}
}

// again returns how many keys were added again that are held and not on hold.
func (m *slowQueue) again() int {
	n := len(m.dirty) - len(m.queued)
	for _, key := range m.onHold {
		n -= strings.Count(m.dirty, string(key))
	}
	return n
}

func (m *slowQueue) done(key string) {
	if strings.Contains(m.onHold, key) && strings.Contains(m.dirty, key) {
		m.dirty = strings.Replace(m.dirty, key, "", 1) + key // It takes its place now.
	}
	m.onHold = strings.Replace(m.onHold, key, "", 1)
	if m.dropping && strings.Contains(m.held, key) && strings.Contains(m.dirty, key) {
		m.stats.Dropped++
	}
	if !m.slowFIFO.done(key) {
		m.stats.UnmatchedDones++
	}
}

func (m *slowQueue) addAfter(key string, now time.Time, d time.Duration) { m.wait(key, now, d, false) }

func (m *slowQueue) wait(key string, now time.Time, d time.Duration, onlyRetry bool) {
	if m.down {
		return
	}
	m.stats.Retries++
	if d <= 0 {
		m.add(key)
		return
	}
	if m.oneEntry && strings.Contains(m.dirty, key) {
		return
	}
	due := now.Add(d)
	i := slices.IndexFunc(m.waiting, func(w slowWaiting) bool { return w.key == key })
	if i >= 0 {
		m.waiting[i].onlyRetry = m.waiting[i].onlyRetry && onlyRetry
		if !due.Before(m.waiting[i].due) {
			return
		}
		onlyRetry = m.waiting[i].onlyRetry
		m.waiting = slices.Delete(m.waiting, i, i+1)
	}
	m.waiting = append(m.waiting, slowWaiting{key, due, onlyRetry})
	slices.SortStableFunc(m.waiting, func(a, b slowWaiting) int { return a.due.Compare(b.due) })
}

// slowFailure is how often a key has failed, and when its delay ends.
type slowFailure struct {
	n   int
	end time.Time
}

// fail is Fail, with a limiter that returns d if it is asked.
func (m *slowQueue) fail(key string, now time.Time, d time.Duration,
	f workqueue.Failure) (r workqueue.Retry) {
	known := m.failures[key]
	r.Attempt, r.Same = known.n, now.Before(known.end)
	if !r.Same {
		r.Attempt++
	}
	if f.Terminal || f.MaxRetries != 0 && r.Attempt > f.MaxRetries {
		delete(m.failures, key)
		m.takeBackRetry(key)
		r.GivenUp = true
		return r
	}
	if r.Same {
		d = known.end.Sub(now)
	}
	r.Delay = max(d, f.AtLeast, 0)
	if m.failures == nil {
		m.failures = make(map[string]slowFailure)
	}
	m.failures[key] = slowFailure{r.Attempt, now.Add(r.Delay)}
	m.takeBackRetry(key)
	m.wait(key, now, r.Delay, true)
	return r
}

// takeBackRetry takes back the retry of an earlier failure, even if it has come due while the key was held.
func (m *slowQueue) takeBackRetry(key string) {
	m.waiting = slices.DeleteFunc(m.waiting, func(w slowWaiting) bool { return w.key == key && w.onlyRetry })
	if strings.Contains(m.retried, key) {
		m.retried = strings.Replace(m.retried, key, "", 1)
		m.dirty = strings.Replace(m.dirty, key, "", 1)
	}
}

// drop is DropQueued of a queue that is shut down.
func (m *slowQueue) drop() {
	if m.shared {
		return
	}
	m.stats.Dropped += uint64(len(m.queued))
	for key := range strings.SplitSeq(m.queued, "") {
		m.dirty = strings.Replace(m.dirty, key, "", 1)
	}
	m.queued, m.dropping = "", true
}

// pass adds the keys that are due at now.
func (m *slowQueue) pass(now time.Time) {
	for len(m.waiting) > 0 && !m.waiting[0].due.After(now) {
		due := m.waiting[0]
		m.waiting = m.waiting[1:]
		if due.onlyRetry && strings.Contains(m.dirty, due.key) {
			continue // It changes nothing.
		}
		m.add(due.key)
		if due.onlyRetry && strings.Contains(m.held, due.key) {
			m.retried += due.key
		}
	}
}

func (m *slowQueue) waits(key string) bool {
	return slices.ContainsFunc(m.waiting, func(w slowWaiting) bool { return w.key == key })
}

func (m *slowQueue) shutDown() {
	if m.down = true; !m.shared {
		m.stats.Dropped += uint64(len(m.waiting))
		m.waiting = nil
	}
}

var modelCases = []testCase{
	unbubbled("Model", "For any sequence of calls, the queue does what the model does.",
		func(r *run) { r.tryModel(modelOptions{}) }),
	unbubbled("ModelWithShutDown",
		"For any sequence of calls before, during and after shutdown, the queue does what the model does.",
		func(r *run) { r.tryModel(modelOptions{shutDown: true}) }),
	unbubbled("ModelWithUnmatchedDone",
		"For any sequence of calls, also of Done for keys that no worker holds, the queue does what the model "+
			"does.",
		func(r *run) { r.tryModel(modelOptions{unmatchedDone: true}) }),
	unbubbled("ModelWithTies",
		"For any sequence of calls, also with keys that are due at the same time, the queue does what the model "+
			"does.",
		func(r *run) { r.tryModel(modelOptions{ties: true, shutDown: true}) }),
	unbubbled("ModelWithFailures",
		"For any sequence of calls, also of Fail, the queue does what the model does.",
		func(r *run) { r.tryModel(modelOptions{failures: true}) }),
}

// modelOptions choose the steps of random scripts. With ties, keys are often due at the same time, and never
// otherwise.
type modelOptions struct {
	shutDown, unmatchedDone, ties, failures bool
	delays, contexts, clockGoesBack         bool // as the queue can
}

// kinds are the steps to draw. Frequent ones are listed more than once, and rapid prefers the first.
func (m modelOptions) kinds() []string {
	kinds := []string{"add", "get", "finish", "jump", "add", "get", "finish", "add"}
	if m.contexts {
		kinds = append(kinds, "canceled", "onhold")
	}
	if m.unmatchedDone {
		kinds = append(kinds, "done")
	}
	if m.failures {
		kinds = append(kinds, "fail", "fail")
	}
	if m.delays {
		kinds = slices.Insert(kinds, 2, "after")
	}
	if m.delays && m.ties {
		kinds = append(kinds, "after", "after", "after")
	}
	return kinds
}

// step returns step number n of a script. For "finish" and "fail", key says which of the held keys.
func (m modelOptions) step(n int, kind string, key int, d time.Duration) string {
	if kind != "jump" && d > 0 && !m.ties {
		d += time.Duration(n) * time.Microsecond
	}
	switch kind {
	case "add", "done", "onhold":
		return kind + " " + modelKey(key)
	case "after":
		return fmt.Sprintf("after %s %v", modelKey(key), d)
	case "finish":
		return fmt.Sprintf("finish %d", key)
	case "fail":
		return fmt.Sprintf("finish %d %v max=3", key, d)
	case "jump":
		return fmt.Sprintf("jump %v", d)
	}
	return kind
}

// draw draws a script. Rapid leaves out some steps and simplifies others, until the shortest that still fails
// is left.
func (m modelOptions) draw(t *rapid.T) []string {
	n := 0
	one := rapid.Custom(func(t *rapid.T) string {
		kind := rapid.SampledFrom(m.kinds()).Draw(t, "kind")
		key := rapid.IntRange(0, modelKeys-1).Draw(t, "key")
		unit, least, most := time.Second, 1, 15
		switch {
		case m.ties && kind == "after":
			unit, most = 10*time.Second, 2
		case m.ties:
			unit, most = 10*time.Second, 1
		case kind == "after":
			least, most = -2, 20
		case m.clockGoesBack:
			least = -3
		}
		n++
		return m.step(n, kind, key, time.Duration(rapid.IntRange(least, most).Draw(t, "time"))*unit)
	})
	// A slice of slices, because rapid prefers slices that are close to their least length.
	steps := slices.Concat(rapid.SliceOfN(rapid.SliceOfN(one, 0, 12), 8, 16).Draw(t, "calls")...)
	if m.shutDown && rapid.Bool().Draw(t, "end") {
		end := "shutdown"
		if m.contexts && rapid.Bool().Draw(t, "gives up") {
			end = "giveup"
		}
		steps = append(steps, end)
		steps = append(steps, rapid.SliceOfN(one, 0, 30).Draw(t, "calls after it")...)
	}
	return steps
}

// tryModel draws scripts, and lets rapid shrink a failing one.
func (r *run) tryModel(m modelOptions) {
	q := r.queue(Config[string]{})
	_, m.delays = q.(delaying)
	_, m.contexts = q.(extended)
	if _, fails := q.(failing); m.failures && !fails {
		r.lacks(Failures)
	}
	m.clockGoesBack = !r.suite.IgnoresClock && !m.failures // Failures are counted by a clock that does not.
	for range 3 {                                          // times -rapid.checks, which is 100 by default
		rapid.Check(&rapidTB{TB: r.t, run: r}, func(t *rapid.T) {
			if o := r.playRandom(m.draw(t)); len(o.failures) > 0 {
				t.Fatalf("%s", o)
			}
		})
	}
}

// playRandom plays steps in a bubble. Every second queue has metrics.
func (r *run) playRandom(steps []string) outcome {
	if !r.suite.NoMetrics && len(steps)%2 == 0 {
		steps = slices.Insert(steps, 0, "metrics")
	}
	sub := newRun(r.suite, r.t, r.seed, !r.suite.IgnoresClock)
	if len(steps) > 0 {
		sub.bubbled(func() { sub.play(strings.Join(steps, "; "), 0) })
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
