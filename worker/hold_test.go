package worker_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/prom"
	"github.com/keyedqueue/workqueue/worker"
)

// overHolding runs a test in virtual time over each kind of queue.
func overHolding(t *testing.T, test func(t *testing.T, q stringQueue)) {
	t.Helper()
	for name, newQueue := range map[string]func() stringQueue{
		"FIFO":     func() stringQueue { return newQueue() },
		"priority": func() stringQueue { return newPriorityQueue(priorityqueue.Config[string]{}) },
		"leased":   func() stringQueue { return leased{notifying: newQueue()} },
	} {
		t.Run("queue="+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, newQueue()) })
		})
	}
}

// A hold is no work: neither the times of work nor those of unfinished work have it, and the depth has no key
// on hold that is queued when its hold ends.
func TestHoldIsNoWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provider := prom.NewProvider(prometheus.NewRegistry(), prom.Options{})
		for name, q := range map[string]stringQueue{
			"FIFO": workqueue.NewTypedRateLimitingQueueWithConfig(nil,
				workqueue.TypedRateLimitingQueueConfig[string]{Name: "fifo", MetricsProvider: provider}),
			"priority": newPriorityQueue(priorityqueue.Config[string]{Name: "p", MetricsProvider: provider}),
		} {
			h := newHolder()
			work := func(call worker.Call) error {
				time.Sleep(3 * time.Second)
				return h.hold(10 * time.Minute)(call)
			}
			h.answers = []answer{work, work, work, work}
			r := run(t, worker.New(q, h.handle, options{Workers: 4}))
			for _, key := range []string{"a", "b", "c", "d"} {
				q.Add(key)
			}
			for _, minutes := range []time.Duration{1, 5, 9} {
				r.after(minutes * time.Minute)
				st := stats(q)
				if sum := st.WorkDuration.Sum; sum != 12 || st.WorkDuration.Count() != 4 || st.OnHold != 4 ||
					st.Processing != 4 || st.Again != 0 || st.LongestRunning != 0 || st.UnfinishedWork != 0 {
					t.Errorf("%s: %v s of work in %d calls, %+v", name, sum, st.WorkDuration.Count(), st)
				}
			}
			r.after(11 * time.Minute) // Each key comes once more.
			if st := stats(q); st.WorkDuration.Sum != 12 || st.WorkDuration.Count() != 8 || st.OnHold != 0 {
				t.Errorf("%s: %v s of work in %d calls, %+v", name, st.WorkDuration.Sum, st.WorkDuration.Count(), st)
			}
			r.endCleanly()
		}
	})
}

// holder is a handler whose first answers are those that it is given, and the others nil. It notes when each
// call begins.
type holder struct {
	mu       sync.Mutex
	begun    time.Time
	calls    []string
	answers  []answer
	releases []func()
}

// answer is what a handler does and returns.
type answer func(call worker.Call) error

func says(err error) answer { return func(worker.Call) error { return err } }

func newHolder() *holder { return &holder{begun: time.Now()} }

// hold returns an answer that puts the key on hold, notes the release, and wants the key then.
func (h *holder) hold(limit time.Duration) answer {
	return func(call worker.Call) error {
		h.until(call.Hold("it is ready", limit))
		return worker.RequeueAfter(0)
	}
}

func (h *holder) until(release func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.releases = append(h.releases, release)
}

func (h *holder) handle(ctx context.Context, key string) error {
	call := worker.CallOf(ctx)
	h.mu.Lock()
	h.calls = append(h.calls, fmt.Sprintf("%s %d %v", key, call.Attempt(), time.Since(h.begun)))
	answer := says(nil)
	if len(h.answers) > 0 {
		answer, h.answers = h.answers[0], h.answers[1:]
	}
	h.mu.Unlock()
	return answer(call)
}

func (h *holder) took() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.calls)
}

func (h *holder) releaseAll() {
	h.mu.Lock()
	releases := slices.Clone(h.releases)
	h.mu.Unlock()
	for _, release := range releases {
		release()
	}
}

// A held key comes at once when it is released, or at its limit, and not before, even if it is added. The
// worker is free meanwhile.
func TestHold(t *testing.T) {
	overHolding(t, func(t *testing.T, q stringQueue) {
		h := newHolder()
		h.answers = []answer{says(errBroken), h.hold(time.Minute)}
		logger, logs := newLogger()
		p := worker.New(q, h.handle, options{MaxRetries: 2, HandlerTimeout: time.Second, Logger: logger})
		r := run(t, p)
		q.Add("a")
		r.after(5 * time.Second) // It fails, and is retried after a second: then it is held.
		q.Add("a")
		q.Add("b")
		r.after(10 * time.Second)
		q.Add("a")
		h.releaseAll()
		h.releaseAll()
		synctest.Wait()
		st := p.Stats()
		if st.HoldDurations.Count() != 1 || st.OnHold != 0 || st.HoldsToLimit != 0 || st.Failed != 1 || st.Handled != 4 {
			t.Errorf("%+v", st)
		}
		if strings.Contains(logs.String(), "limit") {
			t.Errorf("logged:\n%s", logs)
		}
		r.endCleanly()
		equal(t, "calls", h.took(), "a 1 0s", "a 2 1s", "b 1 5s", "a 1 10s")
		wantMatchedDones(t, q)
		h.releaseAll()
	})
}

