package worker_test

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// timedQueues make queues with metrics. A key is retried after 1 s, 2 s, 4 s.
var timedQueues = map[string]func() stringQueue{
	"root": func() stringQueue {
		limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Hour)
		return workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "q", MetricsProvider: testkit.Times{}})
	},
	"priority": func() stringQueue {
		return newPriorityQueue(priorityqueue.Config[string]{Name: "q", MetricsProvider: testkit.Times{}})
	},
}

// wantChanges checks how many changes were answered, and the sum of their times.
func wantChanges(t *testing.T, when string, st worker.Stats, count uint64, seconds float64) {
	t.Helper()
	if st.Changes == nil {
		t.Fatalf("%s: changes are not measured", when)
	}
	if st.Changes.Count() != count || math.Abs(st.Changes.Sum-seconds) > 1e-9 {
		t.Errorf("%s: %d changes of %v s, want %d of %v s", when, st.Changes.Count(), st.Changes.Sum,
			count, seconds)
	}
}

// A change lasts from the add of a key to the first call that answers it. Each call takes a second, and is
// for the one key there is.
func TestChanges(t *testing.T) {
	fails, s := errBroken, time.Second
	for name, c := range map[string]struct {
		answers []error
		adds    []time.Duration // beside that at 0
		count   uint64
		seconds float64
		again   float64 // in the root queue, where a key that fails and was added comes once more
	}{
		"a success":              {answers: []error{nil}, count: 1, seconds: 1},
		"failures and a success": {answers: []error{fails, fails, nil}, count: 1, seconds: 6},
		"a failure with a least delay": {answers: []error{worker.RetryAfter(fails, 7*s), nil}, count: 1,
			seconds: 9},
		"later": {answers: []error{worker.RequeueAfter(5 * s), nil}, count: 2,
			seconds: 2},
		"at once": {answers: []error{worker.RequeueAfter(0), nil}, count: 2, seconds: 2},
		"failed, then later": {answers: []error{fails, worker.RequeueAfter(5 * s), nil}, count: 2,
			seconds: 4},
		"given up": {answers: []error{worker.Terminal(fails), nil},
			adds: []time.Duration{10 * s}, count: 1, seconds: 1},
		"failed, then given up": {answers: []error{fails, worker.Terminal(fails), nil},
			adds: []time.Duration{20 * s}, count: 1, seconds: 1},
		"added while held": {answers: []error{nil, nil}, adds: []time.Duration{s / 2, s * 3 / 4},
			count: 2, seconds: 2.5},
		"added while held, and it fails": {answers: []error{fails, nil, nil}, adds: []time.Duration{s / 2},
			count: 1, seconds: 2, again: 1},
		"added while the retry waits": {answers: []error{fails, nil, nil}, adds: []time.Duration{s * 3 / 2},
			count: 1, seconds: 2.5, again: 1.5},
		"interrupted": {answers: []error{worker.ErrAdded, nil}, count: 1, seconds: 2},
		"interrupted again and again": {answers: []error{worker.ErrAdded, fails, worker.ErrAdded, nil},
			count: 1, seconds: 5},
		"added again after it had success": {answers: []error{fails, nil, nil}, adds: []time.Duration{20 * s},
			count: 2, seconds: 4},
	} {
		for kind, newQueue := range timedQueues {
			t.Run(name+"/"+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					q := newQueue()
					calls := 0
					p := worker.New(q, func(context.Context, string) error {
						time.Sleep(s)
						if calls++; calls > len(c.answers) {
							return nil
						}
						return c.answers[calls-1]
					}, options{})
					q.Add("a")
					r := run(t, p)
					for _, at := range c.adds {
						r.after(at)
						q.Add("a")
					}
					r.after(time.Minute)
					count, seconds := c.count, c.seconds
					if kind == "root" && c.again > 0 {
						count, seconds = count+1, seconds+c.again
					}
					wantChanges(t, "at the end", p.Stats(), count, seconds)
					if age := p.Stats().OldestUnanswered; age != 0 {
						t.Errorf("unanswered: %v", age)
					}
					r.endCleanly()
				})
			})
		}
	}
}

// The time in the line counts, and a delay that somebody asked for before does not.
func TestChangesInTheLine(t *testing.T) {
	for kind, newQueue := range timedQueues {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue()
				p := worker.New(q, takes(time.Second), options{})
				addAll(q, "a b c")
				q.AddAfter("d", 10*time.Second)
				r := run(t, p)
				r.after(5 * time.Second)
				wantChanges(t, "a, b and c", p.Stats(), 3, 1+2+3)
				r.after(20 * time.Second)
				wantChanges(t, "and d", p.Stats(), 4, 7)
				r.endCleanly()
			})
		})
	}
}

