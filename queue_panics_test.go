package workqueue_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
)

// Locks are unlocked by defer: a caller that recovers a panic of foreign code finds the queue unlocked.
func TestLockIsFreeAfterPanic(t *testing.T) {
	for _, where := range []string{"Queue", "clock", "depth", "latency", "work"} {
		t.Run(where, func(t *testing.T) {
			everyLayer(t, func(t *testing.T, build builder[string]) {
				armed, panicked := false, false
				called := func(what string) {
					if what == where && armed {
						armed, panicked = false, true
						panic(what)
					}
				}
				clock := &testkit.HookedClock{WithTicker: testkit.NewFakeClock(), OnNow: func() { called("clock") }}
				o := options[string]{name: "q", provider: &testkit.Recorder{On: called}, clock: clock}
				if where == "Queue" {
					o.order = &listQueue[string]{On: func(string) { called("Queue") }}
				}
				q := build(o)
				for _, call := range []func(){
					func() { q.Add("a") },
					func() { q.AddCause("b", because("1")) },
					func() { q.Get() },
					func() { q.Done("a") },
					func() { q.ShutDown() },
				} {
					armed = true
					_ = testkit.PanicOf(call)
					armed = false
					if !workqueue.FreeLock[string](q) {
						t.Fatal("the lock is held after a panic")
					}
				}
				if q.ShutDown(); !panicked {
					t.Error("nothing has panicked")
				}
			})
		})
	}
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
