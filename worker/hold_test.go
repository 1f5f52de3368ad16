package worker_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// overHolding runs a test in virtual time over each kind of queue.
func overHolding(t *testing.T, test func(t *testing.T, q stringQueue)) {
	t.Helper()
	for name, newQueue := range map[string]func() stringQueue{
		"FIFO":     func() stringQueue { return newQueue() },
		"plain":    func() stringQueue { return plain{newQueue()} }, // as client-go's
		"priority": func() stringQueue { return newPriorityQueue(priorityqueue.Config[string]{}) },
		"leased":   func() stringQueue { return leased{newQueue().(notifying)} },
	} {
		t.Run("queue="+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, newQueue()) })
		})
	}
}

// holder is a handler whose first answers are those that it is given, and the others nil. It notes when each call begins.
type holder struct {
	mu       sync.Mutex
	begun    time.Time
	calls    []string
	answers  []error
	releases []func()
}

func newHolder() *holder { return &holder{begun: time.Now()} }

// hold returns an answer, and notes its release.
func (h *holder) hold(limit time.Duration) error { return worker.Hold("it is ready", limit, h.until) }

func (h *holder) until(release func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.releases = append(h.releases, release)
}

func (h *holder) handle(ctx context.Context, key string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, fmt.Sprintf("%s %d %v", key, worker.CallOf(ctx).Attempt(), time.Since(h.begun)))
	if len(h.answers) == 0 {
		return nil
	}
	answer := h.answers[0]
	h.answers = h.answers[1:]
	return answer
}

func (h *holder) took() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.calls)
}

func (h *holder) releaseAll() {
	h.mu.Lock()
	releases := h.releases
	h.mu.Unlock()
	for _, release := range releases {
		release()
	}
}

// A held key comes at once when it is released, or at its limit, and not before, whatever is added. The worker is free meanwhile.
// Nothing is counted or forgotten.
func TestHold(t *testing.T) {
	overHolding(t, func(t *testing.T, q stringQueue) {
		h := newHolder()
		h.answers = []error{errBroken, h.hold(time.Minute)}
		logger, logs := newLogger()
		p := worker.New(q, h.handle, options{MaxRetries: 2, HandlerTimeout: time.Second, Logger: logger})
		r := run(t, p)
		q.Add("a")
		r.after(5 * time.Second) // It fails, and comes again after a second: then it is held.
		q.Add("a")
		q.Add("b")
		r.after(10 * time.Second)
		q.Add("a")
		if n := q.NumRequeues("a"); n != 1 {
			t.Errorf("the limiter counts %d failures", n)
		}
		h.releaseAll()
		h.releaseAll()
		synctest.Wait()
		st := p.Stats()
		if st.Holds != 1 || st.Held != 0 || st.HeldToLimit != 0 || st.Failed != 1 || st.Handled != 4 {
			t.Errorf("%+v", st)
		}
		if strings.Contains(logs.String(), "limit") {
			t.Errorf("logged:\n%s", logs)
		}
		r.endCleanly()
		equal(t, "calls", h.took(), "a 1 0s", "a 2 1s", "b 1 5s", "a 2 10s")
		wantMatchedDones(t, q)
		h.releaseAll()
	})
}

func TestHoldToLimit(t *testing.T) {
	overHolding(t, func(t *testing.T, q stringQueue) {
		h := newHolder()
		h.answers = []error{h.hold(time.Minute)}
		logger, logs := newLogger()
		p := worker.New(q, h.handle, options{Logger: logger})
		r := run(t, p)
		q.Add("a")
		r.after(2 * time.Minute)
		if st := p.Stats(); st.HeldToLimit != 1 || st.Held != 0 {
			t.Errorf("%+v", st)
		}
		if want := `level=WARN msg="A key was held to its limit" key=a held=1m0s reason="it is ready"`; !strings.Contains(logs.String(), want) {
			t.Errorf("logged:\n%s", logs)
		}
		r.endCleanly()
		equal(t, "calls", h.took(), "a 1 0s", "a 1 1m0s")
	})
}

// A release before the handler has returned is not lost, whether or not Hold has returned.
func TestHoldReleasedEarly(t *testing.T) {
	overHolding(t, func(t *testing.T, q stringQueue) {
		h := newHolder()
		h.answers = []error{
			worker.Hold("now", time.Minute, func(release func()) { release() }),
			h.hold(time.Minute),
		}
		h.releaseAll()
		r := run(t, worker.New(q, h.handle, options{}))
		q.Add("a")
		r.after(time.Second)
		r.endCleanly()
		equal(t, "calls", h.took(), "a 1 0s", "a 1 0s", "a 1 0s")
	})
}

