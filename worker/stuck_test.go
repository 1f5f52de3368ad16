package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/keyedqueue/workqueue/worker"
)

func TestHandlerTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		var results []outcome
		q.Add("a")
		r := run(t, worker.New(q, func(ctx context.Context, key string) error {
			if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) != 3*time.Second {
				t.Errorf("the deadline is %v, %v", deadline, ok)
			}
			if worker.CallOf(ctx).Attempt() == 1 {
				<-ctx.Done()
			}
			return ctx.Err()
		}, options{HandlerTimeout: 3 * time.Second, OnFinish: func(_ context.Context,
			r outcome) {
			results = append(results, r)
		}}))
		r.after(time.Minute)
		if len(results) != 2 || results[0].Duration != 3*time.Second ||
			!errors.Is(results[0].Err, context.DeadlineExceeded) {
			t.Errorf("results: %+v", results)
		}
		r.endCleanly()
	})
}

// On a clock that the context package knows nothing of, the cause is the same.
func TestHandlerTimeoutOnFakeClock(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		clock := testingclock.NewFakeClock(time.Unix(0, 0))
		var errs []error
		q.Add("a")
		r := run(t, worker.New(q, func(ctx context.Context, key string) error {
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			<-child.Done()
			errs = append(errs, context.Cause(ctx), context.Cause(child))
			return nil
		}, options{HandlerTimeout: 3 * time.Second, DrainTimeout: time.Second, CancelGrace: time.Minute,
			Clock: clock}))
		clock.Step(3*time.Second - 1)
		r.after(time.Hour)
		if errs != nil {
			t.Fatal("the context ended too early")
		}
		clock.Step(1)
		synctest.Wait()
		if e := context.DeadlineExceeded; !slices.Equal(errs, []error{e, e}) {
			t.Errorf("%v", errs)
		}
		// The end of the parent reaches it too.
		q.Add("b")
		errs = nil
		synctest.Wait()
		r.cancel()
		synctest.Wait()
		r.goesOn()
		clock.Step(time.Second)
		r.returnedLeaving("nothing")
		if errs[0] != worker.ErrDrainTimeout {
			t.Errorf("the context's errors were %v", errs)
		}
	})
}

// Each stuck call is reported once, at its time, with its key; it keeps its key, and other workers continue.
func TestStuck(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		var j journal
		logger, logs := newLogger()
		start := time.Now()
		r := run(t, worker.New(q, acts, options{
			Workers: 3, HandlerTimeout: 10 * time.Second, StuckAfter: 5 * time.Second, Logger: logger, Name: "q",
			OnStuck: func(_ context.Context, s stuck) {
				j.add(fmt.Sprint(s.Key, " ", s.Duration, " at ", time.Since(start)))
			},
		}))
		r.after(2 * time.Second)
		q.Add("1h")
		r.after(3 * time.Second)
		addAll(q, "14s 16s")
		r.after(10 * time.Minute)
		equal(t, "got", j.take(), "1h 15s at 17s", "16s 15s at 18s")
		if held(q) != 1 {
			t.Error("a stuck handler lost its key")
		}
		if n := strings.Count(logs.String(),
			`level=WARN msg="A handler is stuck" queue=q key=1h running=15s`); n != 1 {
			t.Errorf("logged:\n%s", logs)
		}
		r.after(2 * time.Hour)
		wantMatchedDones(t, q)
		// The next call of the same key is another one.
		q.Add("1h")
		r.after(3 * time.Hour)
		equal(t, "got", j.take(), "1h 15s at 2h0m15s")
		r.endCleanly()
	})
}

// A call that takes a minute is reported at its time, once, also while Run waits for it.
func TestStuckAfter(t *testing.T) {
	for name, c := range map[string]struct {
		o    options
		end  bool // Run's context has ended by then
		want []string
	}{
		"without a timeout": {options{StuckAfter: 5 * time.Second}, false,
			[]string{"a 5s at 5s", "b 5s at 1m5s"}},
		"with a timeout": {options{StuckAfter: 5 * time.Second, HandlerTimeout: 10 * time.Second}, false,
			[]string{"a 15s at 15s", "b 15s at 1m15s"}},
		"during the grace": {options{StuckAfter: 5 * time.Second, DrainTimeout: time.Second,
			CancelGrace: time.Hour}, true, []string{"a 5s at 5s"}},
		"never":               {options{}, false, nil},
		"times that overflow": {options{StuckAfter: time.Second, HandlerTimeout: math.MaxInt64}, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, q stringQueue) {
				var j journal
				start := time.Now()
				c.o.OnStuck = func(_ context.Context, s stuck) {
					j.add(fmt.Sprint(s.Key, " ", s.Duration, " at ", time.Since(start)))
				}
				q.Add("a")
				q.Add("b") // The same worker's next call.
				r := run(t, worker.New(q, takes(time.Minute), c.o))
				if c.end {
					r.cancel()
				}
				r.after(time.Hour)
				if got := j.take(); !slices.Equal(got, c.want) {
					t.Errorf("%q, want %q", got, c.want)
				}
				r.end()
			})
		})
	}
}

