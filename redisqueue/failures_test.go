package redisqueue

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// wantDelayLeft checks how many failures of a key are counted, and what is left of the delay of the last one,
// to a few seconds.
func wantDelayLeft(t *testing.T, q *Queue[string], key string, failures int, left time.Duration) {
	t.Helper()
	eventually(t, time.Minute, func() error {
		n, d, err := q.askFailures(context.Background(), key)
		if err == nil && (n != failures || d > left+2*time.Second || d < left-20*time.Second) {
			t.Errorf("%d failures, %v are left, want %d and %v", n, d, failures, left)
		}
		return err
	})
}

// A call that fails before the delay of the failure before it has passed is the same failure, for all
// replicas, no matter what brought the key early.
func TestSameFailure(t *testing.T) {
	s := startServer(t)
	client := s.client()
	config := Config[string]{Backoff: workqueue.BackoffConfig[string]{Base: time.Minute}}
	a, b := newShiftedQueue(t, client, config), newShiftedQueue(t, client, config)
	fail := func(q *Queue[string], at time.Duration, failures int, left time.Duration) {
		t.Helper()
		shiftClock(t, client, at)
		mustGet(t, q, "x")
		q.AddRateLimited("x")
		q.Done("x")
		wantDelayLeft(t, q, "x", failures, left)
	}
	a.Add("x")
	fail(a, 0, 1, time.Minute)
	b.Add("x")
	fail(b, 10*time.Second, 1, 50*time.Second)
	a.AddAfter("x", 10*time.Second)
	flush(t, a)
	fail(b, 30*time.Second, 1, 30*time.Second)
	fail(a, time.Minute+time.Second, 2, 2*time.Minute) // It has come at the time that was set at first.
	b.Add("x")
	fail(b, 2*time.Minute, 2, time.Minute)
	a.Forget("x")
	a.Add("x")
	flush(t, a)
	fail(a, 2*time.Minute, 1, time.Minute)
	shiftClock(t, client, 2*time.Minute+50*time.Second)
	if st := freshStats(t, b); st.Queued != 0 || st.Waiting != 1 {
		t.Errorf("%+v, want a key that waits", st)
	}
	b.Forget("x")
	fail(b, 3*time.Minute+time.Second, 1, time.Minute)
}

// A lease that is lost before the delay has passed is the same failure, and shortens no delay. It still
// counts as a lost lease.
func TestLostLeaseDuringADelay(t *testing.T) {
	client := startServer(t).client()
	q := newShiftedQueue(t, client, Config[string]{Backoff: workqueue.BackoffConfig[string]{Base: time.Hour,
		Max: time.Hour}})
	q.AddRateLimited("x")
	q.Add("x")
	flush(t, q)
	dead := rawSession{t: t, client: client, s: shiftedScript(), id: "aaaaaaaaaaa", lease: 30 * time.Second}
	dead.send(1, 1)
	for i := range 4 {
		shiftClock(t, client, time.Duration(i)*15*time.Second)
		freshStats(t, q)
	}
	mustGet(t, q, "x")
	k, err := q.key(within(t, 10*time.Second), "x")
	if err != nil || k.LostLeases != 1 {
		t.Errorf("Key() = %+v, %v, want a lost lease", k, err)
	}
	wantDelayLeft(t, q, "x", 1, time.Hour-45*time.Second)
	q.Done("x")
}

// A failure that asks for a delay counts, and waits for the longer one of that and the backoff.
func TestAddRateLimitedAfter(t *testing.T) {
	s := startServer(t)
	config := Config[string]{Backoff: workqueue.BackoffConfig[string]{Base: time.Minute}}
	q := newTestQueue(t, s.client(), config)
	q.addRateLimitedAfter("x", time.Hour)
	q.addRateLimitedAfter("y", time.Second)
	q.addRateLimitedAfter("z", -1)
	flush(t, q)
	wantDelayLeft(t, q, "x", 1, time.Hour)
	wantDelayLeft(t, q, "y", 1, time.Minute)
	wantDelayLeft(t, q, "z", 1, time.Minute)
	q.addRateLimitedAfter("y", time.Hour) // The same failure, but its delay is longer now.
	flush(t, q)
	wantDelayLeft(t, q, "y", 1, time.Hour)
	if st := freshStats(t, q); st.Waiting != 3 || st.Queued != 0 {
		t.Errorf("%+v, want three keys that wait", st)
	}
}

