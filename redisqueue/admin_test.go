package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/operate"
	"github.com/redis/go-redis/v9"
)

// attach returns a tool on the queue "test", which is shut down with the test.
func attach(t testing.TB, client redis.UniversalClient) *Admin {
	t.Helper()
	tool, err := Attach(within(t, 10*time.Second), client, "test")
	must(t, err)
	t.Cleanup(func() { endQueue(t, tool.queue) })
	return tool
}

// listed returns the keys of a list.
func listed(t testing.TB, q *Queue[string], list List, limit int) (keys []string) {
	t.Helper()
	for k, err := range q.keys(within(t, 20*time.Second), list, limit) {
		must(t, err)
		keys = append(keys, k.Key)
	}
	return keys
}

// A tool sees all that there is of a queue, in its order and beyond what a Snapshot has, and changes many
// keys at once.
func TestTool(t *testing.T) {
	s := startServer(t)
	ctx := within(t, time.Minute)
	for _, shards := range []int{1, 3} {
		must(t, s.client().FlushAll(ctx).Err())
		q := newTestQueue(t, s.client(), Config[string]{Shards: shards, Replica: "this one"})
		tool := attach(t, s.client())
		q.AddCause("held", workqueue.Cause{Reason: "why"})
		mustGet(t, q, "held")
		must(t, tool.queue.AddContext(ctx, "held"))
		keys := keysNamed("k", 700)
		for i, key := range keys {
			giveUp(q, key, errors.New("broken"))
			q.AddAfter(key, time.Hour+time.Duration(i)*time.Second)
		}
		flush(t, q)
		want := Counts{Processing: 1, Again: 1, Waiting: 700, GivenUp: 700}
		if c, err := tool.Counts(ctx); err != nil || c != want {
			t.Errorf("%d shards: Counts() = %+v, %v, want %+v", shards, c, err, want)
		}
		if got := listed(t, tool.queue, ListWaiting, 600); !slices.Equal(got, keys[:600]) {
			t.Errorf("%d shards: %d waiting keys, %.100q", shards, len(got), got)
		}
		if n := len(listed(t, tool.queue, ListGivenUp, 0)); n != 700 {
			t.Errorf("%d shards: %d keys were given up", shards, n)
		}
		if n := len(listed(t, tool.queue, ListAll, 0)); n != 701 {
			t.Errorf("%d shards: %d keys", shards, n)
		}
		k, err := tool.Key(ctx, "held")
		if err != nil || k.Holder != "this one" || k.Fence != fenceOf(q, "held") || !k.Again || k.Causes == nil ||
			k.Causes.String() != "why" {
			t.Errorf("%d shards: Key() = %+v, %v", shards, k, err)
		}
		calls := batches(tool.queue.client)
		retried, err := tool.RetryGivenUp(ctx, append(keys, "unknown")...)
		if err != nil || len(retried) != 700 || batches(tool.queue.client)-calls > 60 {
			t.Errorf("%d shards: RetryGivenUpContext() = %d keys, %v, with %d calls", shards, len(retried), err,
				batches(tool.queue.client)-calls)
		}
		c, err := tool.Counts(ctx)
		if c.OldestQueued <= 0 || c.OldestQueued > time.Minute || err != nil {
			t.Errorf("%d shards: Counts() = %+v, %v", shards, c, err)
		}
		if c.OldestQueued = 0; c != (Counts{Queued: 700, Processing: 1, Again: 1, Waiting: 700}) {
			t.Errorf("%d shards: Counts() = %+v", shards, c)
		}
		discarded, err := tool.Remove(ctx, append(keys, "unknown")...)
		if err != nil || len(discarded) != 700 {
			t.Errorf("%d shards: DiscardContext() = %d keys, %v", shards, len(discarded), err)
		}
		q.Done("held")
		getEach(t, q, "held")
	}
}

