package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// While an add waits for a replica of the server that is not there, keys are added, handed out and finished.
func TestOnlyConfirmationsWaitForReplicas(t *testing.T) {
	s := startServer(t)
	client := newClient(t, &redis.Options{Addr: s.addr, ReadTimeout: time.Minute})
	q := newTestQueue(t, client, Config[string]{Lease: 2 * time.Minute, WaitReplicas: 1,
		WaitTimeout: 10 * time.Second})
	confirmed := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { confirmed <- q.AddContext(ctx, "confirmed") }()
	mustGet(t, q, "confirmed")
	waitUntil(t, func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.shards[0].confirmations.replicator
	})
	for range 20 {
		q.Add("x")
		getEach(t, q, "x")
	}
	q.Done("confirmed")
	select {
	case err := <-confirmed:
		t.Errorf("AddContext() = %v, which has not waited", err)
	default:
	}
	cancel()
	wantErr(t, <-confirmed, context.Canceled)
}

// Calls that wait for replicas fail when time is up, and succeed when there is one.
func TestWaitReplicas(t *testing.T) {
	s := startServer(t)
	q := newTestQueue(t, s.client(), Config[string]{WaitReplicas: 1, WaitTimeout: 50 * time.Millisecond})
	ctx := within(t, 20*time.Second)
	for name, err := range map[string]error{
		"AddContext": q.AddContext(ctx, "x"), "AddAfterContext": q.AddAfterContext(ctx, "y", time.Hour),
		"AddRateLimitedContext": q.AddRateLimitedContext(ctx, "z"), "Flush": q.Flush(ctx),
	} {
		if !errors.Is(err, ErrNotReplicated) {
			t.Errorf("%s() without a replica: %v", name, err)
		}
	}
	replica := startServer(t, "--replicaof", "127.0.0.1", s.port(), "--repl-diskless-sync-delay", "0")
	eventually(t, 30*time.Second, func() error { return q.AddContext(ctx, "x") })
	if n := replica.client().HLen(ctx, q.shards[0].names.shard[1]).Val(); n < 2 {
		t.Errorf("the replica has %d states", n)
	}
	// A server that has taken over may lack the batch. Then it confirms nothing, even if its own replicas have it.
	sh := q.shards[0]
	q.mu.Lock()
	session := sh.session
	q.mu.Unlock()
	must(t, sh.waitForReplicas(session))
	session.batchSeq++
	wantErr(t, sh.waitForReplicas(session), ErrNotReplicated)
}

// An outage is over when the server answers a wait for its replicas, also if no batch follows.
func TestOutageEndsWithWaitForReplicas(t *testing.T) {
	s := startServer(t)
	q := newTestQueue(t, s.client(), Config[string]{WaitReplicas: 1, WaitTimeout: 10 * time.Millisecond})
	var failures atomic.Int64
	q.blocking.AddHook(pipelineHook(func(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
		return func(ctx context.Context, cmds []redis.Cmder) error {
			if failures.Add(1) == 1 {
				for _, cmd := range cmds {
					cmd.SetErr(errors.New("broken"))
				}
				return errors.New("broken")
			}
			return next(ctx, cmds)
		}
	}))
	wantErr(t, q.AddContext(within(t, 20*time.Second), "x"), ErrNotReplicated)
	if failures.Load() < 2 || q.Info().Outage != nil {
		t.Errorf("after %d waits: %+v", failures.Load(), q.Info())
	}
}

// Timeouts that cannot work are refused, and those that are not set are chosen so that they can.
func TestTimeouts(t *testing.T) {
	s := startServer(t)
	client := newClient(t, &redis.Options{Addr: s.addr, ReadTimeout: 300 * time.Millisecond})
	ctx := context.Background()
	if _, err := New(ctx, client, Config[string]{Name: "test", WaitReplicas: 1,
		WaitTimeout: time.Second}); err == nil {
		t.Error("a WaitTimeout above the ReadTimeout is not refused")
	}
	q := newTestQueue(t, client, Config[string]{Lease: 2 * time.Second, WaitReplicas: 1})
	if q.config.WaitTimeout >= 300*time.Millisecond {
		t.Errorf("WaitTimeout is %v", q.config.WaitTimeout)
	}
	// A getter that waits does not make the client reconnect at each poll.
	getting, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() { _, _ = q.GetContext(getting) })
	connections := func() (n int) {
		info := s.client().Info(ctx, "stats").Val()
		for line := range strings.Lines(info) {
			_, _ = fmt.Sscanf(line, "total_connections_received:%d", &n)
		}
		return n
	}
	waitForSleepers(t, s.client(), 1)
	polls := func() uint64 { return q.Info().Calls }
	before, first := connections(), polls()
	waitUntil(t, func() bool { return polls() >= first+5 })
	if n := connections() - before - 1; n > 2 { // connections makes one itself.
		t.Errorf("%d connections for 5 polls", n)
	}
	cancel()
	all.Wait()
}

// A batch is never sent under a number that another one had: a batch that a full server has refused, and that
// arrives a second time when there is room again, changes nothing.
func TestDelayedCopyOfRefusedBatch(t *testing.T) {
	s := startServer(t)
	client := s.client()
	ctx := within(t, 20*time.Second)
	var q *Queue[string]
	var armed atomic.Bool
	client.AddHook(hook(func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			err := next(ctx, cmd)
			if cmd.Name() == "evalsha" && armed.Swap(false) {
				s.limitMemory("0")
				q.Done("held")
				s.client().Do(ctx, cmd.Args()...) // The copy.
			}
			return err
		}
	}))
	q = newTestQueue(t, client, Config[string]{})
	addAndGet(t, q, "held")
	s.fill()
	armed.Store(true)
	must(t, q.AddContext(ctx, "x"))
	flush(t, q)
	if armed.Load() || q.Info().Errors != 1 {
		t.Errorf("%d batches were refused, want 1", q.Info().Errors)
	}
	if st := freshStats(t, q); st.Processing != 0 || st.Queued != 1 {
		t.Errorf("Stats() = %+v: want the Done executed and x queued", st)
	}
	getEach(t, q, "x")
}