// What an error means that is joined with others, or wrapped.
func TestHoldJoined(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer func(hold error) error
		next   worker.Next
		calls  []string // released after 10 s
	}{
		{"wrapped", func(hold error) error { return fmt.Errorf("web: %w", hold) }, worker.NextHold, []string{"a 1 0s", "a 1 10s"}},
		{"failure", func(hold error) error { return errors.Join(errBroken, hold) }, worker.NextRetry, []string{"a 1 0s", "a 2 10s"}},
		{"later failure", func(hold error) error { return errors.Join(worker.RetryAfter(errBroken, 20*time.Second), hold) },
			worker.NextRetry, []string{"a 1 0s", "a 2 20s"}},
		{"again", func(hold error) error { return errors.Join(worker.RequeueAfter(time.Second), hold) },
			worker.NextRequeue, []string{"a 1 0s", "a 1 10s"}},
		{"again later", func(hold error) error { return errors.Join(hold, worker.RequeueAfter(20*time.Second)) },
			worker.NextRequeue, []string{"a 1 0s", "a 1 20s"}},
		{"added", func(hold error) error { return errors.Join(hold, worker.ErrAdded) }, worker.NextHold, []string{"a 1 0s", "a 1 10s"}},
		{"terminal", func(hold error) error { return errors.Join(hold, worker.Terminal(errBroken)) }, worker.NextGiveUp, []string{"a 1 0s"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHolder()
				answer := c.answer(h.hold(time.Minute))
				if next := worker.NextOf(t.Context(), answer); next != c.next {
					t.Errorf("NextOf returned %v", next)
				}
				h.answers = []error{answer}
				q := newQueue()
				r := run(t, worker.New(q, h.handle, options{}))
				q.Add("a")
				r.after(10 * time.Second)
				h.releaseAll()
				r.after(30 * time.Second)
				r.endCleanly()
				equal(t, "calls", h.took(), c.calls...)
			})
		})
	}
}

// An error of Hold that is returned a second time is a failure: its release may have been long ago.
func TestHoldTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolder()
		hold := h.hold(time.Hour)
		h.answers = []error{hold, hold}
		q := newQueue()
		var results []string
		r := run(t, worker.New(q, h.handle, options{OnFinish: func(_ context.Context, r outcome) {
			results = append(results, fmt.Sprint(r.Key, " ", r.Next, " ", r.Err))
		}}))
		addAll(q, "a b")
		r.after(500 * time.Millisecond)
		h.releaseAll()
		r.after(time.Minute)
		r.endCleanly()
		equal(t, "results", results,
			"a hold on hold, for 1h0m0s at most, until it is ready",
			"b retry worker: an error of Hold was returned a second time: each call of the handler needs its own: on hold, for 1h0m0s at most, until it is ready",
			"a forget <nil>", "b forget <nil>")
	})
}

func TestHoldOfSenselessArguments(t *testing.T) {
	until := func(func()) {}
	for want, call := range map[string]func(){
		"worker: Hold for 0s: a limit is positive":                  func() { _ = worker.Hold("", 0, until) },
		"worker: Hold for -1s: a limit is positive":                 func() { _ = worker.Hold("", -time.Second, until) },
		"worker: Hold without a function that arranges the release": func() { _ = worker.Hold("", 1, nil) },
	} {
		if got := testkit.PanicOf(call); got != want {
			t.Errorf("panicked with %v, want %s", got, want)
		}
	}
}

// After Call.Hold the key does not start again before the release, whatever the handler answers, and comes only if it is added.
func TestCallHold(t *testing.T) {
	overHolding(t, func(t *testing.T, q stringQueue) {
		h := newHolder()
		var first atomic.Bool
		p := worker.New(q, func(ctx context.Context, key string) error {
			if first.CompareAndSwap(false, true) {
				call := worker.CallOf(ctx)
				call.Hold("the cache shows one", time.Hour, h.until)
				call.Hold("the cache shows two", time.Minute, h.until)
				defer time.AfterFunc(time.Second, func() {
					call.Hold("too late", time.Hour, func(func()) { t.Error("the call has ended") })
				})
			}
			return h.handle(ctx, key)
		}, options{})
		r := run(t, p)
		q.Add("a")
		r.after(5 * time.Second)
		equal(t, "held", p.Snapshot(10).Held, worker.HeldKey[string]{
			Key: "a", Reason: "the cache shows one, and 1 more", Since: r.begun, Until: r.begun.Add(time.Hour),
		})
		q.Add("a")
		h.releases[0]()
		r.after(10 * time.Second)
		h.releases[1]()
		r.after(2 * time.Hour)
		r.endCleanly()
		equal(t, "calls", h.took(), "a 1 0s", "a 1 10s")
		if st := p.Stats(); st.Holds != 0 || st.HeldToLimit != 0 {
			t.Errorf("%+v", st)
		}
	})
	worker.CallOf(t.Context()).Hold("", -1, nil) // Without a call it does nothing.
}

