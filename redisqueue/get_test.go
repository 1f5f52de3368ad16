package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A key whose lease was lost comes to the same process again before its Done. It waits there, under the lease
// of its new hand-out, and goes to a getter with a new fence when it is Done.
func TestNextHandOut(t *testing.T) {
	_, f, q, other := oneFaulty(t, Config[string]{Lease: 2 * time.Second})
	nextHandOut := func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.mu.held["x"] != nil && q.mu.held["x"].nextHandOut != nil
	}
	// lose makes the lease of x end, and hands x out, for a getter.
	lose := func() (came <-chan string, stopGetting func()) {
		ctx, release := q.Lease(context.Background(), "x")
		defer release()
		f.down.Store(true)
		<-ctx.Done()
		f.down.Store(false)
		getting, cancel := context.WithCancel(within(t, time.Minute))
		c := make(chan string, 1)
		go func() {
			if key, err := q.GetContext(getting); err == nil {
				c <- key
			}
		}()
		waitUntil(t, nextHandOut)
		return c, func() { cancel(); waitForGetters(t, q, 0) }
	}
	addAndGet(t, q, "x")
	first := fenceOf(q, "x")
	came, _ := lose()
	getNothing(t, other, q.config.Lease*2) // The lease of the new hand-out is renewed.
	if n := fenceOf(q, "x"); len(came) > 0 || n != first {
		t.Errorf("the key is with two workers of a process: %v; its first fence %d is now %d",
			len(came) > 0, first, n)
	}
	q.Done("x")
	waitUntil(t, func() bool { return len(came) > 0 })
	if n := fenceOf(q, "x"); n <= first {
		t.Errorf("fence %d after %d", n, first)
	}
	if info := shared(q); info.LostDones != 1 || info.LostLeases != 1 {
		t.Errorf("%+v", info)
	}
	// The same without a getter that waits: the key is for others.
	_, stopGetting := lose()
	stopGetting()
	q.Done("x")
	getEach(t, other, "x")
	wantNoKeys(t, other)
	// A nextHandOut whose lease is lost too is forgotten here.
	addAndGet(t, q, "x")
	_, stopGetting = lose()
	stopGetting()
	f.down.Store(true)
	mustGet(t, other, "x")
	waitUntil(t, func() bool { return !nextHandOut() })
	q.Done("x")
	f.down.Store(false)
	flush(t, q)
	wantHeld(t, other, "x")
	other.Done("x")
}

// A nextHandOut whose lease has ended is not handed out, also if its timer is late.
func TestNextHandOutForTooLong(t *testing.T) {
	q := withoutServer(t)
	s := q.shards[0]
	s.senderRuns = true // Nothing is to be sent.
	s.session = session{id: newSession(), batchSeq: 1, held: 1, leaseFrom: time.Now().Add(-q.config.Lease)}
	q.mu.held["x"] = &hold[string]{handedOut: handedOut{encoded: "x"}, shard: s, lost: true,
		nextHandOut: &handedOut{encoded: "x"}}
	g := q.waitForKey()
	q.Done("x")
	if len(g) > 0 || len(q.mu.held) > 0 {
		t.Error("the key was handed out after its lease")
	}
}

// A nextHandOut that an operator releases is for others, also if its worker is Done then.
func TestReleaseOfNextHandOut(t *testing.T) {
	q := withoutServer(t)
	s := q.shards[0]
	s.senderRuns = true // Nothing is to be sent.
	s.session = session{id: newSession(), batchSeq: 1, held: 1, leaseFrom: time.Now()}
	h := &hold[string]{handedOut: handedOut{encoded: "x"}, shard: s, lost: true,
		nextHandOut: &handedOut{encoded: "x", fence: "2"}}
	q.mu.held["x"] = h
	g := q.waitForKey()
	q.mu.Lock()
	s.freeLocked([]string{"2"})
	q.mu.Unlock()
	q.Done("x")
	if len(g) > 0 || s.session.held != 0 || h.why != ErrReleased {
		t.Errorf("the key was handed out: %v; the session holds %d keys", len(g) > 0, s.session.held)
	}
}

// A wake-up overtakes the reply of a call that the server executed before: the key that it is about is still
// there.
func TestWakeUpBeforeReply(t *testing.T) {
	q := withoutServer(t)
	s := q.shards[0]
	s.senderRuns = true // The test does what the goroutine would do.
	q.waitForKey()
	b := s.nextBatch()
	q.mu.Lock()
	s.wakeUpLocked()
	q.mu.Unlock()
	s.apply(b, &reply{status: "OK", callIn: -1})
	if again := s.nextBatch(); again == nil || again.want != 1 {
		t.Error("the getter sleeps, and the server does not know that")
	}
}

