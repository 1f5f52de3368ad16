package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	"github.com/keyedqueue/workqueue/worker"
)

func TestPanicHasValueAndStack(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		var got error
		q.Add("a")
		r := run(t, worker.New(q, func(context.Context, string) error {
			if got == nil {
				thePanickingFunction()
			}
			return nil
		}, options{OnFinish: func(_ context.Context, r outcome) {
			if r.Err != nil {
				got = r.Err
			}
		}}))
		var p *worker.PanicError
		if !errors.As(got, &p) {
			t.Fatalf("the error is %v", got)
		}
		if p.Value != "what a value" || !strings.Contains(string(p.Stack), "thePanickingFunction") {
			t.Errorf("value %v, stack:\n%s", p.Value, p.Stack)
		}
		if p.Error() != "panic: what a value" || p.Unwrap() != nil {
			t.Errorf("%v, %v", p, p.Unwrap())
		}
		r.after(time.Second)
		r.endCleanly()
	})
}

func thePanickingFunction() { panic("what a value") }

// A panic outside the handler has no key to blame. It must not go unnoticed, nor cost a Done.
func TestPanicOfAHookIsFatal(t *testing.T) {
	for name, o := range map[string]options{
		"OnFinish": {OnFinish: func(context.Context, outcome) { panic("hook") }},
		"OnDrop":   {OnDrop: func(context.Context, outcome) { panic("hook") }},
		"OnStuck":  {OnStuck: func(context.Context, stuck) { panic("hook") }, StuckAfter: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, q stringQueue) {
				counted := countDone(q)
				q.Add("a")
				r := run(t, worker.New(counted, func(context.Context, string) error {
					time.Sleep(2 * time.Second)
					return worker.Terminal(errBroken)
				}, o))
				r.after(2 * time.Second)
				var p *worker.PanicError
				if err := r.returned(); !errors.As(err, &p) || p.Value != "hook" {
					t.Errorf("Run returned %v", err)
				}
				if _, done := counted.counts("a"); done != 1 {
					t.Errorf("%d Dones", done)
				}
			})
		})
	}
}

func TestPanicOfOnStartFailsTheKey(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		starts, calls := 0, 0
		q.Add("a")
		r := run(t, worker.New(q, func(context.Context, string) error { calls++; return nil }, options{
			OnStart: func(ctx context.Context, key string) context.Context {
				if starts++; starts == 1 {
					panic("start")
				}
				return nil // Means ctx.
			},
			HandlerTimeout: time.Minute,
		}))
		r.after(time.Second)
		if starts != 2 || calls != 1 {
			t.Errorf("%d starts, %d calls", starts, calls)
		}
		r.endCleanly()
	})
}

// panickyLimiter panics when it is asked for a delay.
type panickyLimiter struct {
	workqueue.TypedRateLimiter[string]
}

func (panickyLimiter) When(string) time.Duration { panic("limiter") }

// The key has failed and cannot be queued again. It is reported, and Done.
func TestPanicOfTheLimiterIsFatal(t *testing.T) {
	inBubble(t, func(t *testing.T, _ stringQueue) {
		q := countDone(workqueue.NewTypedRateLimitingQueue[string](panickyLimiter{workqueue.NewTypedMaxOfRateLimiter[string]()}))
		q.Add("a")
		r := run(t, worker.New(q, func(context.Context, string) error { return errBroken }, options{}))
		err := r.returned()
		var p *worker.PanicError
		if !errors.As(err, &p) || p.Value != "limiter" || !slices.Equal(left(t, err).Failing, []string{"a"}) {
			t.Errorf("Run returned %v", err)
		}
		if _, done := q.counts("a"); done != 1 {
			t.Errorf("%d Dones", done)
		}
	})
}

// What a panic is called with is no answer, also when the key is dropped because of it.
func TestPanicWithFatalIsNotFatal(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		var dropped []error
		q.Add("a")
		r := run(t, worker.New(q, func(context.Context, string) error { panic(worker.Fatal(errBroken)) },
			options{MaxRetries: 1, OnDrop: func(_ context.Context, r outcome) { dropped = append(dropped, r.Err) }}))
		r.after(time.Minute)
		r.goesOn()
		r.endCleanly()
		if len(dropped) != 1 || !errors.Is(dropped[0], errBroken) {
			t.Errorf("dropped: %v", dropped)
		}
	})
}

