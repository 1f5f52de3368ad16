package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/worker"
)

// sleeper returns a handler that takes as long as the key says, whatever becomes of its context, and
// writes into the journal when it starts, when its context ends and when it returns.
func sleeper(j *journal) handler {
	return func(ctx context.Context, key string) error {
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

func TestEndWaitsForHandlers(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		var j journal
		q.Add("5s")
		q.Add("8s")
		r := run(t, worker.New(q, sleeper(&j), options{Workers: 2, DrainTimeout: 10 * time.Second, CancelGrace: worker.NoGrace}))
		j.take()
		r.cancel()
		r.after(8*time.Second - 1)
		r.goesOn()
		r.after(8 * time.Second)
		if err := r.returned(); err != nil {
			t.Error(err)
		}
		if got, want := j.take(), []string{"return 5s", "return 8s"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		if !q.ShuttingDown() {
			t.Error("the queue is not shut down")
		}
	})
}

func TestDrainTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		var j journal
		counted := countDone(q)
		q.Add("5s")
		q.Add("1h")
		q.Add("1s")
		q.Add("2s")
		r := run(t, worker.New(counted, sleeper(&j), options{Workers: 2, DrainTimeout: 10 * time.Second, CancelGrace: worker.NoGrace}))
		r.cancel()
		q.Add("3s")
		r.after(10*time.Second - 1)
		r.goesOn()
		if got, want := j.take()[2:], []string{"return 5s"}; !slices.Equal(got, want) {
			t.Errorf("before the timeout: %q, want %q", got, want)
		}
		r.after(10 * time.Second)
		e := left(t, r.returned())
		if !slices.Equal(e.Unfinished, []string{"1h"}) || !slices.Equal(e.NotStarted, []string{"1s", "2s", "3s"}) || e.Failing != nil {
			t.Errorf("left: %+v", e)
		}
		if got := j.take(); len(got) != 1 || !strings.HasPrefix(got[0], "end 1h: worker: the time to finish") {
			t.Errorf("at the timeout: %q", got)
		}
		if q.Len() != 0 {
			t.Errorf("%d keys are still queued", q.Len())
		}
		// The handler that was left behind holds its key until it returns.
		if _, done := counted.counts("1h"); done != 0 {
			t.Error("Done before the handler returned")
		}
		r.after(time.Hour)
		for _, key := range []string{"5s", "1h", "1s", "2s", "3s"} {
			if _, done := counted.counts(key); done != 1 {
				t.Errorf("%d Dones of %s", done, key)
			}
		}
		if got := j.take(); !slices.Equal(got, []string{"return 1h"}) {
			t.Errorf("after all: %q", got)
		}
	})
}

// What is added after the end of the context is not started, although workers are idle. The handler that runs
// keeps the pool from shutting the queue down, which would drop the key.
func TestNothingStartsAfterTheEnd(t *testing.T) {
	for _, drain := range []worker.Drain{worker.Running, worker.Nothing} {
		inBubble(t, func(t *testing.T, q stringQueue) {
			var j journal
			q.Add("5s")
			r := run(t, worker.New(q, sleeper(&j), options{Workers: 3, Drain: drain}))
			r.cancel()
			q.Add("1s")
			r.after(5 * time.Second)
			if e := left(t, r.returned()); !slices.Equal(e.NotStarted, []string{"1s"}) || slices.Contains(j.take(), "start 1s") {
				t.Errorf("left: %+v", e)
			}
		})
	}
}

func TestContextThatHasEnded(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		q.Add("1s")
		var j journal
		p := worker.New(q, sleeper(&j), options{})
		if e := left(t, withLeft(p, p.Run(ctx))); !slices.Equal(e.NotStarted, []string{"1s"}) || j.take() != nil {
			t.Errorf("left: %+v", e)
		}
	})
}

