package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// commands are those with which the script changes something, and some that it calls after the first change.
var commands = strings.Fields(
	"hset hdel zadd zrem rpush lpop hlen zcard scard llen hget zrange sadd spop hmget lrange")

// While replicas work, the rights to call one command after the other are taken away for a moment. No key
// gets lost or stuck, wherever the script was interrupted, and none is with two workers.
func TestCommandsForbidden(t *testing.T) {
	s := startServer(t)
	ctx := context.Background()
	must(t, s.client().Do(ctx, "ACL", "SETUSER", "admin", "on", ">x", "~*", "&*", "+@all").Err())
	admin := newClient(t, &redis.Options{Addr: s.addr, Username: "admin", Password: "x"})
	acl := func(rule string) { must(t, admin.Do(ctx, "ACL", "SETUSER", "default", rule).Err()) }
	config := Config[string]{Lease: 4 * time.Second}
	config.Backoff.Base = time.Millisecond
	h := newHistory(t, 6)
	h.short = true
	queues := []*Queue[string]{newTestQueue(t, s.client(), config), newTestQueue(t, s.client(), config)}
	h.run(queues, func() {
		for _, command := range commands {
			time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
			acl("-" + command)
			time.Sleep(time.Duration(rand.IntN(40)) * time.Millisecond)
			acl("+" + command)
		}
		time.Sleep(100 * time.Millisecond)
	})
	must(t, checkInvariants(admin, queues[0]))
}

// New refuses a server that does not run the scripts, and names the command.
func TestScriptsForbidden(t *testing.T) {
	s := startServer(t)
	ctx := context.Background()
	for rule, want := range map[string]string{"-@scripting": "evalsha", "-zrem": "ZREM"} {
		s.client().Do(ctx, "ACL", "SETUSER", "u", "reset", "on", ">x", "~*", "+@all", rule)
		client := newClient(t, &redis.Options{Addr: s.addr, Username: "u", Password: "x"})
		if _, err := New(ctx, client, Config[string]{Name: "test"}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: New() = %v, want an error with %q", rule, err, want)
		}
	}
}

// Keys that have got lost from the line are found again.
func TestRepair(t *testing.T) {
	s := startServer(t)
	q := newTestQueue(t, s.client(), Config[string]{})
	keys := keysNamed("k", 300)
	addAll(q, keys...)
	flush(t, q)
	must(t, s.client().ZRemRangeByRank(context.Background(), q.shards[0].names.shard[2], 100, 299).Err())
	getEach(t, q, keys...)
	if wantNoKeys(t, q); shared(q).Repaired != 200 {
		t.Errorf("%+v, want 200 keys repaired", shared(q))
	}
}

// A key that kills its process is handed out later and later, and in the end not at all. The keys that were
// held beside it are handled in the meantime, and it is kept with the reason.
func TestKeyThatKills(t *testing.T) {
	client := startServer(t).client()
	q := newShiftedQueue(t, client, Config[string]{MaxLostLeases: 5})
	replica := rawSession{t: t, client: client, s: shiftedScript(), lease: 30 * time.Second, losses: 5}
	var now time.Duration
	pass := func(d time.Duration) {
		now += d
		shiftClock(t, client, now)
	}
	crashes := 0
	// crash lets a replica get up to eight keys, and its lease end without a word of it.
	crash := func() (keys []handedOut) {
		crashes++
		replica.id = fmt.Sprintf("dead%07d", crashes)
		r, err := parseReply(replica.send(1, 8))
		must(t, err)
		for i := range 3 {
			pass(replica.lease / 2)
			replica.id = fmt.Sprintf("live%03d%04d", crashes, i)
			replica.send(1, 0, "q")
		}
		return r.keys
	}
	innocent := keysNamed("innocent", 7)
	addAll(q, "a killer")
	addAll(q, innocent...)
	flush(t, q)
	held := make(map[string]int)
	for held["a killer"] < 5 {
		before := held["a killer"]
		for _, key := range crash() {
			held[key.encoded]++
		}
		if held["a killer"] != before+1 {
			t.Fatalf("the killer did not come: %v", held)
		}
		// The first time, all are handed out at once. Later each has a time of its own: a worker that survives
		// handles it, but not the killer.
		for next, seconds := "", 0; held["a killer"] > 1 && held["a killer"] < 5 && next != "a killer"; seconds++ {
			if seconds > 10_000 {
				t.Fatalf("the killer is not handed out: %v", held)
			}
			pass(time.Second)
			if freshStats(t, q).Queued > 0 {
				if next = q.Snapshot(1).Queued[0].Key; next != "a killer" {
					getEach(t, q, next)
					q.Forget(next)
				}
			}
		}
	}
	for _, key := range innocent {
		if held[key] > 3 {
			t.Errorf("%s was lost %d times", key, held[key])
		}
	}
	given := q.GivenUpKeys(10)
	if len(given) != 1 || given[0].Key != "a killer" || given[0].Attempts != 5 ||
		!strings.Contains(given[0].Err, "lost 5 times") {
		t.Errorf("GivenUpKeys() = %+v", given)
	}
	wantFailures(t, q, "a killer", 0) // Lost leases are no failures.
	for st := freshStats(t, q); st.Waiting+st.Queued > 0; st = freshStats(t, q) {
		pass(time.Minute)
		if st.Queued > 0 {
			key, _ := q.Get()
			q.Done(key)
		}
	}
	if shared(q).GivenUp != 1 {
		t.Errorf("%+v", shared(q))
	}
}