// The key is held with every answer of the handler, and that counts as it would without a hold.
func TestHoldBesideAnswers(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer error
		calls  []string // released after 10 s
	}{
		{"nil", nil, []string{"a 1 0s"}},
		{"failure", errBroken, []string{"a 1 0s", "a 2 10s"}},
		{"later failure", worker.RetryAfter(errBroken, 20*time.Second), []string{"a 1 0s", "a 2 20s"}},
		{"again", worker.RequeueAfter(time.Second), []string{"a 1 0s", "a 1 10s"}},
		{"again later", worker.RequeueAfter(20 * time.Second), []string{"a 1 0s", "a 1 20s"}},
		{"added", worker.ErrAdded, []string{"a 1 0s", "a 1 10s"}},
		{"terminal", worker.Terminal(errBroken), []string{"a 1 0s"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHolder()
				h.answers = []answer{func(call worker.Call) error {
					h.until(call.Hold("it is ready", time.Minute))
					return c.answer
				}}
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

func TestHoldOfSenselessLimit(t *testing.T) {
	for limit, want := range map[time.Duration]string{
		0:            "worker: Hold for 0s: a limit is positive",
		-time.Second: "worker: Hold for -1s: a limit is positive",
	} {
		if got := testkit.PanicOf(func() { worker.CallOf(t.Context()).Hold("", limit) }); got != want {
			t.Errorf("panicked with %v, want %s", got, want)
		}
	}
}

// A call has one hold. It lasts until each of its releases was called, and shows the first reason.
func TestHoldTwiceInACall(t *testing.T) {
	overHolding(t, func(t *testing.T, q stringQueue) {
		h := newHolder()
		var first atomic.Bool
		p := worker.New(q, func(ctx context.Context, key string) error {
			if first.CompareAndSwap(false, true) {
				call := worker.CallOf(ctx)
				h.until(call.Hold("the cache shows one", time.Minute))
				h.until(call.Hold("the cache shows two", time.Hour))
				call.Hold("the cache shows three", time.Second)()
				defer time.AfterFunc(time.Second, func() {
					call.Hold("the call has ended", time.Hour)()
				})
			}
			return h.handle(ctx, key)
		}, options{})
		r := run(t, p)
		q.Add("a")
		r.after(5 * time.Second)
		equal(t, "held", p.Snapshot(10).OnHold, worker.OnHoldKey[string]{
			Key: "a", Reason: "the cache shows one", Since: r.begun, Until: r.begun.Add(time.Hour),
		})
		q.Add("a")
		h.releases[0]()
		h.releases[0]()
		r.after(2 * time.Minute)
		h.releases[1]()
		r.after(2 * time.Hour)
		r.endCleanly()
		equal(t, "calls", h.took(), "a 1 0s", "a 1 2m0s")
		if st := p.Stats(); st.HoldDurations.Count() != 1 || st.HoldsToLimit != 0 {
			t.Errorf("%+v", st)
		}
	})
	worker.CallOf(t.Context()).Hold("", time.Hour)() // Without a call it does nothing.
}

// A key that wants to come when its hold ends, and whose hold is released at once, again and again, is slowed
// down. A hold that lasts ends that.
func TestHoldThatIsReleasedAtOnce(t *testing.T) {
	for name, start := range map[string]func(release func()){"before": func(release func()) { release() },
		"after": func(release func()) { go release() }} {
		t.Run("released="+name, func(t *testing.T) {
			overHolding(t, func(t *testing.T, q stringQueue) {
				var calls atomic.Int64
				var slow atomic.Bool
				p := worker.New(q, func(ctx context.Context, _ string) error {
					calls.Add(1)
					return holds(ctx, "the cache shows it", time.Minute, func(release func()) {
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
				st := p.Stats()
				if n := calls.Load(); n < 10 || n > 30 || st.Looping != 1 || st.HoldsToLimit != 0 {
					t.Errorf("%d calls, %+v", n, st)
				}
				if n := p.SnapshotKey("a").AtOnce; int64(n) != calls.Load() {
					t.Errorf("%d at once in a row after %d calls", n, calls.Load())
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

// What is said about keys on hold.
func TestKeysOnHold(t *testing.T) {
	overHolding(t, func(t *testing.T, q stringQueue) {
		p := worker.New(q, func(ctx context.Context, key string) error {
			time.Sleep(time.Second)
			return holds(ctx, strings.Repeat(key, 500), time.Minute, func(func()) {})
		}, options{})
		r := run(t, p)
		addAll(q, "a b c")
		r.after(4 * time.Second)
		at := func(n int) time.Time { return r.begun.Add(time.Duration(n) * time.Second) }
		a := worker.OnHoldKey[string]{Key: "a", Reason: strings.Repeat("a", 200), Since: at(1), Until: at(61)}
		b := worker.OnHoldKey[string]{Key: "b", Reason: strings.Repeat("b", 200), Since: at(2), Until: at(62)}
		equal(t, "held", p.Snapshot(2).OnHold, a, b)
		if k := p.SnapshotKey("b"); k.OnHold == nil || *k.OnHold != b {
			t.Errorf("%+v", k.OnHold)
		}
		if k := p.SnapshotKey("d"); k.OnHold != nil {
			t.Errorf("%+v", k.OnHold)
		}
		if k := p.Inspector().SnapshotKey("a").OnHold; k == nil || k.Key != any("a") || k.Reason != a.Reason {
			t.Errorf("%+v", k)
		}
		equal(t, "on hold", namesIn(p.Inspector(), worker.KeyOnHold), "a", "b", "c")
		if st := p.Stats(); st.OnHold != 3 || st.Busy != 0 {
			t.Errorf("%+v", st)
		}
		r.cancel()
		r.after(5 * time.Second)
		r.returnedLeaving("3 queued and not started: a, b, c")
		if st := p.Stats(); st.OnHold != 0 || st.HoldsToLimit != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// The key keeps its priority, or has the higher one of an add meanwhile.
func TestHoldKeepsPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolder()
		h.answers = []answer{h.hold(time.Minute), h.hold(time.Minute)}
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
