package worker_test

import (
	"context"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/worker"
)

// How a pool ends that holds keys: only Drain All waits for them, for as long as DrainTimeout allows.
func TestHoldAtTheEnd(t *testing.T) {
	for _, c := range []struct {
		name     string
		o        options
		release  bool // after 10 s
		returns  time.Duration
		left     string
		calls    []string
		shutdown bool // somebody else shuts the queue down
	}{
		{name: "running", returns: time.Second, left: "1 queued and not started: a"},
		{name: "nothing", o: options{Drain: worker.Nothing}, returns: time.Second,
			left: "1 queued and not started: a"},
		{name: "all, released", o: options{Drain: worker.All}, release: true, returns: 10 * time.Second,
			left: "nothing", calls: []string{"a 1 10s"}},
		{name: "All, limit first", o: options{Drain: worker.All}, returns: 20 * time.Second, left: "nothing",
			calls: []string{"a 1 20s"}},
		{name: "all, timeout", o: options{Drain: worker.All, DrainTimeout: 10 * time.Second},
			returns: 11 * time.Second,
			left:    "1 queued and not started: a"},
		{name: "all, four workers", o: options{Drain: worker.All, Workers: 4}, release: true,
			returns: 10 * time.Second,
			left:    "nothing", calls: []string{"a 1 10s"}},
		{name: "shut down", shutdown: true, release: true, returns: 10 * time.Second, left: "nothing",
			calls: []string{"a 1 10s"}},
		{name: "keep", o: options{KeepQueue: true}, returns: time.Second, left: "nothing"},
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
				returned := make(chan time.Duration, 1)
				var err error
				go func() {
					err = <-r.result
					returned <- time.Since(r.begun)
				}()
				if r.after(10 * time.Second); c.release {
					h.releaseAll()
				}
				if at := <-returned; at != c.returns {
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

// A hold that begins after the shutdown ends at once, because its key cannot be queued again, unless it was added
// before.
func TestHoldAfterTheShutdown(t *testing.T) {
	for _, again := range []bool{false, true} {
		overHolding(t, func(t *testing.T, q stringQueue) {
			_, reads := q.(workqueue.Extended[string])
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
				// The pool does not know of this add, and ends the hold.
				if returns, left = 24*time.Second, "nothing"; !reads {
					returns = 4 * time.Second
				}
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

// A handler that was left behind may ask for a hold: there is nobody who would hold its key.
func TestHoldAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolder()
		q := newQueue()
		r := run(t, worker.New(q, func(ctx context.Context, key string) error {
			time.Sleep(time.Minute)
			return h.hold(time.Hour)(worker.CallOf(ctx))
		}, options{Drain: worker.Nothing, CancelGrace: worker.NoGrace}))
		q.Add("a")
		synctest.Wait()
		r.cancel()
		synctest.Wait()
		r.returnedLeaving("1 still running: a")
		time.Sleep(2 * time.Minute)
		wantMatchedDones(t, q)
		h.releaseAll()
	})
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

// A key that Call.Hold holds, and that nobody has added since, comes no more once the queue is shut down. Run
// does not wait for its hold, but for that of a key that was added meanwhile.
func TestHoldOfAKeyThatComesNoMore(t *testing.T) {
	for _, shutDown := range []bool{false, true} {
		overHolding(t, func(t *testing.T, q stringQueue) {
			_, knowsAdds := q.(workqueue.Extended[string])
			if _, isShared := q.(leasing.Leaser[string]); isShared || !knowsAdds {
				return
			}
			p := worker.New(q, func(ctx context.Context, key string) error {
				if worker.CallOf(ctx).Attempt() == 1 && key == "comes" {
					worker.CallOf(ctx).Hold("soon", 20*time.Second)
					return nil
				}
				worker.CallOf(ctx).Hold("late", time.Hour)
				return nil
			}, options{Drain: worker.All, DrainTimeout: time.Minute})
			r := run(t, p)
			addAll(q, "a b comes")
			r.after(time.Second)
			q.Add("comes")
			if shutDown {
				q.ShutDown()
			} else {
				p.Stop(worker.All)
			}
			if err := <-r.result; err != nil || time.Since(r.begun) != 20*time.Second || !p.Left().Empty() {
				t.Errorf("Run returned %v after %v, left %v", err, time.Since(r.begun), p.Left())
			}
		})
	}
}

// countingSnapshots counts how often it is asked for a key.
type countingSnapshots struct {
	extended
	n *atomic.Int64
}

func (q countingSnapshots) SnapshotKey(key string) (workqueue.KeySnapshot[string], bool) {
	q.n.Add(1)
	return q.extended.SnapshotKey(key)
}

// At the end each hold is looked at once, and not whenever another one ends.
func TestManyHoldsAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys, workers = 500, 4
		q := countingSnapshots{newQueue(), new(atomic.Int64)}
		first := true
		r := run(t, worker.New(q, func(ctx context.Context, key string) error {
			if first {
				n, _ := strconv.Atoi(key)
				worker.CallOf(ctx).Hold("its turn", time.Hour+time.Duration(n)*time.Second)
			}
			return nil
		}, options{Workers: workers}))
		addNumbers(q, keys)
		r.after(time.Second)
		first = false
		addNumbers(q, keys)
		before := q.n.Load()
		q.ShutDown()
		r.after(2 * time.Hour)
		if n := q.n.Load() - before; n > 2*keys {
			t.Errorf("the queue was asked %d times for one of %d keys", n, keys)
		}
		r.returnedLeaving("nothing")
	})
}
