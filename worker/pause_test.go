package worker_test

import (
	"context"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/worker"
)

// A key that interrupts itself again and again, and has a hold, too, pauses when the hold is released before
// the pause ends. That is no hold that has come to its limit, and a shutdown ends it.
func TestPauseThatOutlastsHold(t *testing.T) {
	overNotifying(t, func(t *testing.T, q notifying) {
		var fine atomic.Bool
		p := worker.New(q, func(ctx context.Context, key string) error {
			if fine.Load() {
				return nil
			}
			call := worker.CallOf(ctx)
			call.Hold("the cache shows it", time.Minute, func(release func()) {
				time.AfterFunc(time.Millisecond,
					release)
			})
			until := call.UntilAdded()
			q.Add(key)
			<-until.Done()
			return until.Err()
		}, options{Drain: worker.All})
		q.Add("a")
		r := run(t, p)
		r.after(time.Minute)
		if st := p.Stats(); st.Looping != 1 || st.HeldToLimit != 0 {
			t.Errorf("%+v", st)
		}
		fine.Store(true)
		r.cancel()
		r.returnedLeaving("nothing")
	})
}

// A key whose pause a shutdown ends is handled at once, although another one is on hold.
func TestPauseEndsBesideHold(t *testing.T) {
	overNotifying(t, func(t *testing.T, q notifying) {
		var down atomic.Bool
		var handled atomic.Int64 // after the shutdown
		p := worker.New(q, func(ctx context.Context, key string) error {
			switch {
			case down.Load():
				handled.Add(1)
				return nil
			case key == "held":
				return worker.Hold("for long", time.Hour, func(func()) {})
			}
			q.Add(key)
			return worker.ErrAdded
		}, options{})
		q.Add("held")
		q.Add("loops")
		r := run(t, p)
		r.after(time.Minute)
		if st := p.Stats(); st.Looping != 1 || st.Held != 2 {
			t.Errorf("%+v", st)
		}
		down.Store(true)
		q.ShutDown()
		r.after(time.Minute + time.Second)
		if n := handled.Load(); n != 1 {
			t.Errorf("the key that looped was handled %d times within a second of the shutdown", n)
		}
		p.Release("held")
		r.returnedLeaving("nothing")
	})
}

// A key whose pause a shutdown ends is handled at once by a worker that is free, although another one is busy.
func TestPauseEndsBesideBusyWorker(t *testing.T) {
	overNotifying(t, func(t *testing.T, q notifying) {
		var down atomic.Bool
		var handled atomic.Int64 // after the shutdown
		p := worker.New(q, func(ctx context.Context, key string) error {
			switch {
			case key == "busy":
				time.Sleep(time.Hour)
				return nil
			case down.Load():
				handled.Add(1)
				return nil
			}
			q.Add(key)
			return worker.ErrAdded
		}, options{Workers: 2})
		q.Add("busy")
		q.Add("loops")
		r := run(t, p)
		r.after(time.Minute)
		down.Store(true)
		q.ShutDown()
		r.after(time.Minute + time.Second)
		if n := handled.Load(); n != 1 {
			t.Errorf("the key that looped was handled %d times within a second of the shutdown", n)
		}
		r.after(2 * time.Hour)
		r.returnedLeaving("nothing")
	})
}

// shutsDownMeanwhile is a queue that is shut down while ShuttingDown returns: once it is armed, to a function
// of this name.
type shutsDownMeanwhile struct {
	notifying
	function string
	armed    atomic.Bool
	shutDown func()
}

func (q *shutsDownMeanwhile) ShuttingDown() bool {
	before := q.notifying.ShuttingDown()
	if q.armed.Load() && isCalledBy(q.function) && q.armed.CompareAndSwap(true, false) {
		q.shutDown()
		time.Sleep(time.Millisecond)
	}
	return before
}

// isCalledBy reports whether the method that calls it was called by a method of that name.
func isCalledBy(method string) bool {
	callers := make([]uintptr, 2)
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers)])
	caller, _ := frames.Next()
	return strings.HasSuffix(caller.Function, "."+method)
}

// A pause that begins while the queue is shut down does not delay the end.
func TestPauseDuringShutdown(t *testing.T) {
	for function, answer := range map[string]func(q *shutsDownMeanwhile, last bool) error{
		"update": func(q *shutsDownMeanwhile, last bool) error {
			return worker.Hold("it has happened", time.Minute, func(release func()) {
				time.AfterFunc(time.Microsecond, func() {
					if last {
						q.armed.Store(true)
					}
					release()
				})
			})
		},
		"pauseIfLooping": func(q *shutsDownMeanwhile, last bool) error {
			q.Add("a")
			q.armed.Store(last)
			return worker.ErrAdded
		},
	} {
		t.Run(function, func(t *testing.T) {
			overNotifying(t, func(t *testing.T, q notifying) {
				late := &shutsDownMeanwhile{notifying: q, function: function}
				var fine, last atomic.Bool
				p := worker.New(late, func(context.Context, string) error {
					if fine.Load() {
						return nil
					}
					return answer(late, last.Load())
				}, options{Workers: 2, Drain: worker.All})
				q.Add("a")
				r := run(t, p)
				late.shutDown = func() {
					fine.Store(true)
					r.cancel()
				}
				r.after(time.Minute)
				last.Store(true)
				var end time.Duration
				for !fine.Load() && end < time.Minute {
					end += time.Second
					r.after(time.Minute + end)
				}
				r.after(time.Minute + end + time.Second)
				r.returnedLeaving("nothing")
			})
		})
	}
}