// The oldest change that no call has answered belongs to a key in any state.
func TestOldestUnanswered(t *testing.T) {
	for kind, newQueue := range timedQueues {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue()
				var repaired atomic.Bool
				p := worker.New(q, func(_ context.Context, key string) error {
					time.Sleep(10 * time.Second)
					if key == "fails" && !repaired.Load() {
						return errBroken
					}
					return nil
				}, options{})
				check := func(when string, want time.Duration) {
					t.Helper()
					if age := p.Stats().OldestUnanswered; age != want {
						t.Errorf("%s: %v, want %v", when, age, want)
					}
				}
				check("without keys", 0)
				q.Add("fails")
				time.Sleep(time.Second)
				check("queued", time.Second)
				q.Add("other")
				r := run(t, p)
				check("handled", time.Second)
				r.after(9 * time.Second)
				q.Add("fails")
				r.after(11 * time.Second)
				check("failed", 12*time.Second)
				r.after(25 * time.Second)
				repaired.Store(true)
				check("handled again", 26*time.Second)
				r.after(31 * time.Second)
				check("after its success", 0)
				r.endCleanly()
			})
		})
	}
}

// A key that a handler has put on hold waits for the world. It does not hide a younger failing key, and
// counts again when its hold has ended.
func TestOldestUnansweredIsNotOnHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := timedQueues["root"]()
		p := worker.New(q, func(ctx context.Context, key string) error {
			if key == "fails" || worker.CallOf(ctx).Attempt() > 1 {
				return errBroken
			}
			return errors.Join(errBroken, holds(ctx, "the world", time.Hour, func(func()) {}))
		}, options{})
		q.Add("held")
		r := run(t, p)
		r.after(time.Minute)
		if s := p.Stats(); s.OldestUnanswered != 0 || s.OnHold != 1 {
			t.Errorf("on hold: %v, %d held", s.OldestUnanswered, s.OnHold)
		}
		q.Add("fails")
		r.after(2 * time.Minute)
		if age := p.Stats().OldestUnanswered; age != time.Minute {
			t.Errorf("on hold, and another key fails: %v", age)
		}
		r.after(time.Hour + time.Minute)
		if age := p.Stats().OldestUnanswered; age != time.Hour+time.Minute {
			t.Errorf("after the hold: %v", age)
		}
		_ = r.end()
	})
}

// A key that is slowed down waits for nothing: it counts.
func TestOldestUnansweredIsSlowedDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := timedQueues["root"]()
		q.Add("a")
		p := worker.New(q, answers(worker.ErrAdded), options{})
		r := run(t, p)
		r.after(time.Minute)
		if s := p.Stats(); s.OldestUnanswered != time.Minute {
			t.Errorf("unanswered for %v after a minute", s.OldestUnanswered)
		}
		_ = r.end()
	})
}

// A change ends without an answer when the pool forgets the key.
func TestForgottenChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := timedQueues["root"]()
		calls := 0
		p := worker.New(q, func(context.Context, string) error {
			if calls++; calls == 1 {
				return worker.RetryAfter(errBroken, time.Hour)
			}
			return nil
		}, options{})
		q.Add("a")
		r := run(t, p)
		r.after(time.Minute)
		before := p.Stats().OldestUnanswered
		p.Forget("a")
		if after := p.Stats().OldestUnanswered; before != time.Minute || after != 0 {
			t.Errorf("%v, and after Forget %v", before, after)
		}
		q.Add("a")
		r.after(2 * time.Minute)
		wantChanges(t, "after the next", p.Stats(), 1, 0)
		r.endCleanly()
	})
}

// A record ends ten minutes after the key was due. If the key comes earlier, even so late, its
// change continues; later it begins when the key was due. So it is with the row of a key that comes at once.
func TestRecordsEnd(t *testing.T) {
	const delay, life = 20 * time.Minute, 10 * time.Minute
	for name, c := range map[string]struct {
		late    time.Duration
		changes float64 // seconds
	}{
		"in time":  {0, (delay).Seconds()},
		"late":     {life - time.Second, (delay + life - time.Second).Seconds()},
		"too late": {life + time.Second, (life + time.Second).Seconds()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newPriorityQueue(priorityqueue.Config[string]{Name: "q", MetricsProvider: testkit.Times{}})
				b := worker.NewTracker(q, options{})
				q.Add("a")
				q.Get()
				b.Begin(t.Context(), "a").End(worker.RetryAfter(errBroken, delay))
				q.Done("a")
				time.Sleep(delay + c.late)
				q.Get()
				b.Begin(t.Context(), "a").End(nil)
				q.Done("a")
				wantChanges(t, "at the end", b.Stats(), 1, c.changes)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		b := worker.NewTracker(q, options{})
		for range 6 {
			b.Begin(t.Context(), "a").End(worker.ErrAdded)
		}
		time.Sleep(life - time.Second)
		before := b.Stats().Looping
		time.Sleep(2 * time.Second)
		if after := b.Stats().Looping; before != 1 || after != 0 {
			t.Errorf("%d keys loop, and after ten minutes %d", before, after)
		}
	})
}

