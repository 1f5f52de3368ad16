package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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
		"leased":   func() stringQueue { return leased{notifying: newQueue()} },
	} {
		t.Run("queue="+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, newQueue()) })
		})
	}
}

// holder is a handler whose first answers are those that it is given, and the others nil. It notes when each
// call begins.
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

// A held key comes at once when it is released, or at its limit, and not before, whatever is added. The
// worker is free meanwhile. Nothing is counted or forgotten.
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

// What an error means that is joined with others, or wrapped.
func TestHoldJoined(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer func(hold error) error
		next   worker.Next
		calls  []string // released after 10 s
	}{
		{"wrapped", func(hold error) error { return fmt.Errorf("web: %w", hold) }, worker.NextHold,
			[]string{"a 1 0s", "a 1 10s"}},
		{"failure", func(hold error) error { return errors.Join(errBroken, hold) }, worker.NextRetry,
			[]string{"a 1 0s", "a 2 10s"}},
		{"later failure", func(hold error) error {
			return errors.Join(worker.RetryAfter(errBroken, 20*time.Second),
				hold)
		},
			worker.NextRetry, []string{"a 1 0s", "a 2 20s"}},
		{"again", func(hold error) error { return errors.Join(worker.RequeueAfter(time.Second), hold) },
			worker.NextRequeue, []string{"a 1 0s", "a 1 10s"}},
		{"again later", func(hold error) error { return errors.Join(hold, worker.RequeueAfter(20*time.Second)) },
			worker.NextRequeue, []string{"a 1 0s", "a 1 20s"}},
		{"added", func(hold error) error { return errors.Join(hold, worker.ErrAdded) }, worker.NextHold,
			[]string{"a 1 0s", "a 1 10s"}},
		{"another hold", func(hold error) error {
			return errors.Join(hold, fmt.Errorf("web: %w", worker.Hold("it is older", 20*time.Second,
				func(func()) {})), hold)
		}, worker.NextHold, []string{"a 1 0s", "a 1 20s"}},
		{"terminal", func(hold error) error { return errors.Join(hold, worker.Terminal(errBroken)) },
			worker.NextGiveUp, []string{"a 1 0s"}},
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

// What is joined with it counts as it would with any failure.
func TestHoldTwiceBesideRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolder()
		hold := h.hold(time.Second)
		h.answers = []error{hold, errors.Join(hold, worker.RetryAfter(errBroken, time.Hour))}
		q := newQueue()
		var calls []time.Duration
		begun := time.Now()
		r := run(t, worker.New(q, h.handle, options{OnFinish: func(context.Context, outcome) {
			calls = append(calls, time.Since(begun))
		}}))
		q.Add("a")
		r.after(2 * time.Hour)
		r.endCleanly()
		if len(calls) != 3 || calls[2] != time.Second+time.Hour {
			t.Errorf("calls after %v", calls)
		}
	})
}

func TestHoldOfSenselessArguments(t *testing.T) {
	until := func(func()) {}
	for want, call := range map[string]func(){
		"worker: Hold for 0s: a limit is positive": func() { _ = worker.Hold("", 0, until) },
		"worker: Hold for -1s: a limit is positive": func() {
			_ = worker.Hold("",
				-time.Second, until)
		},
		"worker: Hold without a function that arranges the release": func() { _ = worker.Hold("", 1, nil) },
	} {
		if got := testkit.PanicOf(call); got != want {
			t.Errorf("panicked with %v, want %s", got, want)
		}
	}
}

// After Call.Hold the key does not start again before the release, whatever the handler answers, and comes
// only if it is added.
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

