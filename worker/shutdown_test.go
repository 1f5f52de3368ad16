package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// sleeper returns a handler that takes as long as the key says, even if its context ends, and writes
// into the journal when it starts, when its context ends and when it returns. The key "obeys" returns when
// its context ends, and "obeys late" two seconds later.
func sleeper(j *journal) handler {
	return func(ctx context.Context, key string) error {
		if strings.HasPrefix(key, "obeys") {
			<-ctx.Done()
			if key == "obeys late" {
				time.Sleep(2 * time.Second)
			}
			return nil
		}
		d, err := time.ParseDuration(key)
		if err != nil {
			return worker.Terminal(err)
		}
		j.add("start " + key)
		stop := context.AfterFunc(ctx, func() { j.add(fmt.Sprint("end ", key, ": ", context.Cause(ctx))) })
		time.Sleep(d)
		stop()
		j.add("return " + key)
		return nil
	}
}

// ending is what a test does with a pool that runs.
type ending struct {
	*running
	p *worker.Pool[string]
	q stringQueue
}

// TestEnd ends Run in every way there is, while handlers run that take as long as their keys say.
func TestEnd(t *testing.T) {
	const noGrace = worker.NoGrace
	cancel := func(e ending) { e.cancel() }
	stop := func(drains ...worker.Drain) func(e ending) {
		return func(e ending) {
			for _, d := range drains {
				e.p.Stop(d)
			}
		}
	}
	for _, c := range []struct {
		name string
		keys string // that are queued when Run begins
		o    options
		end  func(e ending)
		at   time.Duration // when Run returns, after it was called
		left string
	}{
		{"waits for handlers", "5s 8s", options{Workers: 2, DrainTimeout: 10 * time.Second, CancelGrace: noGrace},
			cancel, 8 * time.Second, "nothing"},
		{"waits for 30 s and one more", "1m", options{}, cancel, 31 * time.Second, "1 still running: 1m"},
		{"waits forever", "10000h", options{DrainTimeout: math.MaxInt64, CancelGrace: noGrace}, cancel,
			10000 * time.Hour, "nothing"},
		{"drops what is added too late", "5s", options{Workers: 3},
			func(e ending) { e.cancel(); e.q.Add("1s") }, 5 * time.Second, "1 queued and not started: 1s"},

		{"DrainTimeout", "5s 1h 1s 2s", options{Workers: 2, DrainTimeout: 10 * time.Second, CancelGrace: noGrace},
			func(e ending) { e.cancel(); e.q.Add("3s") }, 10 * time.Second,
			"1 still running: 1h; 3 queued and not started: 1s, 2s, 3s"},
		{"DrainTimeout, All", "3s 4s 5s 6s", options{Drain: worker.All, DrainTimeout: 9 * time.Second,
			CancelGrace: noGrace},
			cancel, 9 * time.Second, "1 still running: 5s; 1 queued and not started: 6s"},
		{"All", "1s 2s 3s", options{Drain: worker.All}, cancel, 6 * time.Second, "nothing"},
		{"All drops keys that wait", "1s", options{Drain: worker.All},
			func(e ending) { e.q.AddAfter("5s", time.Minute); e.cancel() }, time.Second, "nothing"},

		{"CancelGrace", "obeys obeys-late 1h", options{Workers: 3, DrainTimeout: 10 * time.Second,
			CancelGrace: 3 * time.Second},
			cancel, 13 * time.Second, "1 still running: 1h"},
		{"CancelGrace ends with the handlers", "obeys obeys-late",
			options{Workers: 2, DrainTimeout: 10 * time.Second, CancelGrace: time.Hour},
			cancel, 12 * time.Second, "nothing"},
		{"CancelGrace starts nothing", "3s 4s 5s", options{Drain: worker.All, DrainTimeout: 5 * time.Second,
			CancelGrace: time.Minute},
			cancel, 7 * time.Second, "1 queued and not started: 5s"},
		{"CancelGrace is a second", "1h", options{Drain: worker.Nothing}, cancel, time.Second,
			"1 still running: 1h"},
		{"NoGrace needs no clock", "1h", options{Drain: worker.Nothing, CancelGrace: noGrace,
			Clock: testingclock.NewFakeClock(time.Time{})},
			cancel, 0, "1 still running: 1h"},
		{"Nothing needs no clock", "obeys", options{Drain: worker.Nothing,
			Clock: testingclock.NewFakeClock(time.Time{})}, cancel, 0, "nothing"},

		// All would shut the queue down, and take no other key.
		{"Stop(Running)", "3s 4s", options{Drain: worker.All}, func(e ending) {
			stop(worker.Running, worker.Running, worker.All)(e)
			e.q.Add("6s")
		}, 3 * time.Second, "2 queued and not started: 4s, 6s"},
		{"Stop(Running) with idle workers", "5s", options{Workers: 3},
			func(e ending) { e.p.Stop(worker.Running); e.q.Add("1s") }, 5 * time.Second,
			"1 queued and not started: 1s"},
		{"Stop(All)", "3s 4s", options{}, stop(worker.All), 7 * time.Second, "nothing"},
		{"Stop(All), then the context", "3s 4s 5s", options{}, func(e ending) {
			e.p.Stop(worker.All)
			e.after(5 * time.Second)
			e.cancel()
		}, 7 * time.Second, "1 queued and not started: 5s"},
		{"the context with All, then Stop(Running): the limit stays", "3s 4s 5s",
			options{Drain: worker.All, DrainTimeout: 6 * time.Second, CancelGrace: noGrace}, func(e ending) {
				e.cancel()
				e.after(5 * time.Second)
				e.p.Stop(worker.Running)
			}, 6 * time.Second, "1 still running: 4s; 1 queued and not started: 5s"},
		{"Stop(Nothing)", "3s 4s", options{CancelGrace: noGrace}, stop(worker.Nothing, worker.Nothing), 0,
			"1 still running: 3s; 1 queued and not started: 4s"},
		{"Stop(Running), then Nothing", "obeys 4s", options{}, func(e ending) {
			e.p.Stop(worker.Running)
			e.after(time.Second)
			e.goesOn()
			e.p.Stop(worker.Nothing)
		}, time.Second, "1 queued and not started: 4s"},

		// Somebody else's shutdown ends Run when the queue is empty, and no limit counts.
		{"the queue is shut down", "1h 2h 3h 4h", options{Workers: 2, DrainTimeout: time.Second,
			CancelGrace: noGrace},
			func(e ending) { e.q.ShutDown() }, 6 * time.Hour, "nothing"},
		// The key that was added while it was handled is handled again, also if all other workers have left because
		// they found the queue empty.
		{"the queue is drained", "1h", options{Workers: 3}, func(e ending) {
			e.q.Add("1h")
			go e.q.ShutDownWithDrain()
		}, 2 * time.Hour, "nothing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, q stringQueue) {
				for _, key := range strings.Fields(c.keys) {
					q.Add(strings.ReplaceAll(key, "-", " "))
				}
				p := worker.New(q, sleeper(new(journal)), c.o)
				r := run(t, p)
				c.end(ending{r, p, q})
				if time.Since(r.begun) < c.at {
					r.after(c.at - 1)
					r.goesOn()
				}
				r.after(c.at)
				r.returnedLeaving(c.left)
				if !q.ShuttingDown() || held(q) != len(p.Left().Unfinished) {
					t.Errorf("shut down: %v, %d keys are held", q.ShuttingDown(), held(q))
				}
				r.after(10001 * time.Hour) // Handlers that were left behind return.
				wantMatchedDones(t, q)
			})
		})
	}
}