// The change of a key that others have answered does not continue with its next add.
func TestChangeThatOthersHaveAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newPriorityQueue(priorityqueue.Config[string]{Name: "q", MetricsProvider: testkit.Times{}})
		b, other := worker.NewTracker(q, options{}), worker.NewTracker(q, options{})
		call := func(b *worker.Tracker[string], err error) {
			q.Get()
			if b.Begin(t.Context(), "a").End(err); err == nil {
				q.Forget("a")
			}
			q.Done("a")
		}
		q.Add("a")
		call(b, errBroken)
		call(other, nil)
		time.Sleep(time.Minute)
		q.Add("a")
		time.Sleep(time.Second)
		call(b, nil)
		wantChanges(t, "at the end", b.Stats(), 1, 1)
	})
}

// The time on hold belongs to the change of a key, also if it is longer than a record lasts without it.
func TestChangeWithLongHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newPriorityQueue(priorityqueue.Config[string]{Name: "q", MetricsProvider: testkit.Times{}})
		calls := 0
		r := run(t, worker.New(q, func(ctx context.Context, _ string) error {
			if calls++; calls > 1 {
				return nil
			}
			time.Sleep(5 * time.Minute)
			worker.CallOf(ctx).Hold("the world", 20*time.Minute)
			return worker.ErrAdded
		}, options{}))
		q.Add("a")
		r.after(time.Hour)
		wantChanges(t, "at the end", r.runner.(*worker.Pool[string]).Stats(), 1, (25 * time.Minute).Seconds())
		r.endCleanly()
	})
}

// Forget during a call ends the change that the call would answer: it is not counted, and does not continue
// after a failure.
func TestForgottenChangeOfRunningKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, err := range []error{nil, errBroken} {
			q := newPriorityQueue(priorityqueue.Config[string]{Name: "q", MetricsProvider: testkit.Times{}})
			defer q.ShutDown()
			b := worker.NewTracker(q, options{})
			q.Add("a")
			q.Get()
			b.Begin(t.Context(), "a").End(errBroken)
			time.Sleep(time.Second)
			e := b.Begin(t.Context(), "a")
			b.Forget("a")
			e.End(err)
			if s := b.Stats(); s.OldestUnanswered != 0 || s.Changes.Count() != 0 {
				t.Errorf("after %v: unanswered for %v, %d counted", err, s.OldestUnanswered, s.Changes.Count())
			}
		}
	})
}

// Of a queue with priorities, the oldest key may not be the next one.
func TestOldestUnansweredWithPriorities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newPriorityQueue(priorityqueue.Config[string]{Name: "q", MetricsProvider: testkit.Times{}})
		q.Add("low")
		time.Sleep(time.Second)
		q.AddWithPriority("high", 1, 0)
		time.Sleep(time.Second)
		if age := worker.New(q, fine, options{}).Stats().OldestUnanswered; age != 2*time.Second {
			t.Error(age)
		}
	})
}

// Tracker measure the same. Without metrics, or over a queue that does not know when its keys were added,
// nothing is measured.
func TestWhoMeasuresChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for kind, q := range map[string]stringQueue{
			"timed": timedQueues["root"](), "without metrics": newQueue(),
			"priority without metrics": newPriorityQueue(priorityqueue.Config[string]{}),
			"not handed out":           timedQueues["priority"](),
		} {
			defer q.ShutDown()
			b := worker.NewTracker(q, options{})
			if q.Add("a"); kind != "not handed out" {
				q.Get()
			}
			time.Sleep(time.Second)
			b.Begin(t.Context(), "a").End(errors.Join(errBroken))
			b.Begin(t.Context(), "a").End(nil)
			switch s := b.Stats(); kind {
			case "timed":
				wantChanges(t, kind, s, 1, 1)
			case "not handed out":
				wantChanges(t, kind, s, 0, 0)
			default:
				if s.Changes != nil || s.OldestUnanswered != 0 {
					t.Errorf("%s: %+v, %v", kind, s.Changes, s.OldestUnanswered)
				}
			}
		}
	})
}