// Getters of a queue with several shards give up at random moments. Each key comes nevertheless, no getter
// sleeps while keys are queued, and in the end the replica expects nothing from the server.
func TestShardedGettersGiveUp(t *testing.T) {
	_, q, producer := twoReplicas(t, Config[string]{Shards: 4, PollInterval: 9 * time.Second})
	keys := keysNamed("k", 300)
	go func() {
		for i := range 300 {
			producer.Add(fmt.Sprintf("k/%d", i))
			time.Sleep(time.Millisecond)
		}
	}()
	began := time.Now()
	for left := keys; len(left) > 0; {
		// On a machine with too much work, where no call takes less than that, they wait longer and longer.
		patience := time.Duration(rand.IntN(3000)) * time.Microsecond * (1 + time.Since(began)/(5*time.Second))
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		key, err := q.GetContext(ctx)
		cancel()
		if err == nil {
			left = slices.DeleteFunc(left, func(k string) bool { return k == key })
			q.Done(key)
		}
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("%d keys have not come", len(left))
		}
	}
	// A getter with a context that has ended must leave nothing behind that serves the next.
	eventually(t, 5*time.Second, func() error {
		q.mu.Lock()
		defer q.mu.Unlock()
		for _, shard := range q.shards {
			if shard.fetcher.inCall != 0 || shard.fetcher.isSleeper || shard.senderRuns {
				return fmt.Errorf("wanted %d, in SLEEPERS %v, sending %v", shard.fetcher.inCall, shard.fetcher.isSleeper,
					shard.senderRuns)
			}
		}
		if q.mu.inCalls != 0 || len(q.mu.getters) != 0 || len(q.mu.held) != 0 {
			return fmt.Errorf("wanted %d, getters %d, held %d", q.mu.inCalls, len(q.mu.getters), len(q.mu.held))
		}
		return nil
	})
	for _, key := range keysNamed("last", 20) {
		producer.Add(key)
		getEach(t, q, key)
	}
}

// Fewer workers than shards serve all shards alike.
func TestOneWorkerServesAllShards(t *testing.T) {
	q := newTestQueue(t, startServer(t).client(), Config[string]{Shards: 4})
	addAll(q, keysNamed("k", 1000)...)
	flush(t, q)
	served := map[*shard[string]]int{}
	for range 200 {
		key, _ := q.Get()
		served[q.shardOf(key)]++
		eventually(t, time.Minute, func() error { // A handler takes longer than the calls before it.
			q.mu.Lock()
			defer q.mu.Unlock()
			if slices.ContainsFunc(q.shards, func(s *shard[string]) bool { return s.senderRuns }) {
				return errors.New("a call is under way")
			}
			return nil
		})
		q.Add(key)
		q.Done(key)
	}
	for _, s := range q.shards {
		if served[s] < 10 {
			t.Errorf("a shard has served %d keys of 200", served[s])
		}
	}
}

// A wake-up that comes for a getter which gave up moves on to another replica.
func TestWakeUpOfGetterThatGaveUp(t *testing.T) {
	config := Config[string]{PollInterval: 9 * time.Second}
	s, f, q, other := oneFaulty(t, config)
	producer := newTestQueue(t, s.client(), config)
	for range 15 { // The server wakes one of the two at random.
		ctx, cancel := context.WithCancel(context.Background())
		gaveUp := make(chan error, 1)
		go func() {
			_, err := q.GetContext(ctx)
			gaveUp <- err
		}()
		waitForSleepers(t, s.client(), 1)
		came := make(chan error, 1)
		go func() {
			key, err := other.GetContext(within(t, 5*time.Second))
			if err == nil {
				other.Done(key)
			}
			came <- err
		}()
		waitForSleepers(t, s.client(), 2)
		f.gate.Lock() // The server does not hear that the getter gives up.
		cancel()
		wantErr(t, <-gaveUp, context.Canceled)
		must(t, producer.AddContext(within(t, 5*time.Second), "x"))
		f.gate.Unlock()
		must(t, <-came)
		flush(t, other)
		waitForSleepers(t, s.client(), 0)
	}
}

// unknownMaster is what a Sentinel says that does not know the master: an error that wraps redis.Nil, at
// once.
type unknownMaster struct {
	redis.UniversalClient
	reads atomic.Int64
}

func (c *unknownMaster) BLPop(ctx context.Context, _ time.Duration, _ ...string) *redis.StringSliceCmd {
	c.reads.Add(1)
	cmd := redis.NewStringSliceCmd(ctx)
	cmd.SetErr(fmt.Errorf("redis: all sentinels specified in configuration are unreachable: %w", redis.Nil))
	return cmd
}

// A blocking read that fails at once is not repeated before the poll interval has passed, with any error that it
// returns.
func TestReadThatFailsIsNotBusy(t *testing.T) {
	client := &unknownMaster{UniversalClient: startServer(t).client()}
	q := newTestQueue(t, client, Config[string]{PollInterval: 2 * time.Second})
	getNothing(t, q, time.Second)
	if n := client.reads.Load(); n > 1 {
		t.Errorf("%d blocking reads in a second, want 1", n)
	}
}

// A user who may not call BLPOP gets keys by polling, and hears of it once.
func TestPollingIsSaid(t *testing.T) {
	s := startServer(t)
	must(t, s.client().Do(t.Context(), "ACL", "SETUSER", "poller", "on", ">secret", "~*", "+@all", "-blpop").Err())
	client := newClient(t, &redis.Options{Addr: s.addr, Username: "poller", Password: "secret"})
	reported := make(chan error, 100)
	q := newTestQueue(t, client, Config[string]{
		PollInterval: 10 * time.Millisecond, Logger: loggedTo(func(err error) { reported <- err }),
	})
	for _, key := range keysNamed("k", 5) {
		handleWhileAsleep(t, s, q, key, func() { q.Add(key) })
	}
	getNothing(t, q, 200*time.Millisecond) // It polls on.
	if err := <-reported; len(reported) != 0 || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("%d further errors after %v", len(reported), err)
	}
}
