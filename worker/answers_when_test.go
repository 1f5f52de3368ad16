package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// addEvery adds a key at each multiple of a time, until the context ends.
func addEvery(ctx context.Context, q stringQueue, key string, period time.Duration) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			q.Add(key)
		case <-ctx.Done():
			return
		}
	}
}

// A key whose handler fails for a while, while events add it, succeeds no later after the repair than it was
// broken: a failure counts once for each delay that was served. That also holds with client-go's limiters,
// which count every call.
func TestEventsDoNotInflateTheBackoff(t *testing.T) {
	for name, newQueue := range map[string]func() stringQueue{
		"root, default limiter": func() stringQueue {
			return workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
		},
		"root, item backoff": func() stringQueue {
			return workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemBackoffRateLimiter(
				workqueue.BackoffConfig[string]{}))
		},
		"priority, client-go's limiter": func() stringQueue {
			return priorityqueue.New(
				priorityqueue.Config[string]{RateLimiter: workqueue.DefaultTypedControllerRateLimiter[string]()})
		},
		"priority": func() stringQueue { return priorityqueue.New(priorityqueue.Config[string]{}) },
	} {
		for _, period := range []time.Duration{5 * time.Millisecond, 50 * time.Millisecond, 5 * time.Second} {
			for _, broken := range []time.Duration{time.Second, 10 * time.Second, 10 * time.Minute} {
				if broken/period > 20_000 && name != "root, default limiter" {
					continue // Once is enough for so many calls.
				}
				t.Run(fmt.Sprintf("%s/period=%v/broken=%v", name, period, broken), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						q, start, fails := newQueue(), time.Now(), 0
						var succeeded time.Duration
						p := worker.New(q, func(context.Context, string) error {
							if at := time.Since(start); at < broken {
								fails++
								return errBroken
							} else if succeeded == 0 {
								succeeded = at
							}
							return nil
						}, options{MaxRetries: 40})
						q.Add("a")
						r := run(t, p)
						events, end := context.WithTimeout(t.Context(), broken-time.Millisecond)
						defer end()
						latest, phase := broken, time.Duration(0)
						if strings.HasPrefix(name, "priority") {
							// An add just while the limiter is asked makes the next failure count as well. If each delay ended
							// with an event, that could happen twice.
							latest, phase = 2*broken, period/3
						}
						go func() {
							time.Sleep(phase)
							addEvery(events, q, "a", period)
						}()
						r.after(3*broken + time.Second)
						if after := succeeded - broken; succeeded == 0 || after > latest {
							t.Errorf("it has succeeded %v after the repair, %+v", after, p.Stats())
						}
						if most := int(broken/period) + 20; fails > most || p.Stats().GivenUp > 0 {
							t.Errorf("%d calls, want %d at most, %+v", fails, most, p.Stats())
						}
						r.endCleanly()
					})
				})
			}
		}
	}
}

// A call that fails before the delay of the failure before it has passed is the same failure: for Attempt,
// for MaxRetries, for the limiter and for what the pool remembers.
func TestSameFailure(t *testing.T) { inBubble(t, testSameFailure) }

func testSameFailure(t *testing.T, q stringQueue) { // Its keys are retried after 1, 2, 4 s.
	start := time.Now()
	var j []string
	p := worker.New(q, broken, options{MaxRetries: 2, OnFinish: func(_ context.Context, r outcome) {
		j = append(j, fmt.Sprint(time.Since(start), " ", r.Attempt, " ", r.Next))
	}})
	q.Add("a")
	r := run(t, p)
	for at := 100 * time.Millisecond; at < 3*time.Second; at += 400 * time.Millisecond {
		r.after(at)
		q.Add("a")
	}
	r.after(time.Minute)
	equal(t, "calls", j, "0s 1 retry", "100ms 1 retry", "500ms 1 retry", "900ms 1 retry", "1s 2 retry",
		"1.3s 2 retry", "1.7s 2 retry",
		"2.1s 2 retry", "2.5s 2 retry", "2.9s 2 retry", "3s 3 give_up")
	r.endCleanly()
}

// A server says how long to stay away. The failure counts, and the longer of that and the limiter's delay
// counts.
func TestRetryAfter(t *testing.T) {
	joined := func(err error, d time.Duration) error { return errors.Join(err, worker.RequeueAfter(d)) }
	for name, retryAfter := range map[string]func(error, time.Duration) error{
		"RetryAfter": worker.RetryAfter, "joined": joined,
		"wrapped": func(err error, d time.Duration) error {
			return fmt.Errorf("list: %w", worker.RetryAfter(err, d))
		},
	} {
		for kind, newQueue := range map[string]func() stringQueue{
			"root":     func() stringQueue { return newQueue() },
			"priority": func() stringQueue { return newPriorityQueue(priorityqueue.Config[string]{}) },
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					q, start := newQueue(), time.Now()
					var calls []string
					var texts []string
					p := worker.New(q, func(ctx context.Context, _ string) error {
						calls = append(calls, fmt.Sprint(time.Since(start), " ", worker.CallOf(ctx).Attempt()))
						return retryAfter(errBroken, 3*time.Second)
					}, options{MaxRetries: 3, OnFinish: func(_ context.Context,
						r outcome) {
						texts = append(texts, r.Err.Error())
					}})
					q.Add("a")
					r := run(t, p)
					r.after(time.Minute)
					want := []string{"0s 1", "3s 2", "6s 3", "10s 4"} // The limiter's delays are 1, 2 and 4 s.
					equal(t, "calls", calls, want...)
					if st := p.Stats(); st.Failed != 4 || st.GivenUp != 1 || st.Requeued != 0 {
						t.Errorf("%+v", st)
					}
					if !strings.Contains(texts[0], "broken") || !strings.Contains(texts[0], "3s") {
						t.Errorf("the error is %q", texts[0])
					}
					r.endCleanly()
				})
			})
		}
	}
	if worker.RetryAfter(nil, time.Second) != nil {
		t.Error("RetryAfter(nil) is an error")
	}
}

