package worker_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

func intQueue() workqueue.TypedRateLimitingInterface[int] {
	return workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[int](time.Second, time.Hour))
}

// A group of pools with different keys, and a function that fills a queue: all run at once, and end
// with the context.
func TestGroup(t *testing.T) {
	inBubble(t, func(t *testing.T, names stringQueue) {
		numbers := intQueue()
		var j journal
		var g worker.Group
		g.Add(worker.New(names, sleeper(&j), options{}))
		g.Add(worker.New(numbers, func(ctx context.Context, n int) error {
			time.Sleep(time.Duration(n) * time.Second)
			j.add("number")
			return nil
		}, worker.Options[int]{}))
		g.Add(worker.RunnerFunc(func(ctx context.Context) error {
			names.Add("3s")
			numbers.Add(5)
			<-ctx.Done()
			return ctx.Err() // No failure: the context has ended.
		}))
		r := run(t, &g)
		r.after(time.Second)
		r.cancel()
		r.after(5*time.Second - 1)
		r.goesOn()
		r.after(5 * time.Second)
		r.returnedLeaving("nothing")
		if got := strings.Join(j.take(), ","); got != "start 3s,return 3s,number" {
			t.Error(got)
		}
	})
}

// The first fatal error ends all, and comes first in what Run returns.
func TestGroupFatal(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		var j journal
		numbers := intQueue()
		var g worker.Group
		addAll(q, "3s 4s")
		numbers.Add(1)
		slow := worker.New(q, sleeper(&j), options{})
		g.Add(slow)
		g.Add(worker.New(numbers, func(ctx context.Context, n int) error {
			time.Sleep(time.Second)
			return worker.Fatal(errBroken)
		}, worker.Options[int]{}))
		r := run(t, &g)
		r.after(3 * time.Second)
		err := r.returned()
		if !errors.Is(err, errBroken) || err.Error() != "broken" || !slices.Equal(slow.Left().NotStarted, []string{"4s"}) {
			t.Errorf("Run returned %v, left: %v", err, slow.Left())
		}
	})
}

func TestGroupGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g worker.Group
		g.Add(worker.New(newQueue(), sleeper(new(journal)), options{}))
		g.Add(worker.RunnerFunc(func(context.Context) error { runtime.Goexit(); return nil }))
		if err := run(t, &g).returned(); err != worker.ErrGoexit || err.Error() != "worker: runtime.Goexit was called" {
			t.Errorf("Run returned %v", err)
		}
	})
}

// Bad input of one pool is reported before anything starts.
func TestGroupBadInput(t *testing.T) {
	var inner, g worker.Group
	inner.Add(worker.New(intQueue(), func(context.Context, int) error { return nil }, worker.Options[int]{StuckAfter: -1}))
	g.Add(worker.RunnerFunc(func(context.Context) error { t.Error("started"); return nil }))
	g.Add(worker.New(newQueue(), nil, options{Workers: -1}))
	g.Add(&inner)
	err := g.Run(t.Context())
	for _, want := range []string{"Workers is negative", "the handler is nil", "StuckAfter is negative"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Run returned %v", err)
		}
	}
}

// A pool that has run, or runs, cannot run again, and nothing else is started for it.
func TestGroupOfAPoolThatRan(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		p := worker.New(q, sleeper(new(journal)), options{})
		r := run(t, p)
		var g worker.Group
		g.Add(worker.RunnerFunc(func(context.Context) error { t.Error("started"); return nil }))
		g.Add(p)
		if err := g.Run(t.Context()); err == nil || err.Error() != "worker: Run was called before on this pool" {
			t.Errorf("Run returned %v", err)
		}
		r.endCleanly()
	})
}

func TestGroupMisuse(t *testing.T) {
	var g worker.Group
	if err := g.Run(t.Context()); err != nil {
		t.Errorf("an empty group returned %v", err)
	}
	if err := g.Run(t.Context()); err == nil || err.Error() != "worker: Run was called before on this group" {
		t.Errorf("the second Run returned %v", err)
	}
	mustPanic := func(want string, f func()) {
		defer func() {
			if v := recover(); v != want {
				t.Errorf("panic %v, want %q", v, want)
			}
		}()
		f()
	}
	mustPanic("worker: Group.Add after Run", func() { g.Add(&worker.Group{}) })
	mustPanic("worker: Group.Add of nil", func() { g.Add(nil) })
	var none context.Context
	if err := new(worker.Group).Run(none); err == nil || err.Error() != "worker: Run without a context" {
		t.Errorf("Run(nil) returned %v", err)
	}
}

// A pool whose queue somebody shuts down, with keys that fail, does not end its group.
func TestGroupGoesOnWithoutAQueue(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		other := newQueue()
		other.Add("a")
		pool := worker.New(other, broken, options{})
		var j journal
		var g worker.Group
		g.Add(pool)
		g.Add(worker.New(q, sleeper(&j), options{}))
		r := run(t, &g)
		other.ShutDown()
		synctest.Wait()
		if !slices.Equal(pool.Left().Failing, []string{"a"}) {
			t.Errorf("left: %v", pool.Left())
		}
		q.Add("1s")
		r.after(time.Second)
		r.goesOn()
		r.endCleanly()
		if len(j.take()) != 2 {
			t.Error("the other pool did not go on")
		}
	})
}