// A list without a limit has every key that is in it from the beginning to the end, although others leave it
// meanwhile.
func TestListsMissNoKey(t *testing.T) {
	q := newTestQueue(t, startServer(t).client(), Config[string]{})
	const n = 1000
	keys := keysNamed("k", n)
	addAll(q, keys...)
	for range n {
		_, err := q.GetContext(within(t, time.Minute))
		must(t, err)
	}
	wantAll := func(list List, leave func(key string)) {
		t.Helper()
		seen := make(map[string]bool)
		for k, err := range q.keys(within(t, time.Minute), list, 0) {
			must(t, err)
			leave(k.Key)
			seen[k.Key] = true
		}
		if len(seen) != n {
			t.Errorf("%s has %d keys, want %d", list, len(seen), n)
		}
	}
	wantAll(ListProcessing, q.Done)
	for _, key := range keys {
		q.AddAfter(key, time.Hour)
		giveUp(q, key, nil)
		q.addRateLimitedAfter(key, time.Hour)
		q.Add(key)
	}
	flush(t, q)
	wantAll(ListGivenUp, func(key string) { q.ForgetGivenUp(key) })
	wantAll(ListFailing, func(key string) { q.Forget(key); flush(t, q) })
	for _, list := range []List{ListQueued, ListWaiting, ListAll} {
		addAll(q, keys...)
		for _, key := range keys {
			q.AddAfter(key, time.Hour)
		}
		flush(t, q)
		wantAll(list, func(key string) { q.Remove(key) })
	}
}

// A tool with the right to read alone can read. What it may not do returns the server's error at once, and so
// does a read-only replica.
func TestToolMayReadOnly(t *testing.T) {
	s := startServer(t)
	ctx := within(t, time.Minute)
	q := newTestQueue(t, s.client(), Config[string]{})
	must(t, q.AddContext(ctx, "x"))
	giveUp(q, "y", nil)
	flush(t, q)
	must(t, s.client().Do(ctx, "ACL", "SETUSER", "reader", "on", ">x", "%R~workqueue:{test/0}:*", "+@read",
		"+evalsha_ro", "+eval_ro", "+time", "-keys").Err())
	replica := startServer(t, "--replicaof", "127.0.0.1", s.port(), "--repl-diskless-sync-delay", "0")
	waitUntil(t, func() bool {
		n, err := clientOf(t, replica.addr).Exists(ctx, "workqueue:{test/0}:givenup").Result()
		return err == nil && n == 1
	})
	for name, client := range map[string]*redis.Client{
		"NOPERM":   newClient(t, &redis.Options{Addr: s.addr, Username: "reader", Password: "x"}),
		"READONLY": clientOf(t, replica.addr),
	} {
		tool := attach(t, client)
		if c, err := tool.Counts(ctx); err != nil || c.Queued != 1 || c.GivenUp != 1 {
			t.Errorf("%s: Counts() = %+v, %v", name, c, err)
		}
		if k, err := tool.Key(ctx, "x"); err != nil || k.State != workqueue.KeyQueued {
			t.Errorf("%s: Key() = %+v, %v", name, k, err)
		}
		if got := listed(t, tool.queue, ListGivenUp, 0); len(got) != 1 {
			t.Errorf("%s: Keys() = %q", name, got)
		}
		began := time.Now()
		retried, err := tool.RetryGivenUp(ctx, "y")
		if err == nil || !strings.Contains(err.Error(), name) || len(retried) > 0 ||
			time.Since(began) > 10*time.Second {
			t.Errorf("%s: RetryGivenUpContext() = %q, %v after %v", name, retried, err, time.Since(began))
		}
		if err := tool.queue.AddContext(ctx, "z"); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: AddContext() = %v", name, err)
		}
		tool.queue.Pause(operate.UntilResumed)
		time.Sleep(50 * time.Millisecond) // The server's answer may come before Flush is called, or after.
		if err := tool.queue.Flush(within(t, 10*time.Second)); err == nil || !strings.Contains(err.Error(), name) ||
			errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: Flush() after Pause() = %v", name, err)
		}
	}
}

// Flush of a tool returns why the server has refused something, also when that was answered before the call
// and other operations have succeeded since. It does so once.
func TestToolFlushAfterRefusal(t *testing.T) {
	s := startServer(t)
	ctx := within(t, time.Minute)
	q := newTestQueue(t, s.client(), Config[string]{})
	must(t, q.AddContext(ctx, "x"))
	acl := func(rule string) { must(t, s.client().Do(ctx, "ACL", "SETUSER", "tool", rule).Err()) }
	must(t, s.client().Do(ctx, "ACL", "SETUSER", "tool", "on", ">x", "~*", "+@all").Err())
	tool := attach(t, newClient(t, &redis.Options{Addr: s.addr, Username: "tool", Password: "x"}))
	must(t, tool.queue.Flush(ctx))
	acl("-evalsha")
	tool.queue.Add("refused")
	waitUntil(t, func() bool {
		tool.queue.mu.Lock()
		defer tool.queue.mu.Unlock()
		return tool.queue.mu.totals.stats.Dropped == 1 && !tool.queue.shards[0].senderRuns
	})
	acl("+evalsha")
	must(t, tool.queue.AddContext(ctx, "taken"))
	if err := tool.queue.Flush(ctx); err == nil || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("Flush() = %v", err)
	}
	must(t, tool.queue.Flush(ctx))
	getEach(t, q, "x", "taken")
}