// A key that nobody adds does not come after a hold of Call.Hold.
func TestCallHoldOfKeyThatIsNotAdded(t *testing.T) {
	overHolding(t, func(t *testing.T, q stringQueue) {
		h := newHolder()
		r := run(t, worker.New(q, func(ctx context.Context, key string) error {
			worker.CallOf(ctx).Hold("the cache shows it", time.Minute, h.until)
			return h.handle(ctx, key)
		}, options{}))
		q.Add("a")
		r.after(time.Hour)
		r.endCleanly()
		equal(t, "calls", h.took(), "a 1 0s")
	})
}

// What is said about keys on hold.
func TestHeldKeys(t *testing.T) {
	overHolding(t, func(t *testing.T, q stringQueue) {
		p := worker.New(q, func(_ context.Context, key string) error {
			time.Sleep(time.Second)
			return worker.Hold(strings.Repeat(key, 500), time.Minute, func(func()) {})
		}, options{})
		r := run(t, p)
		addAll(q, "a b c")
		r.after(4 * time.Second)
		at := func(n int) time.Time { return r.begun.Add(time.Duration(n) * time.Second) }
		a := worker.HeldKey[string]{Key: "a", Reason: strings.Repeat("a", 200), Since: at(1), Until: at(61)}
		b := worker.HeldKey[string]{Key: "b", Reason: strings.Repeat("b", 200), Since: at(2), Until: at(62)}
		equal(t, "held", p.Snapshot(2).Held, a, b)
		if k := p.SnapshotKey("b"); k.Held == nil || *k.Held != b {
			t.Errorf("%+v", k.Held)
		}
		if k := p.SnapshotKey("d"); k.Held != nil {
			t.Errorf("%+v", k.Held)
		}
		if k := p.Inspector().SnapshotKey("a").Held; k == nil || k.Key != any("a") || k.Reason != a.Reason {
			t.Errorf("%+v", k)
		}
		if held := p.Inspector().Snapshot(5).Held; len(held) != 3 || held[1].Key != any("b") {
			t.Errorf("%+v", held)
		}
		if st := p.Stats(); st.Held != 3 || st.Busy != 0 || st.Holds != 3 {
			t.Errorf("%+v", st)
		}
		r.cancel()
		r.after(5 * time.Second)
		r.returnedLeaving("3 queued and not started: a, b, c")
		if st := p.Stats(); st.Held != 0 || st.HeldToLimit != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// Remove takes back all adds, Cancel finds no call, Forget changes nothing, and Release ends the hold.
func TestHeldKeyIsRemovedCanceledForgottenReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolder()
		h.answers = []error{h.hold(time.Minute), h.hold(time.Minute), h.hold(time.Minute)}
		q := newPriorityQueue(priorityqueue.Config[string]{})
		p := worker.New(q, h.handle, options{})
		r := run(t, p)
		addAll(q, "removed twice forgotten")
		r.after(time.Second)
		q.Remove("removed")
		q.Remove("twice")
		q.Add("twice")
		p.Forget("forgotten")
		if p.Cancel("forgotten") {
			t.Error("Cancel has found a call")
		}
		if p.Release("nobody") {
			t.Error("Release has found a hold")
		}
		r.after(2 * time.Second)
		if !p.Release("forgotten") || p.Release("forgotten") {
			t.Error("Release")
		}
		r.after(2 * time.Minute)
		r.endCleanly()
		equal(t, "calls", h.took(), "removed 1 0s", "twice 1 0s", "forgotten 1 0s", "forgotten 1 2s", "twice 1 1m0s")
	})
}