// A handler's context ends a margin before the server hands the key out again.
func TestLeaseMargin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := withoutServer(t)
		s := q.shards[0]
		s.senderRuns = true // Nothing is to be sent.
		s.session = session{id: newSession(), batchSeq: 1, leaseFrom: time.Now()}
		g := q.waitForKey()
		q.mu.Lock()
		s.handLocked(handedOut{encoded: "x", fence: "1"}, "x", time.Now())
		s.armLocked(time.Now())
		q.mu.Unlock()
		<-g
		ctx, release := q.Lease(context.Background(), "x")
		defer release()
		began := time.Now()
		<-ctx.Done()
		if d := time.Since(began); d != 28500*time.Millisecond {
			t.Errorf("a lease of 30 s has ended after %v here, want 28.5 s", d)
		}
	})
}

// What replicas must have in common is checked: by New, and with each batch.
func TestIncompatible(t *testing.T) {
	s := startServer(t)
	ctx := within(t, 20*time.Second)
	q := newTestQueue(t, s.client(), Config[string]{Shards: 2})
	addAndGet(t, q, "x")
	_, err1 := New(ctx, s.client(), Config[string]{Name: "test", Shards: 4})
	_, err2 := New(ctx, s.client(), Config[string]{Name: "test"})
	_, err3 := New(ctx, s.client(), Config[int]{Name: "test", Shards: 2})
	_, err4 := New(ctx, s.client(), Config[place]{Name: "test", Shards: 2})
	for i, err := range []error{err1, err2, err3, err4} {
		if !errors.Is(err, ErrIncompatible) || !strings.Contains(err.Error(), "2 shards, keys: string") {
			t.Errorf("New() of config %d = %v, want ErrIncompatible", i, err)
		}
	}
	// A queue that was made before, or without New, does nothing to the queue.
	late := newQueue(s.client(), complete(t, Config[string]{}), batchScript)
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	wantErr(t, late.AddContext(short, "y"), ErrIncompatible)
	q.Done("x")
	if st := freshStats(t, q); st.Queued != 0 {
		t.Errorf("Stats() = %+v", st)
	}
	must(t, q.ShutDownContext(ctx))
	must(t, (&Admin{queue: q}).Purge(ctx))
	newTestQueue(t, s.client(), Config[string]{})
	getEach(t, late, "y") // What was refused has waited in the buffer.
	endQueue(t, late)
}

// A server's clock that is an hour ahead and is set back makes no key wait for that hour, and no failure last
// longer.
func TestDelaysAfterClockWasAhead(t *testing.T) {
	s := startServer(t)
	client := s.client()
	q := newShiftedQueue(t, client, Config[string]{PollInterval: 300 * time.Millisecond})
	freshStats(t, q)
	shiftClock(t, client, time.Hour)
	q.AddAfter("x", 100*time.Millisecond)
	q.AddAfter("later", 10*time.Minute)
	q.AddRateLimited("failing")
	flush(t, q)
	mustGet(t, q, "failing")
	shiftClock(t, client, 0)
	getEach(t, q, "x")
	wantFailures(t, q, "failing", 1)
	for _, k := range q.Snapshot(10).Waiting {
		if d := time.Until(k.Due); k.Key == "later" && (d < 8*time.Minute || d > 11*time.Minute) {
			t.Errorf("later is shown as due in %v", d)
		}
	}
	q.Done("failing")
}

// Nothing is lost without a word: an ended context adds nothing, and ShutDownContext says what was not sent.
func TestQuietLosses(t *testing.T) {
	s := startServer(t)
	client, f := s.faultyClient()
	q := newTestQueue(t, client, Config[string]{Lease: time.Second})
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	wantErr(t, q.AddContext(ended, "x"), context.Canceled)
	if st := freshStats(t, q); st.Queued+st.Waiting+int(st.Adds) != 0 {
		t.Errorf("Stats() = %+v: an ended context has added something", st)
	}
	ctx := within(t, 20*time.Second)
	q.AddAfter("later", time.Hour)
	q.AddRateLimited("failing")
	must(t, q.Flush(ctx))
	if _, found := q.SnapshotKey("later"); !found || failuresOf(t, q, "failing") != 1 {
		t.Error("adds that were confirmed are not on the server")
	}
	f.down.Store(true)
	q.Add("x")
	wantErr(t, q.ShutDownContext(ctx), ErrNotSent)
}
