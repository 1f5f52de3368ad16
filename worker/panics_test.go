package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/worker"
)

func TestPanicHasValueAndStack(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		var got error
		q.Add("panics")
		r := run(t, worker.New(q, func(ctx context.Context, key string) error {
			if worker.CallOf(ctx).Attempt() > 1 {
				return nil
			}
			return acts(ctx, key)
		}, options{OnFinish: func(_ context.Context, r outcome) {
			if r.Err != nil {
				got = r.Err
			}
		}}))
		var p *worker.PanicError
		if !errors.As(got, &p) || p.Value != "what a value" ||
			!strings.Contains(string(p.Stack), "thePanickingFunction") {
			t.Fatalf("the error is %v", got)
		}
		if p.Error() != "panic: what a value" || p.Unwrap() != nil {
			t.Errorf("%v, %v", p, p.Unwrap())
		}
		r.after(time.Second)
		r.endCleanly()
	})
}

// TestCrashOnPanic runs itself in a process of its own, which is to crash.
func TestCrashOnPanic(t *testing.T) {
	const variable = "WORKER_TEST_CRASH"
	if where := os.Getenv(variable); where != "" {
		q := doneSays{newQueue()}
		q.Add("a")
		o := options{CrashOnPanic: true}
		if where == "hook" {
			o.OnFinish = func(context.Context, outcome) { thePanickingFunction() }
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // If it does not crash.
		defer cancel()
		_ = worker.Run(ctx, q, func(context.Context, string) error {
			switch where {
			case "handler":
				thePanickingFunction()
			case "error":
				return panicsInside{}
			}
			return nil
		}, o)
		return
	}
	for _, where := range []string{"handler", "error", "hook"} {
		t.Run(where, func(t *testing.T) {
			command := exec.Command(os.Args[0], "-test.run=^TestCrashOnPanic$")
			command.Env = append(os.Environ(), variable+"="+where)
			out, err := command.CombinedOutput()
			if err == nil {
				t.Error("the process has not crashed")
			}
			for _, want := range []string{"panic: what a value", "thePanickingFunction"} {
				if !strings.Contains(string(out), want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
			if done := strings.Contains(string(out), "Done of a"); done != (where == "hook") {
				t.Errorf("the key is Done: %v\n%s", done, out)
			}
		})
	}
}

// doneSays is a queue that writes down its Dones.
type doneSays struct{ extended }

func (q doneSays) Done(key string) {
	fmt.Println("Done of", key)
	q.extended.Done(key)
}

// panicsInside is an error that cannot be unwrapped.
type panicsInside struct{}

func (panicsInside) Error() string { return "inside" }
func (panicsInside) Unwrap() error { thePanickingFunction(); return nil }

// The fakes that follow panic in one of their methods. panicAt panics if that is the method.
func panicAt(method, at string) {
	if method == at {
		panic("foreign")
	}
}

type panickyQueue struct {
	extended
	at string
}

func (q panickyQueue) ShutDown() { panicAt("ShutDown", q.at); q.extended.ShutDown() }
func (q panickyQueue) ShuttingDown() bool {
	panicAt("ShuttingDown", q.at)
	return q.extended.ShuttingDown()
}
func (q panickyQueue) Done(key string)   { q.extended.Done(key); panicAt("Done", q.at) }
func (q panickyQueue) Forget(key string) { panicAt("Forget", q.at); q.extended.Forget(key) }
func (q panickyQueue) Fail(ctx context.Context, key string, f workqueue.Failure) (workqueue.Retry, error) {
	panicAt("Fail", q.at)
	return q.extended.Fail(ctx, key, f)
}
func (q panickyQueue) Causes(key string) workqueue.Causes {
	panicAt("Causes", q.at)
	return q.extended.Causes(key)
}
func (q panickyQueue) AddAfter(key string, after time.Duration) {
	panicAt("AddAfter", q.at)
	q.extended.AddAfter(key, after)
}
func (q panickyQueue) GetContext(ctx context.Context) (string, error) {
	panicAt("GetContext", q.at)
	return q.extended.GetContext(ctx)
}

// panickyGet is a queue that is not Extended.
type panickyGet struct{ stringQueue }

func (panickyGet) Get() (string, bool) { panic("foreign") }

type panickyLeases struct {
	leasing.UnimplementedLeaser[string]
	extended
}

func (panickyLeases) Facts() []operate.Fact { return nil }
func (panickyLeases) Below() any            { return nil }

func (q panickyLeases) LeaseHeld(ctx context.Context, key string) (context.Context, context.CancelFunc) {
	return q.Lease(ctx, key)
}

func (panickyLeases) Lease(context.Context, string) (context.Context, context.CancelFunc) {
	panic("foreign")
}

type panickyProvider struct{ workqueue.MetricsProvider }

func (panickyProvider) InspectPool(string, worker.Inspector) { panic("foreign") }

// panickyLogs panics at a message that begins like this.
type panickyLogs struct {
	slog.Handler
	at string
}

func (panickyLogs) Enabled(context.Context, slog.Level) bool { return true }
func (l panickyLogs) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, l.at) {
		panic("foreign")
	}
	return nil
}
func (l panickyLogs) WithAttrs([]slog.Attr) slog.Handler { panicAt("With", l.at); return l }

// panickyClock panics at its nth reading, and never again.
type panickyClock struct {
	clock.Clock
	readings *atomic.Int64
	at       int64
}

func newPanickyClock(at int64) panickyClock {
	return panickyClock{clock.RealClock{}, new(atomic.Int64), at}
}

func (c panickyClock) read() {
	if c.readings.Add(1) == c.at {
		panic("foreign")
	}
}

func (c panickyClock) Now() time.Time                         { c.read(); return c.Clock.Now() }
func (c panickyClock) Since(t time.Time) time.Duration        { c.read(); return c.Clock.Since(t) }
func (c panickyClock) NewTimer(d time.Duration) clock.Timer   { c.read(); return c.Clock.NewTimer(d) }
func (c panickyClock) After(d time.Duration) <-chan time.Time { c.read(); return c.Clock.After(d) }

// wantPanic checks that a fake's panic is what Run returned, and that every key that was handed out was Done.
func wantPanic(t *testing.T, err error, q stringQueue) {
	t.Helper()
	var p *worker.PanicError
	if !errors.As(err, &p) || p.Value != "foreign" {
		t.Errorf("Run returned %v", err)
	}
	if st := stats(q); st.UnmatchedDones != 0 || st.Processing != 0 {
		t.Errorf("%+v", st)
	}
}

// A panic outside the handler has no key to blame. It ends Run, which returns it, costs no Done, and what was
// not handled is reported.
func TestPanicIsFatal(t *testing.T) {
	hook := func(context.Context, outcome) { panic("foreign") }
	logs := func(at string) options {
		return options{Name: "pool", Logger: slog.New(panickyLogs{slog.DiscardHandler, at})}
	}
	inQueue := func(at string) func(q extended) stringQueue {
		return func(q extended) stringQueue { return panickyQueue{q, at} }
	}
	fails := func() error { return errBroken }
	const bLeft, bothLeft = "1 queued and not started: b", "2 queued and not started: a, b"
	const aFailed = bLeft + "; 1 failed and not retried: a"
	for _, c := range []struct {
		name   string
		answer func() error // the handler's; nil is Terminal
		o      options
		queue  func(q extended) stringQueue // nil is the queue itself, and a plain one
		left   string                       // empty is anything
	}{
		{name: "OnFinish", o: options{OnFinish: hook}, left: bLeft},
		{name: "OnGiveUp", o: options{OnGiveUp: hook}, left: bLeft},
		{name: "OnStuck", o: options{OnStuck: func(context.Context, stuck) { panic("foreign") },
			StuckAfter: time.Second}, left: bLeft},
		{name: "OnFinish after a panic", o: options{OnFinish: hook}, answer: func() error { panic("handler") },
			left: aFailed},
		{name: "OnFinish after Goexit", o: options{OnFinish: hook},
			answer: func() error { runtime.Goexit(); return nil }, left: aFailed},

		{name: "GetContext", queue: inQueue("GetContext")},
		{name: "Get", queue: func(q extended) stringQueue { return panickyGet{q} }},
		{name: "Done", queue: inQueue("Done")},
		{name: "Forget", queue: inQueue("Forget"), left: bLeft, answer: func() error { return nil }},
		{name: "Forget of a key to requeue", queue: inQueue("Forget"), left: "2 queued and not started: b, a",
			answer: func() error { return worker.RequeueAfter(0) }},
		{name: "AddAfter of a key to requeue", queue: inQueue("AddAfter"), left: bothLeft,
			answer: func() error { return worker.RequeueAfter(time.Hour) }},
		{name: "AddAfter of a key on hold", queue: inQueue("AddAfter"), left: bothLeft,
			answer: func() error { return worker.Hold("it", time.Hour, func(func()) {}) }},
		{name: "Fail of a queue that is kept", queue: inQueue("Fail"), answer: fails, o: options{KeepQueue: true},
			left: "1 failed and not retried: a"},
		{name: "Fail", queue: inQueue("Fail"), answer: fails, left: aFailed},
		{name: "Causes", queue: inQueue("Causes"), answer: fails, left: aFailed},
		{name: "ShutDown", queue: inQueue("ShutDown")},
		{name: "ShuttingDown", queue: inQueue("ShuttingDown"),
			answer: func() error { return worker.RequeueAfter(0) }},
		{name: "Lease", queue: func(q extended) stringQueue { return panickyLeases{extended: q} },
			left: "2 queued and not started: b, a"},

		{name: "log of a drop", o: logs("The handler failed"), left: bLeft},
		{name: "log of a success", o: logs("Handled"), answer: func() error { return nil }, left: bLeft},
		{name: "every log", o: logs(""), answer: fails, left: aFailed},
		{name: "provider of metrics", o: options{Name: "pool", MetricsProvider: panickyProvider{}}, left: bothLeft},
		{name: "clock before the handler", o: options{Clock: newPanickyClock(1)}, left: bothLeft},
	} {
		t.Run(c.name, func(t *testing.T) {
			test := func(t *testing.T, inner, q stringQueue) {
				inner.Add("a")
				inner.Add("b")
				o := c.o
				if clock, ok := o.Clock.(panickyClock); ok {
					o.Clock = newPanickyClock(clock.at) // The subtests must not share its readings.
				}
				p := worker.New(q, func(context.Context, string) error {
					time.Sleep(2 * time.Second)
					if c.answer != nil {
						return c.answer()
					}
					return worker.Terminal(errBroken)
				}, o)
				r := run(t, p)
				r.after(3 * time.Second)
				if c.name == "ShutDown" {
					r.cancel()
					r.after(5 * time.Second)
				}
				wantPanic(t, r.returned(), inner)
				if got := p.Left().String(); c.left != "" && got != c.left {
					t.Errorf("left: %s", got)
				}
			}
			if c.queue == nil {
				inBubble(t, func(t *testing.T, q stringQueue) { test(t, q, q) })
				return
			}
			synctest.Test(t, func(t *testing.T) {
				q := newQueue()
				test(t, q, c.queue(q))
			})
		})
	}
}

// panicsLate is a queue whose Forget panics from some time on.
type panicsLate struct {
	extended
	on atomic.Bool
}

func (q *panicsLate) Forget(key string) {
	if q.on.Load() {
		panic("foreign")
	}
	q.extended.Forget(key)
}

// A queue that panics when a handler that was left behind returns does not end the process.
func TestPanicAfterRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger, logs := newLogger()
		q := &panicsLate{extended: newQueue()}
		q.Add("a")
		r := run(t, worker.New(q, takes(time.Minute), options{Drain: worker.Nothing, CancelGrace: worker.NoGrace,
			Logger: logger}))
		r.endLeaving("1 still running: a")
		synctest.Wait()
		q.on.Store(true)
		r.after(2 * time.Minute)
		if !strings.Contains(logs.String(), `err="panic: foreign"`) {
			t.Errorf("logged:\n%s", logs)
		}
	})
}

