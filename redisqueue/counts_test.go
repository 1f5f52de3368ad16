package redisqueue

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/redis/go-redis/v9"
)

// Numbers come at once, also while the server hangs: those of its last answer, with its time.
func TestNumbersDoNotWait(t *testing.T) {
	s, q, other := twoReplicas(t, Config[string]{Backoff: workqueue.BackoffConfig[string]{Base: time.Hour, Max: time.Hour}})
	if st := leasing.StatsOf(q.Stats()); !st.AsOf.IsZero() {
		t.Errorf("before the first answer: %+v", st)
	}
	began := time.Now()
	other.AddRateLimited("failing")
	addAndGet(t, other, "a")
	addAll(other, "b", "c")
	flush(t, other)
	waitUntil(t, func() bool { return q.Len() == 2 && q.NumRequeues("failing") == 1 })
	asOf := leasing.StatsOf(q.Stats()).AsOf
	if asOf.Before(began) || asOf.After(time.Now()) {
		t.Errorf("Stats() is as of %v", asOf)
	}
	s.signal(syscall.SIGSTOP)
	began = time.Now()
	for range 100 {
		if st := q.Stats(); st.Queued != 2 || st.Processing != 1 || q.Len() != 2 || q.NumRequeues("failing") != 1 || q.NumRequeues("x") != 0 {
			t.Fatalf("Stats() = %+v", st)
		}
	}
	if took := time.Since(began); took > 50*time.Second {
		t.Errorf("400 questions took %v", took)
	}
	asOf = leasing.StatsOf(q.Stats()).AsOf
	s.signal(syscall.SIGCONT)
	other.Add("d")
	flush(t, other)
	waitUntil(t, func() bool { return q.Len() == 3 && leasing.StatsOf(q.Stats()).AsOf.After(asOf) })
}

// While somebody asks for numbers, the server is asked once a second, and no longer than for a minute after the last question.
func TestQuestionsEnd(t *testing.T) {
	q := newTestQueue(t, startServer(t).client(), Config[string]{})
	began := time.Now()
	for time.Since(began) < 1500*time.Millisecond {
		q.Stats()
		q.NumRequeues("x")
		time.Sleep(time.Millisecond)
	}
	if calls := batches(q.client); calls < 2 || calls > 2*uint64(2+time.Since(began)/time.Second) {
		t.Errorf("%d calls of the server in %v", calls, time.Since(began))
	}
	q.mu.Lock()
	q.mu.latest.asked = time.Now().Add(-2 * latestFor) // as when time has passed
	q.mu.latest.requeues["x"].asked = q.mu.latest.asked
	q.mu.Unlock()
	waitUntil(t, func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return !q.mu.latest.runs && len(q.mu.latest.requeues) == 0
	})
	calls := batches(q.client)
	time.Sleep(1500 * time.Millisecond)
	if now := batches(q.client); now != calls {
		t.Errorf("%d calls after nobody has asked for a minute", now-calls)
	}
}

// A shard that hangs does not hide the keys of the others.
func TestKeysBesideHungShard(t *testing.T) {
	client, hangs := startServer(t).client(), make(chan struct{})
	q := newTestQueue(t, client, Config[string]{Shards: 2})
	addAll(q, keysNamed("k", 50)...)
	flush(t, q)
	client.AddHook(hook(func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			if strings.HasSuffix(cmd.Name(), "_ro") && strings.Contains(fmt.Sprint(cmd.Args()...), q.shards[0].names.prefix) {
				<-hangs
			}
			return next(ctx, cmd)
		}
	}))
	defer close(hangs)
	n := len(q.Snapshot(100).Queued)
	if n == 0 || n >= 50 {
		t.Errorf("%d of 50 keys are there", n)
	}
}