// Each key comes at its own moment of the period, the same in every process, and once in each.
func TestEvery(t *testing.T) {
	const period, keys = time.Hour, 100
	moments := func(t *testing.T, offset time.Duration) map[string]time.Duration {
		found := make(map[string]time.Duration)
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(offset)
			q, start := newQueue(), time.Now()
			times := make(map[string][]time.Time)
			r := run(t, worker.New(q, func(_ context.Context, key string) error {
				times[key] = append(times[key], time.Now())
				return worker.Every(period)
			}, options{}))
			addNumbers(q, keys)
			r.after(3*period + period/500)
			for key, at := range times {
				if len(at) != 4 || at[1].Sub(start) > period+period/1000 || at[2].Sub(at[1]) != period ||
					at[3].Sub(at[2]) != period {
					t.Errorf("%s came at %v", key, at)
				}
				found[key] = at[1].Sub(at[1].Truncate(period))
			}
			r.endCleanly()
		})
		return found
	}
	first, second := moments(t, 0), moments(t, 17*time.Minute)
	quarters := make([]int, 4)
	for key, at := range first {
		if second[key] != at {
			t.Errorf("%s comes at %v of the period, and in another process at %v", key, at, second[key])
		}
		quarters[at/(period/4)]++
	}
	if slices.Min(quarters) < keys/8 {
		t.Errorf("keys in each quarter of the period: %v", quarters)
	}
	if !panics(func() { worker.Every(0) }) {
		t.Error("Every(0) does not panic")
	}
}

// A handler whose own add interrupts it is slowed down, counted and shown, and its key is not lost.
func TestInterruptLoop(t *testing.T) {
	overNotifying(t, func(t *testing.T, q notifying) {
		var fine atomic.Bool
		p := worker.New(q, func(ctx context.Context, key string) error {
			if key != "a" || fine.Load() {
				return nil
			}
			until := worker.CallOf(ctx).UntilAdded()
			q.Add(key)
			<-until.Done()
			return until.Err()
		}, options{})
		q.Add("a")
		r := run(t, p)
		if st := p.Stats(); st.Interrupted != 6 || st.Looping != 1 {
			t.Errorf("at once: %+v", st)
		}
		r.after(time.Minute)
		// After 5 ms, 10 ms and so on: 12 pauses take 20.5 s, and the others 10 s each.
		// Its handler has arranged no hold, so none comes to its limit.
		if st := p.Stats(); st.Interrupted > 25 || st.Busy != 0 || st.OnHold != 1 || st.HoldsToLimit != 0 {
			t.Errorf("after a minute: %+v", st)
		}
		if k := p.SnapshotKey("a"); k.AtOnce < 18 {
			t.Errorf("%+v", k)
		}
		q.Add("b") // The only worker is free.
		synctest.Wait()
		if st := p.Stats(); st.Handled != st.Interrupted+1 {
			t.Errorf("another key waits: %+v", st)
		}
		fine.Store(true)
		r.after(80 * time.Second)
		if st := p.Stats(); st.Looping != 0 || p.SnapshotKey("a").AtOnce != 0 ||
			st.Handled != st.Interrupted+2 {
			t.Errorf("when it has ended: %+v", st)
		}
		r.endCleanly()
	})
}

// A key that pauses is still handled when the queue is emptied at the end.
func TestInterruptLoopIsDrained(t *testing.T) {
	overNotifying(t, func(t *testing.T, q notifying) {
		var fine atomic.Bool
		q.Add("a")
		r := run(t, worker.New(q, func(ctx context.Context, key string) error {
			if fine.Load() {
				return nil
			}
			until := worker.CallOf(ctx).UntilAdded()
			q.Add(key)
			<-until.Done()
			return until.Err()
		}, options{Drain: worker.All}))
		r.after(time.Minute)
		fine.Store(true)
		r.cancel()
		r.returnedLeaving("nothing")
		wantMatchedDones(t, q)
	})
}

// A worker that stays when the pool shrinks, or that has lost a lease, is not taken for a worker that still
// gets a key: the end does not wait for its handler.
func TestEndAfterShrinking(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		end := make(chan struct{})
		p := worker.New(q, func(context.Context, string) error { <-end; return nil },
			options{Workers: 3, DrainTimeout: time.Second, CancelGrace: time.Second})
		r := run(t, p)
		setWorkers(t, p, 1)
		synctest.Wait()
		q.Add("a")
		synctest.Wait()
		r.cancel()
		r.after(3 * time.Second)
		_ = r.returned()
		close(end)
		synctest.Wait()
	})
}

// Stop before Run ends the wait for Ready.
func TestStopBeforeReady(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		p := worker.New(q, fine, options{Ready: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }})
		p.Stop(worker.Running)
		run(t, p).returnedLeaving("nothing")
	})
}
