package worker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// failedKeys formats keys as "key attempt error time nextTry", with times relative to start.
func failedKeys(start time.Time, keys []worker.FailedKey[string]) []string {
	var lines []string
	for _, f := range keys {
		next := "-"
		if !f.NextTry.IsZero() {
			next = f.NextTry.Sub(start).String()
		}
		lines = append(lines, fmt.Sprintf("%s %d %s %v %s", f.Key, f.Attempt, f.Err, f.Time.Sub(start), next))
	}
	return lines
}

// The last error of a failing key is known until it succeeds.
func TestFailingKeys(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		start := time.Now()
		p := worker.New(q, func(ctx context.Context, key string) error {
			time.Sleep(100 * time.Millisecond)
			if worker.CallOf(ctx).Attempt() == 4 {
				return nil
			}
			return fmt.Errorf("%s is broken, %d", key, worker.CallOf(ctx).Attempt())
		}, options{Workers: 2})
		q.Add("a")
		r := run(t, p)
		r.after(500 * time.Millisecond)
		q.Add("b")
		_, extended := q.(workqueue.Extended[string])
		check := func(at time.Duration, want ...string) {
			t.Helper()
			r.after(at)
			if !extended {
				for i, line := range want {
					want[i] = line[:strings.LastIndex(line, " ")] + " -"
				}
			}
			s := p.Snapshot(10)
			equal(t, fmt.Sprint("at ", at), failedKeys(start, s.Failing), want...)
			if s.Stats.Failing != len(want) {
				t.Errorf("at %v, %d failing", at, s.Stats.Failing)
			}
		}
		check(time.Second, "b 1 b is broken, 1 600ms 1.6s", "a 1 a is broken, 1 100ms 1.1s")
		check(1150*time.Millisecond, "b 1 b is broken, 1 600ms 1.6s", "a 1 a is broken, 1 100ms -") // a runs.
		check(2*time.Second, "b 2 b is broken, 2 1.7s 3.7s", "a 2 a is broken, 2 1.2s 3.2s")
		if got := p.Snapshot(1).Failing; len(got) != 1 || got[0].Key != "b" {
			t.Errorf("limited: %+v", got)
		}
		check(time.Minute)
		r.endCleanly()
	})
}

// Of the keys that were given up the last ones are known, until they succeed or are forgotten.
func TestGivenUpKeys(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		start := time.Now()
		broken := true
		p := worker.New(q, func(ctx context.Context, key string) error {
			if !broken {
				return nil
			}
			return fmt.Errorf("%s is broken, %d", key, worker.CallOf(ctx).Attempt())
		}, options{MaxRetries: 1, KeepGivenUp: 3})
		addAll(q, "a b c d")
		r := run(t, p)
		check := func(what string, want ...string) {
			t.Helper()
			s := p.Snapshot(10)
			equal(t, what, failedKeys(start, s.GivenUp), want...)
			if len(s.Failing) != 0 || s.Stats.Failing != 0 || p.Stats().GivenUpKeys != len(want) {
				t.Errorf("%s: failing %+v, %d given up", what, s.Failing, s.Stats.GivenUpKeys)
			}
		}
		r.after(time.Minute)
		check("three of four", "d 2 d is broken, 2 1s -", "c 2 c is broken, 2 1s -", "b 2 b is broken, 2 1s -")
		broken = false
		q.Add("c")
		r.after(2 * time.Minute)
		check("c has succeeded", "d 2 d is broken, 2 1s -", "b 2 b is broken, 2 1s -")
		p.Forget("d")
		check("d is forgotten", "b 2 b is broken, 2 1s -")
		// A key that was added again and fails is failing, and not given up any more.
		broken = true
		q.Add("b")
		r.after(2*time.Minute + 500*time.Millisecond)
		if s := p.Snapshot(10); len(s.Failing) != 1 || len(s.GivenUp) != 0 || s.Stats.GivenUpKeys != 0 {
			t.Errorf("failing %+v, given up %+v of %d", s.Failing, s.GivenUp, s.Stats.GivenUpKeys)
		}
		r.after(3 * time.Minute)
		check("b is given up again", "b 2 b is broken, 2 2m1s -")
		r.endCleanly()
		check("at the end", "b 2 b is broken, 2 2m1s -")
	})
}

func TestKeepGivenUp(t *testing.T) {
	for _, c := range []struct{ keep, want int }{{0, 1000}, {-1, 0}, {7, 7}} {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue()
			addNumbers(q, 1100)
			p := worker.New(q, broken, options{MaxRetries: worker.NoRetries, KeepGivenUp: c.keep})
			run(t, p).endCleanly()
			if got := len(p.Snapshot(2000).GivenUp); got != c.want {
				t.Errorf("%d keys are kept of %d, want %d", got, c.keep, c.want)
			}
		})
	}
}

