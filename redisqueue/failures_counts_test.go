package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/operate"
)

var errBroken = errors.New("broken")

// wantFail fails a key that q holds, and is Done with it.
func wantFail(t *testing.T, q *Queue[string], key string, f workqueue.Failure, want workqueue.Retry) {
	t.Helper()
	r, err := q.Fail(within(t, 20*time.Second), key, f)
	if err != nil || r.Attempt != want.Attempt || r.Same != want.Same || r.GivenUp != want.GivenUp {
		t.Errorf("Fail() = %+v, %v, want %+v", r, err, want)
	}
	if want.Delay > 0 && (r.Delay > want.Delay || r.Delay < want.Delay-20*time.Second) {
		t.Errorf("the delay is %v, want %v", r.Delay, want.Delay)
	}
	q.Done(key)
}

// All replicas know how often a key has failed: the hand-out brings it along.
func TestFailuresOfAllReplicas(t *testing.T) {
	client := startServer(t).client()
	config := Config[string]{Backoff: workqueue.BackoffConfig[string]{Base: time.Minute}}
	queues := make([]*Queue[string], 3)
	for i := range queues {
		queues[i] = newShiftedQueue(t, client, config)
	}
	queues[0].Add("x")
	var now time.Duration
	for i, q := range queues {
		flush(t, queues[0])
		shiftClock(t, client, now)
		mustGet(t, q, "x")
		if f := q.Failures("x"); f.Count != i || f.Left != 0 {
			t.Errorf("replica %d: %d failures, %v are left", i, f.Count, f.Left)
		}
		if at := q.AddedAt("x"); time.Since(at) > time.Minute || at.After(time.Now()) {
			t.Errorf("added at %v", at)
		}
		delay := time.Minute << i
		wantFail(t, q, "x", workqueue.Failure{MaxRetries: 3}, workqueue.Retry{Attempt: i + 1, Delay: delay})
		now += delay + time.Second
	}
	if f := queues[0].Failures("x"); f.Count != 3 || f.Left <= 3*time.Minute {
		t.Errorf("a replica that does not hold the key knows of %d failures, %v are left", f.Count, f.Left)
	}
	// An event brings the key early: that is the same failure. Held, it knows what is left of the delay.
	queues[0].Add("x")
	mustGet(t, queues[1], "x")
	if f := queues[1].Failures("x"); f.Count != 3 || f.Left <= 3*time.Minute {
		t.Errorf("%d failures, %v are left", f.Count, f.Left)
	}
	wantFail(t, queues[1], "x", workqueue.Failure{MaxRetries: 3},
		workqueue.Retry{Attempt: 3, Same: true, Delay: 4 * time.Minute})
	queues[0].Add("x")
	mustGet(t, queues[1], "x")
	wantFail(t, queues[1], "x", workqueue.Failure{AtLeast: time.Hour},
		workqueue.Retry{Attempt: 3, Same: true, Delay: time.Hour})
	shiftClock(t, client, now+time.Hour)
	mustGet(t, queues[2], "x")
	wantFail(t, queues[2], "x", workqueue.Failure{MaxRetries: 3, Err: errBroken},
		workqueue.Retry{Attempt: 4, GivenUp: true})
	given := queues[0].GivenUpKeys(10)
	if len(given) != 1 || given[0].Attempts != 4 || given[0].Err != "broken" {
		t.Errorf("given up: %+v", given)
	}
	if n := queues[0].Failures("x").Count; n != 0 {
		t.Errorf("a key that was given up has %d failures", n)
	}
	wantNoKeys(t, queues[0])
}