// Whenever the clock panics, Run returns that, every key is Done, and those that were not handled are
// reported.
func TestPanicOfTheClock(t *testing.T) {
	for at := int64(1); at <= 8; at++ {
		t.Run(fmt.Sprint("reading ", at), func(t *testing.T) {
			inBubble(t, func(t *testing.T, q stringQueue) {
				var mu sync.Mutex
				var handled []string
				addAll(q, "a b")
				c := newPanickyClock(at)
				p := worker.New(q, func(_ context.Context, key string) error {
					time.Sleep(3 * time.Second)
					mu.Lock()
					defer mu.Unlock()
					handled = append(handled, key)
					return nil
				}, options{Clock: c, StuckAfter: time.Second, HandlerTimeout: time.Second})
				r := run(t, p)
				r.after(10 * time.Second)
				err := r.end()
				r.after(time.Minute)
				if c.readings.Load() >= at {
					wantPanic(t, err, q)
				}
				handled = append(handled, p.Left().NotStarted...)
				slices.Sort(handled)
				equal(t, "handled or reported", handled, "a", "b")
			})
		})
	}
}

// wrapper is an error whose nil pointer cannot be unwrapped.
type wrapper struct{ within error }

func (*wrapper) Error() string   { return "wrapper" }
func (w *wrapper) Unwrap() error { return w.within }