func TestStuckOnAFakeClock(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		clock := testingclock.NewFakeClock(time.Unix(0, 0))
		var j journal
		r := run(t, worker.New(q, takes(time.Minute), options{StuckAfter: 5 * time.Second, Clock: clock,
			OnStuck: func(_ context.Context, s stuck) {
				j.add(fmt.Sprint(s.Key, " ", s.Duration))
			}}))
		clock.Step(time.Second)
		q.Add("a")
		synctest.Wait()
		for _, want := range [][]string{4: {"a 5s"}, 6: nil} {
			clock.Step(time.Second)
			synctest.Wait()
			if got := j.take(); !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		}
		r.after(time.Minute)
		r.endCleanly()
	})
}

// Neither Run nor the reports of other handlers wait for a hook that blocks.
func TestOnStuckThatBlocks(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		var j journal
		addAll(q, "a b")
		r := run(t, worker.New(q, takes(time.Minute), options{
			Workers: 2, StuckAfter: time.Second, DrainTimeout: time.Second, CancelGrace: worker.NoGrace,
			OnStuck: func(context.Context, stuck) { j.add("reported"); time.Sleep(time.Hour) },
		}))
		r.after(2 * time.Second)
		if n := len(j.take()); n != 2 {
			t.Errorf("%d reports", n)
		}
		r.cancel()
		r.after(3 * time.Second)
		_ = r.returned()
		r.after(2 * time.Hour)
	})
}

//go:noinline
func sleepHere(d time.Duration) { time.Sleep(d) }

//go:noinline
func sleepThere(d time.Duration) { time.Sleep(d) }

func sleepFarDown(n int, d time.Duration) {
	if n == 0 {
		time.Sleep(d)
		return
	}
	sleepFarDown(n-1, d)
}

// The report of a stuck handler has the stack of its goroutine alone, at most 8 KiB, also if there are very
// many others and if an earlier handler has ended the worker's first goroutine. So has SnapshotKey.
func TestStackOfStuckHandlers(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		logs := new(logBuffer)
		var mu sync.Mutex // for reports
		var reports []stuck
		p := worker.New(q, func(ctx context.Context, key string) error {
			switch key {
			case "exits":
				runtime.Goexit()
			case "here":
				sleepHere(time.Minute)
			case "there":
				sleepThere(time.Minute)
			case "far down":
				sleepFarDown(1000, time.Minute)
			}
			return worker.Terminal(errBroken)
		}, options{Workers: 3, StuckAfter: time.Second, Logger: slog.New(slog.NewTextHandler(logs, nil)),
			OnStuck: func(_ context.Context, s stuck) {
				mu.Lock()
				defer mu.Unlock()
				reports = append(reports, s)
			}})
		for range 3 {
			q.Add("exits")
		}
		r := run(t, p)
		end := make(chan struct{})
		for range 1000 {
			go func() { <-end }()
		}
		for _, key := range []string{"here", "there", "far down"} {
			q.Add(key)
		}
		r.after(10 * time.Second)
		close(end)
		wants := map[string]string{"here": "sleepHere", "there": "sleepThere", "far down": "sleepFarDown"}
		if len(reports) != 3 {
			t.Errorf("%d reports", len(reports))
		}
		for _, report := range reports {
			for key, function := range wants {
				if found := strings.Contains(report.Stack, function); found != (key == report.Key) {
					t.Errorf("the stack of %s has %s: %v\n%s", report.Key, function, found, report.Stack)
				}
			}
			if n := len(report.Stack); n > 8<<10 || report.Key == "far down" && n < 8<<10-4 {
				t.Errorf("%d bytes of %s", n, report.Key)
			}
			if strings.Contains(report.Stack, "\n\n") || !strings.HasPrefix(report.Stack, "goroutine ") {
				t.Errorf("the stack of %s:\n%s", report.Key, report.Stack)
			}
			if k := p.SnapshotKey(report.Key); k.Running == nil || k.Running.Stack != report.Stack ||
				!k.Running.Stuck {
				t.Errorf("SnapshotKey of %s: %+v", report.Key, k.Running)
			}
		}
		for _, k := range p.Snapshot(10).Running {
			if k.Stack == "" || !k.Stuck {
				t.Errorf("in a Snapshot: %+v", k)
			}
		}
		if got := logs.String(); !strings.Contains(got, "sleepHere") {
			t.Errorf("logged:\n%s", got)
		}
		r.after(2 * time.Minute)
		r.end()
	})
}