func TestFailForGood(t *testing.T) {
	q := newTestQueue(t, startServer(t).client(), Config[string]{})
	addAndGet(t, q, "x")
	wantFail(t, q, "x", workqueue.Failure{Terminal: true}, workqueue.Retry{Attempt: 1, GivenUp: true})
	addAndGet(t, q, "y")
	wantFail(t, q, "y", workqueue.Failure{MaxRetries: -1}, workqueue.Retry{Attempt: 1, GivenUp: true})
	addAndGet(t, q, "z")
	wantFail(t, q, "z", workqueue.Failure{AtLeast: time.Hour}, workqueue.Retry{Attempt: 1, Delay: time.Hour})
	q.Add("z")
	mustGet(t, q, "z")
	wantFail(t, q, "z", workqueue.Failure{Terminal: true}, workqueue.Retry{Attempt: 1, Same: true,
		GivenUp: true})
	q.Add("x") // It is handed out when it is added, and a success takes it off the list.
	mustGet(t, q, "x")
	q.Forget("x")
	q.Done("x")
	flush(t, q)
	if n := len(q.GivenUpKeys(10)); n != 2 {
		t.Errorf("%d keys were given up, want 2", n)
	}
}

// Forget and Remove end the count, also for the worker that holds the key. A hold, and a Done without a
// failure, do not.
func TestFailuresEnd(t *testing.T) {
	q := newTestQueue(t, startServer(t).client(), Config[string]{Backoff: noBackoff})
	for i, end := range []func(){func() { q.Forget("x") }, func() { q.Remove("x") }} {
		addAndGet(t, q, "x")
		wantFail(t, q, "x", workqueue.Failure{}, workqueue.Retry{Attempt: 1})
		mustGet(t, q, "x")
		q.AddAfter("x", time.Millisecond)
		q.Done("x")
		mustGet(t, q, "x")
		if n := q.Failures("x").Count; n != 1 {
			t.Errorf("%d: %d failures", i, n)
		}
		end()
		if f := q.Failures("x"); f.Count != 0 || f.Left != 0 {
			t.Errorf("%d: %d failures, %v are left", i, f.Count, f.Left)
		}
		q.Done("x")
		flush(t, q)
		if n := q.Failures("x").Count; n != 0 {
			t.Errorf("%d: the server has %d failures", i, n)
		}
	}
}

// A key that is not given up, although this replica expects that, because another one has forgotten its
// failures, has a delay.
func TestDelayWhenNotGivenUp(t *testing.T) {
	s := startServer(t)
	config := Config[string]{Backoff: workqueue.BackoffConfig[string]{Base: time.Minute}}
	q, other := newShiftedQueue(t, s.client(), config), newTestQueue(t, s.client(), Config[string]{})
	addAndGet(t, q, "x")
	wantFail(t, q, "x", workqueue.Failure{MaxRetries: 1}, workqueue.Retry{Attempt: 1, Delay: time.Minute})
	shiftClock(t, s.client(), time.Minute)
	mustGet(t, q, "x")
	other.Forget("x")
	flush(t, other)
	r, err := q.Fail(within(t, 20*time.Second), "x", workqueue.Failure{MaxRetries: 1})
	if err != nil || r.Attempt != 1 || r.GivenUp || r.Delay <= 0 || r.Delay > time.Minute {
		t.Errorf("Fail() = %+v, %v, want the first delay", r, err)
	}
	q.Done("x")
}

// A server that does not answer does not keep a worker for longer than its context. The failure is counted
// when it answers again.
func TestFailWithoutServer(t *testing.T) {
	s := startServer(t)
	q := newTestQueue(t, s.client(), Config[string]{Backoff: workqueue.BackoffConfig[string]{Base: time.Hour,
		Max: time.Hour}})
	addAndGet(t, q, "x")
	s.signal(syscall.SIGSTOP)
	r, err := q.Fail(within(t, 10*time.Millisecond), "x", workqueue.Failure{MaxRetries: 1})
	if !errors.Is(err, context.DeadlineExceeded) || r != (workqueue.Retry{Attempt: 1}) {
		t.Errorf("Fail() = %+v, %v", r, err)
	}
	s.signal(syscall.SIGCONT)
	q.Done("x")
	flush(t, q)
	wantDelayLeft(t, q, "x", 1, time.Hour)
	if st := freshStats(t, q); st.Waiting != 1 || st.Processing != 0 {
		t.Errorf("%+v", st)
	}
}

