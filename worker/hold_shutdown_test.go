package worker_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"github.com/keyedqueue/workqueue/worker"
)

// All holds end with the pool. With Drain All, or if somebody else shuts the queue down, their keys are
// handled.
func TestHoldAtTheEnd(t *testing.T) {
	for _, c := range []struct {
		name     string
		o        options
		left     string
		calls    []string
		shutdown bool // somebody else shuts the queue down
	}{
		{name: "running", left: "1 queued and not started: a"},
		{name: "nothing", o: options{Drain: worker.Nothing}, left: "1 queued and not started: a"},
		{name: "all", o: options{Drain: worker.All}, left: "nothing", calls: []string{"a 1 1s"}},
		{name: "all, four workers", o: options{Drain: worker.All, Workers: 4}, left: "nothing",
			calls: []string{"a 1 1s"}},
		{name: "shut down", shutdown: true, left: "nothing", calls: []string{"a 1 1s"}},
		{name: "keep", o: options{KeepQueue: true}, left: "nothing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			overHolding(t, func(t *testing.T, q stringQueue) {
				if _, extended := q.(workqueue.Extended[string]); c.o.KeepQueue && !extended {
					return
				}
				h := newHolder()
				h.answers = []answer{h.hold(20 * time.Second)}
				r := run(t, worker.New(q, h.handle, c.o))
				q.Add("a")
				r.after(time.Second)
				if c.shutdown {
					q.ShutDown()
				} else {
					r.cancel()
				}
				err := <-r.result
				if at := time.Since(r.begun); at != time.Second {
					t.Errorf("returned after %v", at)
				}
				r.wantLeft(err, c.left)
				r.cancel()
				equal(t, "calls", h.took(), append([]string{"a 1 0s"}, c.calls...)...)
				if q.ShuttingDown() {
					wantMatchedDones(t, q)
				} else if q.Len() != 1 {
					t.Error("the key is not in the queue that was kept")
				}
				h.releaseAll()
			})
		})
	}
}

// A hold that begins after the shutdown ends at once. Its key comes if it was added before.
func TestHoldAfterTheShutdown(t *testing.T) {
	for _, again := range []bool{false, true} {
		overHolding(t, func(t *testing.T, q stringQueue) {
			h := newHolder()
			h.answers = []answer{h.hold(20 * time.Second)}
			r := run(t, worker.New(q, func(ctx context.Context, key string) error {
				time.Sleep(2 * time.Second)
				return h.handle(ctx, key)
			}, options{Drain: worker.All}))
			q.Add("a")
			r.after(time.Second)
			returns, left := 2*time.Second, "1 queued and not started: a"
			if again {
				q.Add("a")
				returns, left = 4*time.Second, "nothing"
			}
			r.cancel()
			err := <-r.result
			if at := time.Since(r.begun); at != returns {
				t.Errorf("returned after %v", at)
			}
			r.wantLeft(err, left)
		})
	}
}

// A pause does not change what is on hold, and a hold is not idle.
func TestHoldWhilePausedAndIdle(t *testing.T) {
	overHolding(t, func(t *testing.T, q stringQueue) {
		if _, extended := q.(extended); !extended {
			return // Its paused workers may have the key in hand.
		}
		h := newHolder()
		h.answers = []answer{h.hold(10 * time.Second)}
		p := worker.New(q, h.handle, options{})
		r := run(t, p)
		q.Add("a")
		r.after(time.Second)
		if err := p.SetWorkers(0); err != nil {
			t.Fatal(err)
		}
		idle := make(chan error, 1)
		go func() { idle <- p.WaitIdle(t.Context()) }()
		r.after(time.Minute)
		if len(idle) != 0 {
			t.Error("it is not idle")
		}
		_ = p.SetWorkers(1)
		if err := <-idle; err != nil {
			t.Error(err)
		}
		r.endCleanly()
		equal(t, "calls", h.took(), "a 1 0s", "a 1 1m0s")
	})
}

// WaitIdle waits for a key on hold that is not queued again.
func TestHoldIsNotIdle(t *testing.T) {
	overHolding(t, func(t *testing.T, q stringQueue) {
		p := worker.New(q, func(ctx context.Context, key string) error {
			worker.CallOf(ctx).Hold("", time.Hour)
			return nil
		}, options{})
		r := run(t, p)
		q.Add("a")
		synctest.Wait()
		if err := p.WaitIdle(t.Context()); err != nil || time.Since(r.begun) < time.Hour {
			t.Errorf("%v after %v", err, time.Since(r.begun))
		}
		r.endCleanly()
	})
}

// Ten thousand held keys need no goroutine each and little memory, and the end of the pool leaves none of it.
func TestHoldMemory(t *testing.T) {
	if testkit.RaceEnabled {
		t.Skip("the race detector needs memory of its own")
	}
	const n = 10_000
	q := newQueue()
	releases := make(chan func(), n)
	p := worker.New(q, func(ctx context.Context, key string) error {
		return holds(ctx, "the cache shows it", time.Hour, func(release func()) { releases <- release })
	}, options{Workers: 4})
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- p.Run(ctx) }()
	addNumbers(q, n)
	goroutines := runtime.NumGoroutine()
	testkit.Eventually(t, "all are held", func() bool { return p.Stats().OnHold == n })
	if now := runtime.NumGoroutine(); now > goroutines+10 {
		t.Errorf("%d goroutines more", now-goroutines)
	}
	with := testkit.Heap()
	cancel()
	if err := <-result; err != nil {
		t.Error(err)
	}
	if st := p.Stats(); st.OnHold != 0 || p.Left().NotStarted == nil {
		t.Errorf("%+v", st)
	}
	for len(releases) > 0 {
		(<-releases)()
	}
	runtime.KeepAlive(q)
	perKey := (with - testkit.Heap()) / n
	t.Log(perKey, "bytes a key")
	if perKey > 1024 {
		t.Errorf("a held key takes %d bytes", perKey)
	}
}