// A handler that asks for a delay has failed, for all replicas.
func TestRetryAfter(t *testing.T) {
	q := newTestQueue(t, startServer(t).client(), Config[string]{})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- worker.Run(ctx, q, func(context.Context, string) error {
			return worker.RetryAfter(errors.New("busy"), time.Hour)
		}, worker.Options[string]{Logger: discard})
	}()
	q.Add("x")
	waitUntil(t, func() bool { st := freshStats(t, q); return st.Waiting == 1 && st.Processing == 0 })
	wantDelayLeft(t, q, "x", 1, time.Hour)
	cancel()
	must(t, <-ended)
}

// Events that bring a failing key early use up none of its retries, in whichever process its handler fails.
func TestEventsUseUpNoRetries(t *testing.T) {
	client := startServer(t).client()
	queueConfig := Config[string]{Backoff: workqueue.BackoffConfig[string]{Base: time.Hour, Max: time.Hour}}
	broken := errors.New("broken")
	var calls, givenUp, notFirst atomic.Int64
	var queues []*Queue[string]
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	for range 2 {
		q := newShiftedQueue(t, client, queueConfig)
		queues = append(queues, q)
		go func() {
			ended <- worker.Run(ctx, q, func(context.Context, string) error {
				calls.Add(1)
				return broken
			}, worker.Options[string]{MaxRetries: 1, Logger: discard, OnFinish: func(_ context.Context,
				r worker.Result[string]) {
				switch {
				case r.Next == worker.NextGiveUp:
					givenUp.Store(int64(r.Attempt))
				case r.Attempt != 1:
					notFirst.Add(1)
				}
			}})
		}()
	}
	for i := range 20 {
		must(t, queues[i%2].AddContext(within(t, 20*time.Second), "x"))
		waitUntil(t, func() bool { return calls.Load() == int64(i+1) && freshStats(t, queues[0]).Processing == 0 })
	}
	wantFailures(t, queues[0], "x", 1)
	if notFirst.Load() > 0 || givenUp.Load() > 0 {
		t.Errorf("%d calls are not the first attempt, given up after %d", notFirst.Load(), givenUp.Load())
	}
	shiftClock(t, client, time.Hour)
	freshStats(t, queues[0])
	waitUntil(t, func() bool { return givenUp.Load() == 2 })
	if n := calls.Load(); n != 21 {
		t.Errorf("%d calls, want 21", n)
	}
	cancel()
	must(t, errors.Join(<-ended, <-ended))
}

// A key that waits for long and fails comes when the delay of its failure ends, to a replica that sleeps.
func TestRetryWakesSleeper(t *testing.T) {
	s, producer, consumer := twoReplicas(t, Config[string]{PollInterval: 9 * time.Second})
	addAndGet(t, producer, "x")
	producer.AddAfter("x", time.Hour)
	flush(t, producer)
	handleWhileAsleep(t, s, consumer, "x", func() {
		mustFail(t, producer, "x", workqueue.Failure{AtLeast: time.Second})
		producer.Done("x")
	})
}

// A key whose retry came due during a call fails again, when its failures are so old that they would be forgotten
// if it were not held: the retry is taken back.
func TestFailureAfterLongCall(t *testing.T) {
	client := startServer(t).client()
	q := newShiftedQueue(t, client, Config[string]{
		Backoff: workqueue.BackoffConfig[string]{Base: time.Minute, ForgetAfter: time.Hour},
	})
	q.AddRateLimited("x")
	addAndGet(t, q, "x")
	for _, passed := range []time.Duration{2 * time.Minute, 3 * time.Hour} {
		shiftClock(t, client, passed)
		if st := freshStats(t, q); st.Again != 1 || st.Waiting != 0 {
			t.Errorf("after %v: Stats() = %+v, want a held key whose retry is due", passed, st)
		}
	}
	wantFail(t, q, "x", workqueue.Failure{}, workqueue.Retry{Attempt: 2})
	if st := freshStats(t, q); st.Queued != 0 || st.Waiting != 1 {
		t.Errorf("Stats() = %+v, want a key that waits", st)
	}
	must(t, checkInvariants(client, q))
}