// The key keeps its priority, or has the higher one that it was added with meanwhile.
func TestHoldKeepsPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolder()
		h.answers = []error{h.hold(time.Minute), h.hold(time.Minute)}
		q := newPriorityQueue(priorityqueue.Config[string]{})
		p := worker.New(q, func(ctx context.Context, key string) error {
			if key == "long" {
				time.Sleep(10 * time.Second)
				return nil
			}
			n, _ := worker.CallOf(ctx).Priority()
			return h.handle(ctx, fmt.Sprint(key, " ", n))
		}, options{})
		r := run(t, p)
		q.AddWithPriority("a", 5, 0)
		q.AddWithPriority("b", 3, 0)
		r.after(time.Second)
		q.AddWithPriority("b", 7, 0)
		q.AddWithPriority("a", 1, 0)
		q.Add("long")
		synctest.Wait()
		h.releaseAll()
		r.after(time.Minute)
		r.endCleanly()
		equal(t, "calls", h.took(), "a 5 1 0s", "b 3 1 0s", "b 7 1 11s", "a 5 1 11s")
	})
}

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
		{name: "nothing", o: options{Drain: worker.Nothing}, returns: time.Second, left: "1 queued and not started: a"},
		{name: "all, released", o: options{Drain: worker.All}, release: true, returns: 10 * time.Second, left: "nothing", calls: []string{"a 1 10s"}},
		{name: "all, limit", o: options{Drain: worker.All}, returns: 20 * time.Second, left: "nothing", calls: []string{"a 1 20s"}},
		{name: "all, timeout", o: options{Drain: worker.All, DrainTimeout: 10 * time.Second}, returns: 11 * time.Second,
			left: "1 queued and not started: a"},
		{name: "all, four workers", o: options{Drain: worker.All, Workers: 4}, release: true, returns: 10 * time.Second,
			left: "nothing", calls: []string{"a 1 10s"}},
		{name: "shut down", shutdown: true, release: true, returns: 10 * time.Second, left: "nothing", calls: []string{"a 1 10s"}},
		{name: "keep", o: options{KeepQueue: true}, returns: time.Second, left: "nothing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			overHolding(t, func(t *testing.T, q stringQueue) {
				if _, extended := q.(workqueue.Extended[string]); c.o.KeepQueue && !extended {
					return
				}
				h := newHolder()
				h.answers = []error{h.hold(20 * time.Second)}
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
				r.leaves(err, c.left)
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

// A handler that was left behind may ask for a hold: there is nobody who would hold its key.
func TestHoldAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolder()
		q := newQueue()
		r := run(t, worker.New(q, func(ctx context.Context, key string) error {
			time.Sleep(time.Minute)
			return h.hold(time.Hour)
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
		h.answers = []error{h.hold(10 * time.Second)}
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

// WaitIdle waits for a key on hold that does not come again.
func TestHoldIsNotIdle(t *testing.T) {
	overHolding(t, func(t *testing.T, q stringQueue) {
		p := worker.New(q, func(ctx context.Context, key string) error {
			worker.CallOf(ctx).Hold("", time.Hour, func(func()) {})
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

// A release that came before the handler has returned does not count a second time, for another hold of the key.
func TestHoldReleasedBeforeAndAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolder()
		q := newQueue()
		p := worker.New(q, func(ctx context.Context, key string) error {
			worker.CallOf(ctx).Hold("the cache shows one", time.Hour, h.until)
			worker.CallOf(ctx).Hold("the cache shows two", time.Hour, func(func()) {})
			h.releaseAll()
			return nil
		}, options{})
		r := run(t, p)
		q.Add("a")
		synctest.Wait()
		h.releaseAll()
		if st := p.Stats(); st.Held != 1 {
			t.Errorf("%+v, want a key on hold", st)
		}
		_ = r.end()
	})
}

// A hold is no call in between: a key that is interrupted again and again stays one that loops.
func TestHoldKeepsInterruptions(t *testing.T) {
	overNotifying(t, func(t *testing.T, q notifying) {
		calls := 0
		p := worker.New(q, func(context.Context, string) error {
			if calls++; calls == 7 {
				return worker.Hold("it is ready", time.Hour, func(func()) {})
			}
			return worker.ErrAdded
		}, options{})
		r := run(t, p)
		q.Add("a")
		r.after(time.Minute)
		if n, st := p.SnapshotKey("a").Interruptions, p.Stats(); calls != 7 || n != 6 || st.Looping != 1 || st.Held != 1 {
			t.Errorf("after %d calls %d interruptions, %+v", calls, n, st)
		}
		_ = r.end()
	})
}

// An add while the handler runs ends UntilAdded; the hold that it then asks for counts all the same.
func TestHoldAfterUntilAdded(t *testing.T) {
	overNotifying(t, func(t *testing.T, q notifying) {
		h := newHolder()
		h.answers = []error{h.hold(time.Minute)}
		r := run(t, worker.New(q, func(ctx context.Context, key string) error {
			if len(h.took()) == 0 {
				<-worker.CallOf(ctx).UntilAdded().Done()
			}
			return h.handle(ctx, key)
		}, options{}))
		q.Add("a")
		r.after(time.Second)
		q.Add("a")
		r.after(time.Hour)
		r.endCleanly()
		equal(t, "calls", h.took(), "a 1 1s", "a 1 1m1s")
	})
}

// The end of its lease releases a key.
func TestHoldEndsWithLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		leases := 0
		q := leasing{newQueue(), &j, func(cancel context.CancelCauseFunc) {
			if leases++; leases == 2 { // that of the hold
				time.AfterFunc(time.Second, func() { cancel(errLeaseLost) })
			}
		}}
		h := newHolder()
		h.answers = []error{h.hold(time.Hour)}
		p := worker.New(q, h.handle, options{})
		r := run(t, p)
		q.Add("a")
		r.after(time.Minute)
		if st := p.Stats(); st.HeldToLimit != 0 {
			t.Errorf("%+v", st)
		}
		r.endCleanly()
		equal(t, "calls", h.took(), "a 1 0s", "a 1 1s")
		equal(t, "leases", j.take(), "add a", "lease a", "add a", "release a", "lease a", "release a", "done a", "lease a", "release a", "done a")
	})
}

// A panic of the queue when a key is released ends the pool, and not the goroutine that releases it.
func TestHoldPanicOfQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolder()
		h.answers = []error{h.hold(time.Hour)}
		q := donePanics{newQueue(), new(atomic.Bool)}
		r := run(t, worker.New(q, h.handle, options{}))
		q.Add("a")
		r.after(time.Second)
		q.panics.Store(true)
		h.releaseAll()
		var p *worker.PanicError
		if err := r.returned(); !errors.As(err, &p) || p.Value != "Done" {
			t.Errorf("Run returned %v", err)
		}
	})
}