// A panic of the methods of the handler's error is the failure of the key, and not of the pool. What a
// panic is called with is no answer.
func TestPanicThatFailsTheKey(t *testing.T) {
	for name, answer := range map[string]func() error{
		"Unwrap of the error":      func() error { return (*wrapper)(nil) },
		"nil pointer to Requeue":   func() error { return (*worker.Requeue)(nil) },
		"panic with a fatal error": func() error { panic(worker.Fatal(errBroken)) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, q stringQueue) {
				var finishes []int
				q.Add("a")
				r := run(t, worker.New(q, func(ctx context.Context, _ string) error {
					if worker.CallOf(ctx).Attempt() == 1 {
						return answer()
					}
					return nil
				}, options{
					HandlerTimeout: time.Minute,
					OnFinish: func(_ context.Context, r outcome) {
						if finishes = append(finishes, r.Attempt); (r.Err == nil) != (r.Attempt == 2) {
							t.Errorf("attempt %d ended with %v", r.Attempt, r.Err)
						}
					},
				}))
				r.after(time.Second)
				equal(t, "attempts", finishes, 1, 2)
				r.endCleanly()
			})
		})
	}
}

// A fatal error is logged when it happens: also during the drain, and when Run has returned.
func TestLateFatalErrorIsLogged(t *testing.T) {
	for _, drain := range []time.Duration{time.Second, time.Minute} {
		inBubble(t, func(t *testing.T, q stringQueue) {
			logger, logs := newLogger()
			q.Add("a")
			r := run(t, worker.New(q, takes(10*time.Second), options{DrainTimeout: drain, CancelGrace: worker.NoGrace,
				Logger:   logger,
				OnFinish: func(context.Context, outcome) { panic("hook") }}))
			r.end()
			r.after(2 * time.Minute)
			if n := strings.Count(logs.String(),
				`msg="The workers end because of a fatal error" err="panic: hook"`); n != 1 {
				t.Errorf("logged:\n%s", logs)
			}
		})
	}
}