func TestDrainAll(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		var j journal
		for i := 1; i <= 4; i++ {
			q.Add(fmt.Sprint(i, "s"))
		}
		q.AddAfter("5s", time.Minute) // It is dropped.
		r := run(t, worker.New(q, sleeper(&j), options{Drain: worker.All, DrainTimeout: time.Minute, CancelGrace: worker.NoGrace}))
		q.Add("1s") // While it is handled: it comes again.
		r.cancel()
		synctest.Wait()
		q.Add("9s") // Too late.
		r.after(11*time.Second - 1)
		r.goesOn()
		r.after(11 * time.Second)
		if err := r.returned(); err != nil {
			t.Error(err)
		}
		want := "start 1s,return 1s,start 2s,return 2s,start 3s,return 3s,start 4s,return 4s,start 1s,return 1s"
		if got := strings.Join(j.take(), ","); got != want {
			t.Errorf("%s", got)
		}
	})
}

func TestDrainAllWithinTheTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		var j journal
		for i := 3; i <= 6; i++ {
			q.Add(fmt.Sprint(i, "s"))
		}
		r := run(t, worker.New(q, sleeper(&j), options{Drain: worker.All, DrainTimeout: 9 * time.Second, CancelGrace: worker.NoGrace}))
		r.cancel()
		r.after(9 * time.Second)
		e := left(t, r.returned())
		if !slices.Equal(e.Unfinished, []string{"5s"}) || !slices.Equal(e.NotStarted, []string{"6s"}) {
			t.Errorf("left: %+v", e)
		}
		r.after(time.Minute)
		if q.Len() != 0 || !strings.HasSuffix(strings.Join(j.take(), ","), "return 5s") {
			t.Errorf("%q", j.take())
		}
	})
}

// A key that fails while the queue is finished cannot come again: it is reported. One that is queued once
// more, and then succeeds, is not.
func TestFailingDuringTheDrain(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		for _, key := range []string{"a", "b", "c", "d", "e"} {
			q.Add(key)
		}
		calls := make(map[string]int)
		r := run(t, worker.New(q, func(ctx context.Context, key string) error {
			calls[key]++
			if key == "a" && calls[key] == 1 {
				q.Add(key) // The context has not ended yet.
			}
			time.Sleep(time.Second)
			switch {
			case key == "c", calls[key] == 2:
				return nil
			case key == "d":
				return worker.RequeueAfter(time.Minute)
			case key == "e":
				return worker.Terminal(errBroken)
			}
			return errBroken
		}, options{Drain: worker.All}))
		r.cancel()
		r.after(6 * time.Second)
		e := left(t, r.returned())
		if !slices.Equal(e.Failing, []string{"b"}) || e.Unfinished != nil || e.NotStarted != nil || calls["a"] != 2 {
			t.Errorf("left: %+v, calls: %v", e, calls)
		}
	})
}

// A key that waits for its retry at the end is left undone as well.
func TestFailingBeforeTheEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		for _, key := range []string{"c", "a", "b"} {
			q.Add(key)
		}
		r := run(t, worker.New(q, func(ctx context.Context, key string) error {
			if key == "b" {
				return worker.RequeueAfter(time.Hour)
			}
			return errBroken
		}, options{}))
		r.cancel()
		if e := left(t, r.returned()); !slices.Equal(e.Failing, []string{"a", "c"}) || e.NotStarted != nil {
			t.Errorf("left: %+v", e)
		}
	})
}

// A key that has failed is reported once, by what it is now.
func TestEachKeyIsReportedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		for _, key := range []string{"a", "b", "waits"} {
			q.Add(key)
		}
		p := worker.New(q, func(ctx context.Context, key string) error {
			if worker.Attempt(ctx) > 1 {
				time.Sleep(time.Hour)
				return nil
			}
			if key == "waits" {
				time.Sleep(time.Second)
			}
			return errBroken
		}, options{Workers: 3, DrainTimeout: 400 * time.Millisecond, CancelGrace: worker.NoGrace})
		r := run(t, p)
		setWorkers(t, p, 1)
		r.after(1500 * time.Millisecond) // One runs again; the other one that was due at 1 s is queued.
		r.cancel()
		r.after(1900 * time.Millisecond)
		e := left(t, r.returned())
		all := slices.Concat(e.Unfinished, e.NotStarted, e.Failing)
		slices.Sort(all)
		if len(e.Unfinished) != 1 || len(e.NotStarted) != 1 || !slices.Equal(e.Failing, []string{"waits"}) ||
			!slices.Equal(all, []string{"a", "b", "waits"}) {
			t.Errorf("left: %+v", e)
		}
		r.after(2 * time.Hour)
	})
}

