package workqueue_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
)

// These tests let foreign code panic in each method that calls it. The panic must reach the
// caller, the lock must be free, and no key must be lost, or be processing without a worker.

// panicStep is a method in which a panic is tried, in the order of a key's life.
type panicStep struct {
	name string
	call func(q workqueue.Extended[string])
}

var panicSteps = []panicStep{
	{"Add", func(q workqueue.Extended[string]) { q.Add("a") }},
	{"AddCause", func(q workqueue.Extended[string]) { q.AddCause("a", because("1")) }},
	{"Get", func(q workqueue.Extended[string]) { q.Get() }},
	{"quiet AddCause", func(q workqueue.Extended[string]) {
		q.AddedAgain("a")
		q.AddCause("a", quietly("2"))
	}},
	{"Add again", func(q workqueue.Extended[string]) { q.Add("a") }},
	{"Done", func(q workqueue.Extended[string]) { q.Done("a") }},
	{"Get again", func(q workqueue.Extended[string]) { q.Get() }},
	{"ShutDown", func(q workqueue.Extended[string]) { q.ShutDown() }},
	{"drain", func(q workqueue.Extended[string]) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = q.ShutDownContext(ctx)
	}},
	{"last Done", func(q workqueue.Extended[string]) { q.Done("a") }},
}

// tryPanics walks through panicSteps up to number bad, in which the panic is tried, and then brings
// the queue to its end. If nothing panicked, the step was taken like the others.
func tryPanics(t *testing.T, q workqueue.Extended[string], bad int, arm, disarm func()) {
	t.Helper()
	name := panicSteps[bad].name
	for _, step := range panicSteps[:bad] {
		step.call(q)
	}
	arm()
	aside(func() { panicSteps[bad].call(q) })
	disarm()
	synctest.Wait()
	if !workqueue.FreeLock[string](q) {
		t.Fatalf("the lock is held after %s", name)
	}
	if err := workqueue.CheckInvariants[string](q); err != nil {
		t.Errorf("after %s: %v", name, err)
	}
	q.Add("a") // Whatever has become of it, from here on it must come once more, unless it is too late.
	late := q.ShuttingDown()
	if q.Stats().Processing > 0 {
		q.Done("a")
	}
	seen := 0
	for q.Len() > 0 {
		key, _ := q.Get()
		if key == "a" {
			seen++
		}
		q.Done(key)
	}
	if seen != 1 && !late {
		t.Errorf("after %s the key came %d times", name, seen)
	}
	if st := q.Stats(); st.Processing+st.Queued != 0 || st.UnmatchedDones != 0 {
		t.Errorf("after %s and everything else: %+v", name, st)
	}
	if err := q.ShutDownContext(t.Context()); err != nil {
		t.Errorf("after %s: ShutDownContext() = %v", name, err)
	}
	wantShutDown(t, q)
}

// aside calls f on a goroutine of its own, which f may end by a panic or, like t.FailNow in a handler, by
// runtime.Goexit.
func aside(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		f()
	}()
	<-done
}

func TestForeignCodePanics(t *testing.T) {
	for _, where := range []string{"Queue", "clock", "depth", "adds", "latency", "work", "unfinished",
		"longest"} {
		for bad, step := range panicSteps {
			t.Run(where+","+step.name, func(t *testing.T) {
				everyLayer(t, func(t *testing.T, build builder[string]) {
					var armed atomic.Bool
					called := func(what string) {
						if what == where && armed.CompareAndSwap(true, false) {
							panic(what)
						}
					}
					fake := testkit.NewFakeClock()
					r := &testkit.Recorder{On: called}
					o := options[string]{
						name: "q", provider: r, clock: &testkit.HookedClock{WithTicker: fake,
							OnNow: func() { called("clock") }},
					}
					if where == "Queue" {
						o.order = &listQueue[string]{On: func(string) { called("Queue") }}
					}
					tryPanics(t, build(o), bad, func() {
						fake.Step(time.Second)
						synctest.Wait()
						armed.Store(true)
					}, func() { armed.Store(false) })
					// What the metric itself counted before it panicked is its own business.
					for _, gauge := range []string{"unfinished", "longest"} {
						if v := r.Value(gauge); v != 0 {
							t.Errorf("%s = %v in the end", gauge, v)
						}
					}
				})
			})
		}
	}
}

// A key that is queued again because a metric panicked in Get is one more that needs processing.
func TestDepthAfterPanicInGet(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[string]) {
		r := &testkit.Recorder{}
		q := build(options[string]{name: "q", provider: r, clock: testkit.NewFakeClock()})
		q.Add("a")
		r.PanicOnce("latency")
		testkit.WantPanic(t, "Get", func() { q.Get() })
		r.Want(t, "after the panic", testkit.Values{"depth": 1})
		process(t, q, "a")
		r.Want(t, "in the end", testkit.Values{"depth": 0})
		q.ShutDown()
	})
}

func TestClockPanicsInAddAfter(t *testing.T) {
	everyDelayingLayer(t, func(t *testing.T, build delayerBuilder[string]) {
		c := &testkit.HookedClock{WithTicker: testkit.NewFakeClock(), OnNow: func() { panic("clock") }}
		q := build(options[string]{clock: c})
		testkit.WantPanic(t, "AddAfter", func() { q.AddAfter("a", time.Second) })
		c.OnNow = nil
		q.AddAfter("a", time.Second)
		synctest.Wait()
		if st := q.Stats(); st.Waiting != 1 {
			t.Errorf("Stats() = %+v, want 1 waiting", st)
		}
		q.ShutDown()
	})
}