// What is stopped before Run, or whose context has ended, starts nothing, unless it is All.
func TestStopBeforeRun(t *testing.T) {
	for name, c := range map[string]struct {
		stop    worker.Drain
		workers int
		handled int
	}{
		"Running": {worker.Running, 1, 0}, "All": {worker.All, 1, 2}, "Nothing": {worker.Nothing, 1, 0},
		"All, without workers": {worker.All, 0, 0}, "Running, without workers": {worker.Running, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, q stringQueue) {
				var j journal
				addAll(q, "1s 2s")
				p := worker.New(q, sleeper(&j), options{CancelGrace: time.Minute})
				setWorkers(t, p, c.workers)
				p.Stop(c.stop)
				r := run(t, p)
				r.after(3 * time.Second)
				_ = r.returned()
				if got := len(j.take()); got != 2*c.handled || len(p.Left().NotStarted) != 2-c.handled {
					t.Errorf("%d events, left: %v", got, p.Left())
				}
			})
		})
	}
	inBubble(t, func(t *testing.T, q stringQueue) {
		q.Add("1s")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		runIn(ended, t, worker.New(q, acts, options{})).returnedLeaving("1 queued and not started: 1s")
	})
}

// A fatal error ends Run as the end of its context does, and is what Run returns. Of several the first one
// counts, also in the log.
func TestFatal(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		logger, logs := newLogger()
		addAll(q, "2s 1s queued")
		p := worker.New(q, func(ctx context.Context, key string) error {
			d, _ := time.ParseDuration(key)
			time.Sleep(d)
			return fmt.Errorf("after %v: %w", d, worker.Fatal(errBroken))
		}, options{Workers: 2, Logger: logger, Drain: worker.All})
		r := run(t, p)
		r.after(2 * time.Second)
		err := r.returned()
		if !errors.Is(err, errBroken) || !strings.HasPrefix(err.Error(), "after 1s: broken") ||
			p.Left().String() != "1 queued and not started: queued" {
			t.Errorf("Run returned %v", err)
		}
		if n := strings.Count(logs.String(), "because of a fatal error"); n != 1 {
			t.Errorf("logged:\n%s", logs)
		}
	})
}