// Keys that were removed from the queue, or forgotten by somebody else, are no longer failing: the pool does
// not report them at the end, keeps no memory for them, and counts their failures from the beginning.
func TestFailingKeysThatAreGone(t *testing.T) {
	limiter := func() workqueue.TypedRateLimiter[string] {
		return workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Hour, 24*time.Hour)
	}
	newPriorityQueue := func() stringQueue {
		return priorityqueue.New(priorityqueue.Config[string]{RateLimiter: limiter()})
	}
	newFIFO := func() stringQueue { return limitedQueue(limiter()) }
	forget := func(q stringQueue, key string) { q.Forget(key) }
	for _, c := range []struct {
		name  string
		queue func() stringQueue
		gone  func(q stringQueue, key string)
	}{
		{"removed", newPriorityQueue, func(q stringQueue,
			key string) {
			q.(*priorityqueue.Queue[string]).Remove(key)
		}},
		{"removed and forgotten", newPriorityQueue, func(q stringQueue, key string) {
			q.(*priorityqueue.Queue[string]).Remove(key)
			q.Forget(key)
		}},
		{"forgotten", newFIFO, forget},
	} {
		for _, when := range []string{"at once", "later", "at the end"} {
			t.Run(c.name+"/"+when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					const n = 500
					q := c.queue()
					attempts := make(map[string]int)
					p := worker.New(q, func(ctx context.Context, key string) error {
						attempts[key] = worker.CallOf(ctx).Attempt()
						return errBroken
					}, options{})
					addNumbers(q, n)
					r := run(t, p)
					failing := func(want int) {
						t.Helper()
						if got := p.Stats().Failing; got != want {
							t.Errorf("%d keys fail, want %d", got, want)
						}
					}
					failing(n)
					for i := range n - 1 {
						if i == n/2 && when == "later" {
							r.after(time.Minute)
							failing(n - i)
						}
						c.gone(q, fmt.Sprint(i))
					}
					switch when {
					case "at once":
						want := 1 + q.NumRequeues("0") // A key that comes again was never missed.
						q.Add("0")
						synctest.Wait()
						if attempts["0"] != want {
							t.Errorf("attempt %d, want %d", attempts["0"], want)
						}
						c.gone(q, "0")
						if got := p.SnapshotKey("0"); got.Failing != nil || got.FailedCalls != nil {
							t.Errorf("%+v", got)
						}
						if got := p.Snapshot(n).Failing; len(got) != 1 || got[0].Key != fmt.Sprint(n-1) {
							t.Errorf("%d keys fail", len(got))
						}
						failing(1)
					case "later":
						r.after(2 * time.Minute)
						failing(1)
					}
					r.cancel()
					r.returnedLeaving(fmt.Sprint("1 failed and not retried: ", n-1))
				})
			})
		}
	}
}

// Keys that were waiting for their retry when somebody else shut the queue down are failing, and not gone.
// A row of failed calls ends when the queue forgets the key, although the pool has not noticed that yet.
func TestFailedCallsAfterForgetOfQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := limitedQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Second))
		p := worker.New(q, broken, options{})
		r := run(t, p)
		q.Add("a")
		r.after(2500 * time.Millisecond) // three calls
		q.Forget("a")
		r.after(3500 * time.Millisecond) // one more
		got := p.SnapshotKey("a")
		if len(got.FailedCalls) != 1 || got.Failing == nil || got.Failing.Attempt != 1 ||
			got.Failing.Since.Sub(r.begun) != 3*time.Second {
			t.Errorf("%+v, failing %+v", got.FailedCalls, got.Failing)
		}
		_ = r.end()
	})
}

func TestFailingKeysOfAQueueThatIsShutDown(t *testing.T) {
	for _, keep := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			q := newPriorityQueue(priorityqueue.Config[string]{})
			q.Add("a")
			r := run(t, worker.New(q, broken, options{KeepQueue: keep}))
			q.ShutDown()
			r.returnedLeaving("1 failed and not retried: a")
		})
	}
}

// What a limiter that does not count by key answers does not mean that a key was forgotten.
func TestFailingWithLimiterThatDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.NewTypedRateLimitingQueue[string](
			slowestLimiter{workqueue.NewTypedMaxOfRateLimiter[string]()})
		q.Add("a")
		p := worker.New(q, broken, options{})
		r := run(t, p)
		r.after(10 * time.Minute)
		if s := p.Snapshot(10); len(s.Failing) != 1 || s.Stats.Failing != 1 {
			t.Errorf("failing: %+v", s.Failing)
		}
		r.endLeaving("1 failed and not retried: a")
	})
}

// slowestLimiter makes every key wait for an hour, and counts nothing.
type slowestLimiter struct {
	workqueue.TypedRateLimiter[string]
}

func (slowestLimiter) When(string) time.Duration { return time.Hour }

// Very many keys that have failed, and were removed from the queue and forgotten, leave no memory, and are
// not reported at the end.
func TestMemoryOfFailingKeys(t *testing.T) {
	if testkit.RaceEnabled {
		t.Skip("the race detector takes memory")
	}
	synctest.Test(t, func(t *testing.T) {
		const n = 300_000
		q := priorityqueue.New(priorityqueue.Config[int]{})
		p := worker.New(q, func(context.Context, int) error { return errBroken }, worker.Options[int]{})
		r := run(t, p)
		before := testkit.Heap()
		for key := range n {
			q.Add(key)
		}
		synctest.Wait()
		for key := range n {
			q.Remove(key)
			q.Forget(key)
		}
		r.after(2 * time.Minute)
		// What stays is no more for 900,000 keys than for 30,000: the free memory that each of a dozen tables, of
		// the queue, its limiters and the pool, keeps for the next burst (128 KiB or one slab), 1.42 MB in all.
		if grown := testkit.Heap() - before; grown > 1_800_000 {
			t.Errorf("%d keys that are gone leave %d bytes", n, grown)
		}
		r.endCleanly()
	})
}