// By default Run waits for 30 s, and then for one more second.
func TestDefaultDrainTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		var j journal
		q.Add("1m")
		r := run(t, worker.New(q, sleeper(&j), options{}))
		r.cancel()
		r.after(30*time.Second - 1)
		if lines := j.take(); len(lines) != 1 {
			t.Errorf("too early: %q", lines)
		}
		r.after(30 * time.Second)
		if lines := j.take(); len(lines) != 1 || !strings.HasPrefix(lines[0], "end 1m") {
			t.Errorf("at the timeout: %q", lines)
		}
		r.after(31*time.Second - 1)
		r.goesOn()
		r.after(31 * time.Second)
		left(t, r.returned())
		r.after(time.Minute)
	})
}

func TestNoDrainTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		var j journal
		q.Add("10000h")
		r := run(t, worker.New(q, sleeper(&j), options{DrainTimeout: math.MaxInt64, CancelGrace: worker.NoGrace}))
		r.endCleanly()
		r.after(10000 * time.Hour)
	})
}

// Somebody else's shutdown ends Run when the queue is empty, and no time limit counts.
func TestQueueIsShutDown(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		var j journal
		for i := 1; i <= 4; i++ {
			q.Add(fmt.Sprint(i, "h"))
		}
		r := run(t, worker.New(q, sleeper(&j), options{Workers: 2, DrainTimeout: time.Second, CancelGrace: worker.NoGrace}))
		q.ShutDown()
		r.after(6 * time.Hour)
		if err := r.returned(); err != nil || len(j.take()) != 8 {
			t.Errorf("Run returned %v, %q", err, j.take())
		}
	})
}

// While somebody drains the queue, a key comes again that is added while it is handled: also if all other
// workers have left because they found the queue empty.
func TestQueueIsDrained(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		var j journal
		q.Add("1h")
		r := run(t, worker.New(q, sleeper(&j), options{Workers: 3}))
		q.Add("1h")
		drained := make(chan struct{})
		go func() {
			defer close(drained)
			q.ShutDownWithDrain()
		}()
		r.after(2 * time.Hour)
		if err := r.returned(); err != nil || len(j.take()) != 4 {
			t.Errorf("Run returned %v", err)
		}
		<-drained
	})
}

// A fatal error ends Run as the end of its context does, and is what Run returns.
func TestFatal(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		q.Add("slow")
		q.Add("fatal")
		q.Add("queued")
		r := run(t, worker.New(q, func(ctx context.Context, key string) error {
			time.Sleep(time.Second)
			if key == "fatal" {
				return fmt.Errorf("gone: %w", worker.Fatal(errBroken))
			}
			time.Sleep(time.Second)
			return ctx.Err()
		}, options{Workers: 2}))
		r.after(2 * time.Second)
		err := r.returned()
		if e := left(t, err); !errors.Is(err, errBroken) || e.Failing != nil || !slices.Equal(e.NotStarted, []string{"queued"}) {
			t.Errorf("Run returned %v", err)
		}
	})
}

// Of several fatal errors the first one counts, for Run and for those who read the log.
func TestFirstFatalErrorCounts(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		logger, logs := newLogger()
		q.Add("1s")
		q.Add("2s")
		r := run(t, worker.New(q, func(ctx context.Context, key string) error {
			d, err := time.ParseDuration(key)
			time.Sleep(d)
			return worker.Fatal(errors.Join(err, errors.New(key)))
		}, options{Workers: 2, Logger: logger}))
		r.after(2 * time.Second)
		if err := r.returned(); err == nil || err.Error() != "1s" {
			t.Errorf("Run returned %v", err)
		}
		if n := strings.Count(logs.String(), "because of a fatal error"); n != 1 {
			t.Errorf("logged:\n%s", logs)
		}
	})
}

// brokenQueue has a GetContext that fails for reasons of its own.
type brokenQueue struct{ extended }

func (brokenQueue) GetContext(context.Context) (string, error) { return "", errBroken }

func TestGetContextThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		err := run(t, worker.New(brokenQueue{q}, sleeper(new(journal)), options{Workers: 3})).returned()
		if !errors.Is(err, errBroken) {
			t.Errorf("Run returned %v", err)
		}
	})
}