// What a hook does after a handler that has panicked or ended its goroutine is no different, and Done is
// called once in every case. A hook that ends the goroutine ends the call, and nothing else.
func TestHookThatEndsTheGoroutine(t *testing.T) {
	handlers := map[string]func() error{
		"returns": func() error { return worker.Terminal(errBroken) },
		"panics":  func() error { panic("handler") },
		"exits":   func() error { runtime.Goexit(); return nil },
	}
	hooks := map[string]func(){"panics": func() { panic("hook") }, "exits": runtime.Goexit}
	for handlerName, handle := range handlers {
		for hookName, hook := range hooks {
			t.Run(fmt.Sprintf("handler %s, hook %s", handlerName, hookName), func(t *testing.T) {
				inBubble(t, func(t *testing.T, q stringQueue) {
					counted := countDone(q)
					handled := 0
					q.Add("a")
					q.Add("b")
					r := run(t, worker.New(counted, func(_ context.Context, key string) error {
						if handled++; key == "a" && handled == 1 {
							return handle()
						}
						return nil
					}, options{OnFinish: func(_ context.Context, r outcome) {
						if r.Err != nil {
							hook()
						}
					}}))
					r.after(time.Minute)
					var err error
					if hookName == "panics" {
						var p *worker.PanicError
						if err = r.returned(); !errors.As(err, &p) || p.Value != "hook" {
							t.Errorf("Run returned %v", err)
						}
					} else {
						err = r.end()
						if err != nil || handled < 2 {
							t.Errorf("Run returned %v after %d calls", err, handled)
						}
					}
					wantMatchedDones(t, q)
				})
			})
		}
	}
}

func TestOnStuckThatEndsItsGoroutine(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		var j journal
		q.Add("a")
		q.Add("b")
		r := run(t, worker.New(q, func(context.Context, string) error {
			time.Sleep(time.Minute)
			return nil
		}, options{Workers: 2, StuckAfter: time.Second, OnStuck: func(_ context.Context, s stuck) {
			j.add(fmt.Sprint(s.Key, " ", s.Duration))
			runtime.Goexit()
		}}))
		r.after(time.Hour)
		got := j.take()
		slices.Sort(got)
		if !slices.Equal(got, []string{"a 1s", "b 1s"}) {
			t.Errorf("reported %q", got)
		}
		r.endCleanly()
	})
}

// wantMatchedDones checks that every key that was handed out was Done, and no other.
func wantMatchedDones(t *testing.T, q stringQueue) {
	t.Helper()
	if st := stats(q); st.UnmatchedDones != 0 || st.Processing != 0 || st.Queued != 0 {
		t.Errorf("%+v", st)
	}
}

// panickyLog is a slog.Handler that panics.
type panickyLog struct{}

func (panickyLog) Enabled(context.Context, slog.Level) bool  { return true }
func (panickyLog) Handle(context.Context, slog.Record) error { panic("log") }
func (l panickyLog) WithAttrs([]slog.Attr) slog.Handler      { return l }
func (l panickyLog) WithGroup(string) slog.Handler           { return l }

// A logger that always panics ends Run too, which itself still writes to it.
func TestPanicOfTheLoggerIsFatal(t *testing.T) {
	for name, handle := range map[string]func() error{
		"nil":   func() error { return nil },
		"error": func() error { return errBroken },
		"panic": func() error { panic("handler") },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, q stringQueue) {
				q.Add("a")
				q.Add("b")
				r := run(t, worker.New(q, func(context.Context, string) error { return handle() },
					options{Logger: slog.New(panickyLog{})}))
				err := r.returned()
				var p *worker.PanicError
				if e := left(t, err); !errors.As(err, &p) || p.Value != "log" || !slices.Equal(e.NotStarted, []string{"b"}) {
					t.Errorf("Run returned %v", err)
				}
				wantMatchedDones(t, q)
			})
		})
	}
	t.Run("at the end", func(t *testing.T) {
		inBubble(t, func(t *testing.T, q stringQueue) {
			p := worker.New(q, func(context.Context, string) error { return nil }, options{Logger: slog.New(panickyLog{})})
			setWorkers(t, p, 0)
			r := run(t, p)
			q.Add("a")
			var panicked *worker.PanicError
			if err := r.end(); !errors.As(err, &panicked) || !slices.Equal(left(t, err).NotStarted, []string{"a"}) {
				t.Errorf("Run returned %v", err)
			}
		})
	})
}

// panickyQueue panics in one of its methods.
type panickyQueue struct {
	extended
	method string
}

func (q panickyQueue) in(method string) {
	if q.method == method {
		panic("queue")
	}
}

func (q panickyQueue) ShutDown()         { q.in("ShutDown"); q.extended.ShutDown() }
func (q panickyQueue) Done(key string)   { q.extended.Done(key); q.in("Done") }
func (q panickyQueue) Forget(key string) { q.in("Forget"); q.extended.Forget(key) }
func (q panickyQueue) AddRateLimited(key string) {
	q.in("AddRateLimited")
	q.extended.AddRateLimited(key)
}
func (q panickyQueue) GetContext(ctx context.Context) (string, error) {
	q.in("GetContext")
	return q.extended.GetContext(ctx)
}