// A tool that polls takes over no keys, gives up none and forgets nothing: what the queue does about dead
// replicas is up to the living ones.
func TestToolReclaimsNothing(t *testing.T) {
	client := startServer(t).client()
	q := newShiftedQueue(t, client, Config[string]{})
	addAll(q, "x")
	flush(t, q)
	dead := rawSession{t: t, client: client, s: shiftedScript(), id: "aaaaaaaaaaa", lease: 30 * time.Second}
	dead.send(1, 1)
	q.AddRateLimited("failing")
	flush(t, q)
	mustGet(t, q, "failing")
	q.Done("failing")
	flush(t, q)
	endQueue(t, q)
	// The lease of the dead one ends in a moment.
	names, ctx := q.shards[0].names.shard, context.Background()
	must(t, client.HSet(ctx, names[0], "leaseTime",
		int64(client.ZScore(ctx, names[6], dead.id).Val())-100_000).Err())
	tool := attach(t, client)
	tool.queue.script = q.script
	clocks := func() string {
		return fmt.Sprint(client.HMGet(ctx, names[0], "leaseTime", "time").Val())
	}
	before := clocks()
	for i := range 100 {
		shiftClock(t, client, time.Duration(i)*time.Hour)
		freshStats(t, tool.queue)
	}
	if c, err := tool.Counts(within(t, 10*time.Second)); err != nil || c.Processing != 1 || c.Failing != 1 {
		t.Errorf("Counts() = %+v, %v", c, err)
	}
	if after := clocks(); after != before {
		t.Errorf("the clocks were %v and are %v", before, after)
	}
	shiftClock(t, client, 0)
}

// Attach returns no queue with an error, and refuses a description that makes no sense.
func TestAttachRefuses(t *testing.T) {
	client := startServer(t).client()
	ctx := within(t, 20*time.Second)
	meta := newKeyNames("test", 0).shard[0]
	for _, description := range []string{"", "x", "format 3, -1 shards, keys: string",
		"format 2, 0 shards, keys: x", "format 2, 1025 shards, keys: x", "format 1, 1 shards, keys: x"} {
		must(t, client.HSet(ctx, meta, "description", description).Err())
		if q, err := Attach(ctx, client, "test"); q != nil || !errors.Is(err, ErrIncompatible) {
			t.Errorf("%q: Attach() returns a queue: %v, %v", description, q != nil, err)
		}
	}
	if q, err := Attach(ctx, client, "other"); q != nil || !errors.Is(err, ErrNoQueue) {
		t.Errorf("Attach() = %v, %v", q, err)
	}
	client.Close()
	if q, err := Attach(ctx, client, "test"); q != nil || err == nil {
		t.Errorf("Attach() = %v, %v", q, err)
	}
}

// A tool, which does not know the replicas' ForgetAfter, forgets no failures.
func TestToolForgetsNothing(t *testing.T) {
	client := startServer(t).client()
	q := newTestQueue(t, client,
		Config[string]{Backoff: workqueue.BackoffConfig[string]{ForgetAfter: 7 * 24 * time.Hour}})
	q.AddRateLimited("x")
	flush(t, q)
	hourAgo := redis.Z{Member: "x", Score: float64(time.Now().Add(-time.Hour).UnixMicro())}
	must(t, client.ZAdd(context.Background(), q.shards[0].names.shard[5], hourAgo).Err())
	tool := attach(t, client)
	wantFailures(t, tool.queue, "x", 1)
	tool.queue.AddRateLimited("x")
	flush(t, tool.queue)
	wantFailures(t, q, "x", 2)
}

// A key that only has failures is known, and Discard says that it was.
func TestDiscardOfFailures(t *testing.T) {
	q := newTestQueue(t, startServer(t).client(), Config[string]{})
	q.AddRateLimited("x")
	getEach(t, q, "x")
	flush(t, q)
	if !q.Remove("x") {
		t.Error("the failures were not known")
	}
	if q.Remove("x") {
		t.Error("the failures are still known")
	}
}