// brokenQueue has a GetContext that fails for reasons of its own.
type brokenQueue struct{ extended }

func (brokenQueue) Next(context.Context) (h workqueue.HandOut[string], err error) {
	return h, errBroken
}

func TestGetContextThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		err := run(t, worker.New(brokenQueue{newQueue()}, sleeper(new(journal)), options{Workers: 3})).returned()
		if !errors.Is(err, errBroken) {
			t.Errorf("Run returned %v", err)
		}
	})
}

// A handler's context ends for the reason for which the pool ends.
func TestCauseOfTheEnd(t *testing.T) {
	errGone := errors.New("leadership is lost")
	for _, c := range []struct {
		name   string
		o      options
		cancel bool         // Run's context
		stop   worker.Drain // half a second later
		want   error
	}{
		{"DrainTimeout", options{DrainTimeout: time.Second}, true, worker.Running, worker.ErrDrainTimeout},
		{"DrainTimeout after Stop", options{DrainTimeout: time.Second}, false, worker.Running,
			worker.ErrDrainTimeout},
		{"Stop(Nothing)", options{}, false, worker.Nothing, worker.ErrStopped},
		{"Stop(Nothing) during the drain", options{}, true, worker.Nothing, worker.ErrStopped},
		{"Drain is Nothing", options{Drain: worker.Nothing}, true, worker.Running, errGone},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, q stringQueue) {
				var cause error
				q.Add("a")
				p := worker.New(q, func(ctx context.Context, key string) error {
					<-ctx.Done()
					cause = context.Cause(ctx)
					return nil
				}, c.o)
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				r := runIn(ctx, t, p)
				if c.cancel {
					cancel(errGone)
					r.after(time.Second / 2)
				}
				p.Stop(c.stop)
				if err := <-r.result; err != nil || cause != c.want {
					t.Errorf("Run returned %v, the cause is %v, want %v", err, cause, c.want)
				}
			})
		})
	}
}

// A queue that is shut down already hands out what it has left.
func TestRunOverAQueueThatIsShutDown(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		var j journal
		addAll(q, "1s 2s")
		q.ShutDown()
		r := run(t, worker.New(q, sleeper(&j), options{}))
		r.after(3 * time.Second)
		r.returnedLeaving("nothing")
		equal(t, "handled", j.take(), "start 1s", "return 1s", "start 2s", "return 2s")
		run(t, worker.New(q, sleeper(&j), options{})).returnedLeaving("nothing")
	})
}