// The failure is also counted if the context had ended before: otherwise the key would not be retried.
func TestFailAfterContext(t *testing.T) {
	q := newTestQueue(t, startServer(t).client(), Config[string]{Backoff: workqueue.BackoffConfig[string]{
		Base: time.Hour, Max: time.Hour}})
	addAndGet(t, q, "x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err := q.Fail(ctx, "x", workqueue.Failure{})
	if r.Attempt != 1 || err != nil && !errors.Is(err, context.Canceled) { // The answer may be there already.
		t.Errorf("Fail() = %+v, %v", r, err)
	}
	q.Done("x")
	flush(t, q)
	wantDelayLeft(t, q, "x", 1, time.Hour)
}

// Lost leases have a budget of their own: they use up none of the retries, and make no failure.
func TestLostLeasesAreNoFailures(t *testing.T) {
	client := startServer(t).client()
	q := newShiftedQueue(t, client, Config[string]{})
	q.Add("x")
	flush(t, q)
	var now time.Duration
	pass := func(d time.Duration) {
		for ; d > 0; d -= 15 * time.Second { // Longer steps let no lease end.
			now += 15 * time.Second
			shiftClock(t, client, now)
			freshStats(t, q)
		}
	}
	for i := range 3 {
		dead := rawSession{t: t, client: client, s: shiftedScript(), id: fmt.Sprintf("dead%07d", i),
			lease: 30 * time.Second}
		if reply := dead.send(1, 1); !strings.Contains(reply, "k1 ") {
			t.Fatalf("hand-out %d: %s", i, reply)
		}
		pass(10 * time.Minute)
	}
	mustGet(t, q, "x")
	k, err := q.key(within(t, 10*time.Second), "x")
	if err != nil || k.LostLeases != 3 {
		t.Errorf("Key() = %+v, %v, want three lost leases", k, err)
	}
	wantFail(t, q, "x", workqueue.Failure{MaxRetries: 3}, workqueue.Retry{Attempt: 1})
}

// A pause ends by itself on the server's clock, also when the process that has paused the queue is gone. It
// says who that was.
func TestPauseUntil(t *testing.T) {
	client := startServer(t).client()
	config := Config[string]{Replica: "operator"}
	gone, q := newShiftedQueue(t, client, config), newShiftedQueue(t, client,
		Config[string]{PollInterval: 10 * time.Second})
	gone.Pause(-1)
	gone.Pause(0)
	gone.Pause(time.Hour)
	gone.Pause(time.Minute) // The latest end counts.
	endQueue(t, gone)
	q.Add("x")
	flush(t, q)
	c, err := (&Admin{queue: q}).Counts(t.Context())
	left := time.Until(c.PausedUntil)
	if err != nil || !c.Paused || c.PausedBy != "operator" || left > time.Hour || left < 55*time.Minute ||
		time.Since(c.PausedSince) > time.Minute {
		t.Errorf("Counts() = %+v, %v", c, err)
	}
	st := freshStats(t, q)
	if left := time.Until(st.PausedUntil); !st.Paused || left > time.Hour || left < 55*time.Minute {
		t.Errorf("Stats() = %+v", st)
	}
	if s := leasing.StatsOf(st); s.PausedBy != "operator" || time.Since(s.PausedSince).Abs() > time.Minute {
		t.Errorf("Stats().Shared = %+v", s)
	}
	getNothing(t, q, 20*time.Millisecond)
	// Its batch lets the session leave SLEEPERS: a sleeper would come when the pause ends without the shift of
	// the clock.
	freshStats(t, q)
	shiftClock(t, client, time.Hour)
	mustGet(t, q, "x")
	if st := freshStats(t, q); st.Paused || !st.PausedUntil.IsZero() || leasing.StatsOf(st).PausedBy != "" ||
		!leasing.StatsOf(st).PausedSince.IsZero() {
		t.Errorf("Stats() = %+v, %+v", st, leasing.StatsOf(st))
	}
	q.Done("x")
	q.Pause(operate.UntilResumed)
	q.Pause(time.Minute)
	q.Add("x")
	flush(t, q)
	shiftClock(t, client, 1000*time.Hour)
	if c, err := (&Admin{queue: q}).Counts(t.Context()); err != nil || !c.Paused || !c.PausedUntil.IsZero() {
		t.Errorf("Counts() = %+v, %v", c, err)
	}
	getNothing(t, q, 20*time.Millisecond)
	q.Resume()
	mustGet(t, q, "x")
	q.Done("x")
	q.Pause(operate.UntilResumed - 1) // 292 years: more than a number of the server can be.
	flush(t, q)
	q.Add("y")
	q.Resume()
	mustGet(t, q, "y")
	q.Done("y")
}

// A getter that sleeps gets a key when a pause ends, without a poll.
func TestEndOfPauseWakes(t *testing.T) {
	q := newTestQueue(t, startServer(t).client(), Config[string]{PollInterval: 9 * time.Second})
	q.Pause(300 * time.Millisecond)
	began := time.Now()
	q.Add("x")
	mustGet(t, q, "x")
	if d := time.Since(began); d < 290*time.Millisecond || d > 5*time.Second {
		t.Errorf("the key came after %v", d)
	}
	q.Done("x")
}

// addRateLimitedAfter is a failure that asks for a delay, of a key that nobody holds.
func (q *Queue[T]) addRateLimitedAfter(item T, atLeast time.Duration) {
	details := newFailure(workqueue.Failure{AtLeast: atLeast})
	q.addLater(item, func(encoded string) *op { return q.newFailLocked(item, encoded, details, nil) })
}

// Every replica knows since when a key fails and why, from the hand-out and from SnapshotKey; and RetryFor counts
// from the first failure, on whichever replica that was.
func TestWhyAKeyFails(t *testing.T) {
	client := startServer(t).client()
	queues := []*Queue[string]{
		newShiftedQueue(t, client, Config[string]{Backoff: noBackoff}),
		newShiftedQueue(t, client, Config[string]{Backoff: noBackoff}),
	}
	began := time.Now()
	addAndGet(t, queues[0], "x")
	if r, err := queues[0].Fail(t.Context(), "x", workqueue.Failure{Err: errors.New("first")}); r.Attempt != 1 || err != nil {
		t.Errorf("Fail() = %+v, %v", r, err)
	}
	if f := queues[0].Failures("x"); f.Count != 1 || f.Err != "first" || f.Since.Before(began.Add(-time.Minute)) {
		t.Errorf("the replica that failed knows %+v", f)
	}
	queues[0].Done("x")
	h, err := queues[1].Next(t.Context())
	if f := h.Failures; err != nil || h.Key != "x" || f.Count != 1 || f.Err != "first" || time.Since(f.Since).Abs() > time.Minute {
		t.Errorf("Next() = %+v, %v", h, err)
	}
	if k, _ := queues[0].SnapshotKey("x"); k.Failures.Err != "first" || time.Since(k.Failures.Since).Abs() > time.Minute {
		t.Errorf("SnapshotKey has %+v", k.Failures)
	}
	shiftClock(t, client, 2*time.Hour)
	wantFail(t, queues[1], "x", workqueue.Failure{RetryFor: 3 * time.Hour}, workqueue.Retry{Attempt: 2})
	mustGet(t, queues[0], "x")
	wantFail(t, queues[0], "x", workqueue.Failure{RetryFor: time.Hour}, workqueue.Retry{Attempt: 3, GivenUp: true})
	if k, _ := queues[1].SnapshotKey("x"); k.Failures.Count != 0 {
		t.Errorf("a key that was given up fails: %+v", k.Failures)
	}
}