// A panic in Get may hit the getter that had the only wake-up.
func TestMetricPanicsInSleepingGetter(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[string]) {
		r := &testkit.Recorder{}
		q := build(options[string]{name: "q", provider: r, clock: testkit.NewFakeClock()})
		var gets []*testkit.Call[string]
		for range 2 {
			gets = append(gets, testkit.Start(func() (key string) {
				defer func() { _ = recover() }()
				key, _ = q.Get()
				return key
			}))
			synctest.Wait()
		}
		r.PanicOnce("latency")
		q.Add("a")
		keys := ""
		for _, get := range gets {
			keys += get.MustReturn(t, "Get, one with a panic and one with the key")
		}
		if keys != "a" {
			t.Errorf("got keys %q", keys)
		}
		q.Done("a")
		q.ShutDown()
	})
}

// A worker whose goroutine ends without Done, by runtime.Goexit or a panic that is recovered, or never
// comes back, takes its key with it and nothing else: no one else gets the key, an Add of it is kept, other
// keys go on, a drain waits and can be given up. When Done is called after all, the key comes again.
func TestWorkerThatNeverCallsDone(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[string]) {
		q := build(options[string]{})
		for _, end := range []func(){runtime.Goexit, func() { panic("handler") }} {
			q.Add("a")
			aside(func() {
				q.Get()
				end()
			})
			q.Add("a")
			q.Add("b")
			process(t, q, "b")
			if st := q.Stats(); st.Processing != 1 || st.Queued != 0 {
				t.Errorf("Stats() = %+v, want 1 processing", st)
			}
			q.Done("a")
			process(t, q, "a")
		}
		q.Add("a")
		hold(t, q, "a")
		q.Add("a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := q.ShutDownContext(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("ShutDownContext() = %v, want the context's error", err)
		}
		q.Done("a")
		process(t, q, "a")
		wantShutDown(t, q)
	})
}

// badProvider panics when it is asked for one of its metrics.
type badProvider struct {
	testkit.Recorder
	bad string
}

func (p *badProvider) NewDepthMetric(name string) workqueue.GaugeMetric {
	if p.bad == "depth" {
		panic("provider")
	}
	return p.Recorder.NewDepthMetric(name)
}

func (p *badProvider) NewRetriesMetric(name string) workqueue.CounterMetric {
	if p.bad == "retries" {
		panic("provider")
	}
	return p.Recorder.NewRetriesMetric(name)
}

// A panic of a provider reaches the caller that builds the queue. No goroutine is left.
func TestProviderPanics(t *testing.T) {
	for _, metric := range []string{"depth", "retries"} {
		t.Run(metric, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				before := testkit.Goroutines()
				o := options[string]{name: "q", provider: &badProvider{bad: metric}}
				if v := testkit.WantPanic(t, "constructor", func() { o.rateLimiting() }); v != "provider" {
					t.Errorf("panics with %v", v)
				}
				before.WantMore(t, "after the panic", 0)
			})
		})
	}
}

// On a goroutine of the queue's own there is no caller. A panic there ends the program and says where it was,
// as in any program: the queue does not swallow it and go on without its clock.
func TestPanicOnTheQueuesGoroutine(t *testing.T) {
	const variable = "WORKQUEUE_TEST_PANIC"
	if os.Getenv(variable) != "" {
		var onLoop atomic.Bool
		q := options[string]{clock: &testkit.HookedClock{WithTicker: clock.RealClock{},
			OnReset: func() { onLoop.Store(true) },
			OnNow: func() {
				if onLoop.Load() {
					theFaultyClock()
				}
			}}}.delaying()
		q.AddAfter("a", time.Second) // Long enough that the loop sets its timer, also on a loaded machine.
		q.Get()
		return
	}
	command := exec.Command(os.Args[0], "-test.run=^TestPanicOnTheQueuesGoroutine$")
	command.Env = append(os.Environ(), variable+"=1")
	out, err := command.CombinedOutput()
	if err == nil {
		t.Error("the process has not ended")
	}
	for _, want := range []string{"panic: clock out of order", "theFaultyClock"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func theFaultyClock() { panic("clock out of order") }

// hookedContext calls a function before each of two methods.
type hookedContext struct {
	context.Context
	onErr, onDone func()
}

func (c *hookedContext) Err() error {
	c.onErr()
	return c.Context.Err()
}

func (c *hookedContext) Done() <-chan struct{} {
	c.onDone()
	return c.Context.Done()
}

// A context's methods run without the lock: they may call the queue.
func TestContextIsForeignCode(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[string]) {
		q := build(options[string]{})
		q.Add("a")
		fine := func() { q.Len() }
		ctx := &hookedContext{Context: t.Context(), onErr: fine, onDone: fine}
		if key, err := q.GetContext(ctx); key != "a" || err != nil {
			t.Errorf("GetContext() = %q, %v with a context that calls the queue", key, err)
		}
		q.Done("a")
		q.ShutDown()
	})
}