// A queue that panics ends Run, also if it does so again while Run ends.
func TestPanicOfTheQueueIsFatal(t *testing.T) {
	for _, method := range []string{"GetContext", "Done", "Forget", "AddRateLimited", "ShutDown"} {
		for _, drain := range []worker.Drain{worker.Running, worker.All} {
			t.Run(fmt.Sprint(method, " drain=", drain), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					q := newQueue()
					q.Add("a")
					r := run(t, worker.New(panickyQueue{q, method}, func(context.Context, string) error {
						if method == "AddRateLimited" {
							return errBroken
						}
						return nil
					}, options{Workers: 2, Drain: drain}))
					var p *worker.PanicError
					if err := r.end(); !errors.As(err, &p) || p.Value != "queue" {
						t.Errorf("Run returned %v", err)
					}
					if st := stats(q); st.UnmatchedDones != 0 || st.Processing != 0 {
						t.Errorf("%+v", st)
					}
				})
			})
		}
	}
}

// logThat calls f when a handler's panic is logged.
type logThat struct {
	slog.Handler
	f func()
}

func (l logThat) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "The handler panicked" {
		l.f()
	}
	return nil
}

// The key is given to the limiter before the panic is logged: whatever the logger does, the key is not lost.
func TestLoggerThatFailsAtAPanic(t *testing.T) {
	for name, f := range map[string]func(){"panics": func() { panic("log") }, "exits": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, q stringQueue) {
				calls := 0
				q.Add("a")
				r := run(t, worker.New(q, func(context.Context, string) error {
					if calls++; calls == 1 {
						panic("handler")
					}
					return nil
				}, options{Logger: slog.New(logThat{panickyLog{}, f})}))
				r.after(time.Minute)
				if name == "exits" {
					r.endCleanly()
					if calls != 2 {
						t.Errorf("%d calls", calls)
					}
				} else if e := left(t, r.returned()); !slices.Equal(e.Failing, []string{"a"}) {
					t.Errorf("left: %+v", e)
				}
				wantMatchedDones(t, q)
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
			r := run(t, worker.New(q, func(context.Context, string) error {
				time.Sleep(10 * time.Second)
				return nil
			}, options{DrainTimeout: drain, CancelGrace: worker.NoGrace, Logger: logger,
				OnFinish: func(context.Context, outcome) { panic("hook") }}))
			r.end()
			r.after(2 * time.Minute)
			if n := strings.Count(logs.String(), `msg="The workers end because of a fatal error" err="panic: hook"`); n != 1 {
				t.Errorf("logged:\n%s", logs)
			}
		})
	}
}

// panickyClock panics at its nth reading, and never again.
type panickyClock struct {
	clock.Clock
	readings *atomic.Int64
	at       int64
}

func (c panickyClock) read() {
	if c.readings.Add(1) == c.at {
		panic("clock")
	}
}

func (c panickyClock) Now() time.Time                         { c.read(); return c.Clock.Now() }
func (c panickyClock) Since(t time.Time) time.Duration        { c.read(); return c.Clock.Since(t) }
func (c panickyClock) NewTimer(d time.Duration) clock.Timer   { c.read(); return c.Clock.NewTimer(d) }
func (c panickyClock) After(d time.Duration) <-chan time.Time { c.read(); return c.Clock.After(d) }

// Whenever the clock panics, Run returns that, every key is Done, and those that were not handled are
// reported.
func TestPanicOfTheClockIsFatal(t *testing.T) {
	for at := int64(1); at <= 8; at++ {
		t.Run(fmt.Sprint("reading ", at), func(t *testing.T) {
			inBubble(t, func(t *testing.T, q stringQueue) {
				var mu sync.Mutex
				var handled []string
				q.Add("a")
				q.Add("b")
				c := panickyClock{clock.RealClock{}, new(atomic.Int64), at}
				r := run(t, worker.New(q, func(_ context.Context, key string) error {
					time.Sleep(3 * time.Second)
					mu.Lock()
					defer mu.Unlock()
					handled = append(handled, key)
					return nil
				}, options{Clock: c, StuckAfter: time.Second, HandlerTimeout: time.Second}))
				r.after(10 * time.Second)
				err := r.end()
				r.after(time.Minute)
				var p *worker.PanicError
				if c.readings.Load() >= at && (!errors.As(err, &p) || p.Value != "clock") {
					t.Errorf("Run returned %v", err)
				}
				if e := new(leftError); errors.As(err, &e) {
					handled = append(handled, e.left.NotStarted...)
				}
				slices.Sort(handled)
				if !slices.Equal(handled, []string{"a", "b"}) {
					t.Errorf("handled or reported: %q", handled)
				}
				wantMatchedDones(t, q)
			})
		})
	}
}

// A clock that panics when the handler has returned does not cost the key its retry.
func TestPanicOfTheClockAfterTheHandler(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		q.Add("a")
		c := panickyClock{clock.RealClock{}, new(atomic.Int64), 2} // Now before the handler, Since after it.
		err := run(t, worker.New(q, func(context.Context, string) error { return errBroken }, options{Clock: c})).returned()
		var p *worker.PanicError
		if !errors.As(err, &p) || p.Value != "clock" || !slices.Equal(left(t, err).Failing, []string{"a"}) {
			t.Errorf("Run returned %v", err)
		}
	})
}