// A hold that comes to its limit does not wait for the limit of another one, which is released.
func TestHoldsHaveTheirOwnLimits(t *testing.T) {
	overHolding(t, func(t *testing.T, q stringQueue) {
		h := newHolder()
		p := worker.New(q, func(ctx context.Context, key string) error {
			if call := worker.CallOf(ctx); len(h.took()) == 0 {
				call.Hold("the cache shows it", 10*time.Second, func(func()) {})
				call.Hold("the second shows it", 20*time.Second, func(func()) {})
				call.Hold("the rollout", time.Hour, h.until)
			}
			return h.handle(ctx, key)
		}, options{})
		r := run(t, p)
		q.Add("a")
		q.Add("b")
		r.after(5 * time.Second)
		q.Add("a")
		r.after(15 * time.Second)
		h.releases[0]()
		synctest.Wait()
		equal(t, "held", p.Snapshot(10).Held, worker.HeldKey[string]{
			Key: "a", Reason: "the second shows it", Since: r.begun, Until: r.begun.Add(20 * time.Second),
		})
		r.after(2 * time.Minute)
		r.endCleanly()
		equal(t, "calls", h.took(), "a 1 0s", "b 1 0s", "a 1 20s")
		if st := p.Stats(); st.HeldToLimit != 1 {
			t.Errorf("%+v", st)
		}
	})
}

// A hold whose release comes at once, again and again, pauses the key. One that lasts ends that.
func TestHoldThatIsReleasedAtOnce(t *testing.T) {
	for name, start := range map[string]func(release func()){"before": func(release func()) { release() },
		"after": func(release func()) { go release() }} {
		t.Run("released="+name, func(t *testing.T) {
			overHolding(t, func(t *testing.T, q stringQueue) {
				var calls atomic.Int64
				var slow atomic.Bool
				p := worker.New(q, func(context.Context, string) error {
					calls.Add(1)
					return worker.Hold("the cache shows it", time.Minute, func(release func()) {
						if slow.Load() {
							time.AfterFunc(time.Second, release)
						} else {
							start(release)
						}
					})
				}, options{})
				r := run(t, p)
				q.Add("a")
				r.after(time.Minute)
				st, held := p.Stats(), p.Snapshot(1).Held
				if n := calls.Load(); n < 10 || n > 30 || st.Looping != 1 || st.HeldToLimit != 0 ||
					st.Holds != uint64(n) {
					t.Errorf("%d calls, %+v", n, st)
				}
				if len(held) != 1 || !strings.Contains(held[0].Reason, "its hold was released at once") {
					t.Errorf("%+v", held)
				}
				slow.Store(true)
				r.after(time.Minute + 20*time.Second)
				if st := p.Stats(); st.Looping != 0 {
					t.Errorf("%+v", st)
				}
				_ = r.end()
			})
		})
	}
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

// A hold is no call in between: a key that is interrupted again and again stays one that loops, until a hold
// has lasted, however it ends.
func TestHoldKeepsInterruptions(t *testing.T) {
	overNotifying(t, func(t *testing.T, q notifying) {
		var calls atomic.Int64
		p := worker.New(q, func(context.Context, string) error {
			if calls.Add(1) >= 7 {
				return worker.Hold("it is ready", time.Hour, func(func()) {})
			}
			return worker.ErrAdded
		}, options{})
		r := run(t, p)
		q.Add("a")
		r.after(time.Minute)
		if n, st := p.SnapshotKey("a").Interruptions, p.Stats(); calls.Load() != 7 || n != 6 || st.Looping != 1 ||
			st.Held != 1 {
			t.Errorf("after %d calls %d interruptions, %+v", calls.Load(), n, st)
		}
		r.after(2 * time.Hour)
		if n, st := p.SnapshotKey("a").Interruptions, p.Stats(); calls.Load() != 8 || n != 0 || st.Looping != 0 ||
			st.Held != 1 {
			t.Errorf("after the limit of the hold and %d calls %d interruptions, %+v", calls.Load(), n, st)
		}
		_ = r.end()
	})
}

// A release sets its flag without a lock. It may do so while the limit of another reason is dealt with.
func TestReleaseBesideALimit(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue()
			p := worker.New(q, func(ctx context.Context, _ string) error {
				call := worker.CallOf(ctx)
				call.Hold("short", time.Second, func(func()) {})
				call.Hold("long", time.Minute, func(release func()) { time.AfterFunc(time.Second, release) })
				return nil
			}, options{})
			r := run(t, p)
			for key := range 300 {
				q.Add(fmt.Sprint(key))
			}
			r.after(2 * time.Second)
			if n := p.Stats().Held; n != 0 {
				t.Errorf("%d keys on hold", n)
			}
			r.endCleanly()
		})
	}
}