type donePanics struct {
	extended
	panics *atomic.Bool
}

func (q donePanics) Done(key string) {
	if q.panics.Load() {
		panic("Done")
	}
	q.extended.Done(key)
}

// Ten thousand held keys need no goroutine each and little memory, and the end of the pool leaves none of it.
func TestHoldMemory(t *testing.T) {
	if testkit.RaceEnabled {
		t.Skip("the race detector needs memory of its own")
	}
	const n = 10_000
	q := newQueue()
	releases := make(chan func(), n)
	p := worker.New(q, func(_ context.Context, key string) error {
		return worker.Hold("the cache shows it", time.Hour, func(release func()) { releases <- release })
	}, options{Workers: 4})
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- p.Run(ctx) }()
	addNumbers(q, n)
	goroutines := runtime.NumGoroutine()
	testkit.Eventually(t, "all are held", func() bool { return p.Stats().Held == n })
	if now := runtime.NumGoroutine(); now > goroutines+10 {
		t.Errorf("%d goroutines more", now-goroutines)
	}
	with := testkit.Heap()
	cancel()
	if err := <-result; err != nil {
		t.Error(err)
	}
	if st := p.Stats(); st.Held != 0 || p.Left().NotStarted == nil {
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

// Releases, limits, adds and the end come at the same time: each key that was handed out is Done once.
func TestHoldRace(t *testing.T) {
	for range 20 {
		q := newQueue()
		var wg sync.WaitGroup
		p := worker.New(q, func(ctx context.Context, key string) error {
			until := func(release func()) {
				for range 2 {
					wg.Go(release)
				}
			}
			worker.CallOf(ctx).Hold("", time.Microsecond, until)
			return worker.Hold("", 50*time.Microsecond, until)
		}, options{Workers: 4})
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() { result <- p.Run(ctx) }()
		for i := range 200 {
			q.Add(fmt.Sprint(i % 10))
			p.Release(fmt.Sprint(i % 7))
		}
		cancel()
		if err := <-result; err != nil {
			t.Error(err)
		}
		wg.Wait()
		wantMatchedDones(t, q)
	}
}
