package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/leasing"
)

// A replica that has been idle for longer than its lease has nothing to send to the server at shutdown, and
// ends.
func TestShutDownAfterIdleLease(t *testing.T) {
	q := newTestQueue(t, startServer(t).client(), Config[string]{Lease: time.Second})
	q.Add("x")
	flush(t, q)
	waitUntil(t, func() bool { return q.leaseAge() > q.config.Lease })
	calls := batches(q.client)
	must(t, q.ShutDownContext(within(t, 3*time.Second)))
	if n := batches(q.client); n != calls {
		t.Errorf("%d calls at shutdown, want none", n-calls)
	}
}

// leaseAge returns how long ago the first shard's lease was renewed.
func (q *Queue[T]) leaseAge() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	return time.Since(q.shards[0].session.leaseFrom)
}

// waitForGetters waits until that many calls of Get wait.
func waitForGetters(t testing.TB, q *Queue[string], n int) {
	t.Helper()
	waitUntil(t, func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return len(q.mu.getters) == n
	})
}

// waitForCall waits until a call of the server is under way.
func waitForCall(t testing.TB, q *Queue[string]) {
	t.Helper()
	waitUntil(t, func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.shards[0].underWay != nil
	})
}

func waitUntil(t testing.TB, f func() bool) {
	t.Helper()
	eventually(t, time.Minute, func() error {
		if !f() {
			return errors.New("the condition has not come true")
		}
		return nil
	})
}

// A getter that comes while the server hangs for longer than a lease gets what another replica adds
// afterwards.
func TestGetterOutlivesHang(t *testing.T) {
	s := startServer(t)
	config := Config[string]{Lease: time.Second}
	q, other := newTestQueue(t, s.client(), config), newTestQueue(t, s.client(), config)
	s.signal(syscall.SIGSTOP)
	got := make(chan string, 1)
	go func() {
		key, _ := q.Get()
		got <- key
	}()
	waitForCall(t, q)
	time.Sleep(q.config.Lease * 5 / 4) // The call of the getter is under way for longer.
	s.signal(syscall.SIGCONT)
	waitForSleepers(t, s.client(), 1)
	other.Add("x")
	waitUntil(t, func() bool { return len(got) > 0 })
	q.Done("x")
}

// A replica that loses a lease while it shuts down notices it, ends, and does not disturb the new holder.
func TestLeaseLostDuringShutdown(t *testing.T) {
	s := startServer(t)
	client, f := s.faultyClient()
	q := newTestQueue(t, client, Config[string]{Lease: time.Second})
	// No pause of the machine ends its lease.
	other := newTestQueue(t, s.client(), Config[string]{Lease: time.Minute})
	addAndGet(t, q, "x")
	ctx, release := q.Lease(context.Background(), "x")
	defer release()
	q.ShutDown()
	f.down.Store(true)
	down := time.Now()
	q.Add("early") // It is not given up while a worker still holds a key.
	mustGet(t, other, "x")
	waitUntil(t, func() bool { return ctx.Err() != nil })
	wantErr(t, context.Cause(ctx), leasing.ErrLost)
	waitUntil(t, func() bool { return time.Since(down) > 2*q.config.Lease })
	q.Add("late")
	q.Done("x")
	f.down.Store(false)
	must(t, q.ShutDownContext(within(t, 5*time.Second)))
	if info := shared(q); info.LostLeases != 1 || info.LostDones != 1 || info.Unsent != 0 {
		t.Errorf("%+v, want one lost lease and one lost Done", info)
	}
	wantHeld(t, other, "x")
	getEach(t, other, "early", "late")
	other.Done("x")
}

// A key that is on its way to a getter when the replica shuts down goes to another replica, before the
// workers of the first have finished.
func TestShutDownHandsBack(t *testing.T) {
	_, f, q, other := oneFaulty(t, Config[string]{})
	addAndGet(t, q, "held")
	must(t, other.AddContext(within(t, 5*time.Second), "x"))
	f.deaf.Store(true)
	got := make(chan error, 1)
	go func() {
		_, err := q.GetContext(context.Background())
		got <- err
	}()
	waitUntil(t, func() bool { return other.Stats().Processing == 2 })
	q.ShutDown()
	wantErr(t, <-got, workqueue.ErrShutDown)
	f.deaf.Store(false)
	getEach(t, other, "x")
	wantHeld(t, q, "held")
	q.Done("held")
}

// After shutdown, Flush and AddContext return, even if what was added is lost.
func TestFlushAfterShutdown(t *testing.T) {
	_, f, gaveUp, ended := oneFaulty(t, Config[string]{Lease: time.Second})
	ended.Add("x")
	f.down.Store(true)
	gaveUp.Add("x")
	for q, want := range map[*Queue[string]]error{ended: nil, gaveUp: ErrNotSent} {
		if err := q.ShutDownContext(within(t, 10*time.Second)); err != want {
			t.Fatalf("ShutDownContext() = %v, want %v", err, want)
		}
		wantErr(t, q.AddContext(within(t, 5*time.Second), "y"), workqueue.ErrShutDown)
	}
	wantErr(t, ended.Flush(within(t, 5*time.Second)), nil)
	wantErr(t, gaveUp.Flush(within(t, 5*time.Second)), workqueue.ErrShutDown)
	if n := gaveUp.Stats().Dropped; n != 1 {
		t.Errorf("%d adds were dropped, want 1", n)
	}
}

// A full server is asked a few times a second, not as fast as it answers, no matter what waits for it.
func TestFullServerIsNotBusy(t *testing.T) {
	s := startServer(t)
	client := s.client()
	q := newTestQueue(t, client, Config[string]{})
	addAndGet(t, q, "held")
	s.fill()
	ctx := within(t, 30*time.Second)
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { _ = q.AddContext(waiting, "x") }()
	go func() { _, _ = q.GetContext(waiting) }()
	q.AddRateLimited("y")
	waitUntil(t, func() bool { return shared(q).Errors > 0 })
	calls := func() int {
		stats, err := client.InfoMap(ctx, "commandstats").Result()
		must(t, err)
		var evals, hashes int
		_, _ = fmt.Sscanf(stats["Commandstats"]["cmdstat_eval"], "calls=%d", &evals)
		_, _ = fmt.Sscanf(stats["Commandstats"]["cmdstat_evalsha"], "calls=%d", &hashes)
		return evals + hashes
	}
	// Four attempts a second, each with what it entails. A busy machine can only make fewer of them.
	began, before := time.Now(), calls()
	waitUntil(t, func() bool { return calls()-before >= 16 })
	if d := time.Since(began); d < time.Second {
		t.Errorf("16 calls in %v, want about four attempts a second and what they entail", d)
	}
	s.limitMemory("0")
	must(t, q.Flush(ctx))
	cancel()
	q.Done("held")
}

// A replica that is shut down while the server is full tries its adds for a lease, without haste, and ends
// then.
func TestShutDownOnFullServer(t *testing.T) {
	s := startServer(t)
	q := newTestQueue(t, s.client(), Config[string]{Lease: time.Second})
	addAndGet(t, q, "x")
	s.fill()
	q.Add("y")
	q.Done("x")
	wantErr(t, q.ShutDownContext(within(t, 10*time.Second)), ErrNotSent)
	if dropped, calls := q.Stats().Dropped, batches(q.client); dropped != 1 || calls > 30 {
		t.Errorf("%d adds were dropped with %d calls, want 1 with at most 30", dropped, calls)
	}
}

// A full server has refused the adds of a batch, the reply is lost, and the session ends. The adds are not
// taken for executed.
func TestRefusedAddsOfBatchThatIsGone(t *testing.T) {
	s := startServer(t)
	a := rawSession{t: t, client: s.client(), s: shiftedScript(), id: "aaaaaaaaaaa", lease: time.Second}
	b := a
	b.id = "bbbbbbbbbbb"
	a.want("OK ", 1)
	s.fill()
	a.want("FULL ", 2, string(codeAdd)+"x")
	s.limitMemory("0")
	for i := range 4 {
		shiftClock(t, a.client, time.Duration(i+1)*500*time.Millisecond)
		b.want("OK ", i+1)
	}
	reply, err := parseReply(a.send(2, 0, string(codeAdd)+"x"))
	must(t, err)
	if reply.status != "GONE" || !reply.full {
		t.Errorf("the reply is %+v", reply)
	}
	q := withoutServer(t)
	shard := q.shards[0]
	shard.senderRuns = true // Nothing is sent.
	shard.apply(&batch{ops: []*op{newOp(codeAdd, "x"), newOp(codeForget, "y")}}, reply)
	if adds, others := shard.buffer.adds, shard.buffer.others; len(adds) != 1 || len(others) != 0 {
		t.Errorf("%d adds and %d others are sent again, want only the add", len(adds), len(others))
	}
}

// A replica ends with a batch that the server has executed, and whose reply is lost with the lease. Then
// Flush says, as ShutDownContext does, that the server has everything.
func TestFlushAfterLastBatchIsGone(t *testing.T) {
	q := withoutServer(t)
	shard := q.shards[0]
	shard.senderRuns = true // Nothing is sent.
	shard.session.id = "aaaaaaaaaaa"
	q.Add("x")
	ops, _ := shard.buffer.take(0, false)
	q.ShutDown()
	shard.apply(&batch{ops: ops}, &reply{status: "GONE"})
	must(t, q.ShutDownContext(t.Context()))
	must(t, q.Flush(t.Context()))
}

// A Flush that waits for a Done alone ends when the session of that Done is lost: nothing is left to send.
func TestFlushOfLostDone(t *testing.T) {
	q := withoutServer(t)
	shard := q.shards[0]
	shard.senderRuns = true // Nothing is sent.
	shard.session.id = "aaaaaaaaaaa"
	q.mu.Lock()
	done := shard.putLocked(aboutHeld(codeDone, handedOut{encoded: "x", fence: "1234567890123456"}))
	result := shard.confirmLocked(done)
	ops, _ := shard.buffer.take(0, false)
	q.mu.Unlock()
	shard.apply(&batch{ops: ops}, &reply{status: "LOST"})
	select {
	case err := <-result:
		must(t, err)
	default:
		t.Error("Flush still waits")
	}
}

// A full server has just answered a batch without adds. The next add is tried, and tried again.
func TestAddAfterFullServerHasAnswered(t *testing.T) {
	s := startServer(t)
	q := newTestQueue(t, s.client(), Config[string]{})
	addAndGet(t, q, "x")
	s.fill()
	q.Done("x")
	flush(t, q)
	waitUntil(t, func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return !q.shards[0].senderRuns
	})
	q.Add("y")
	s.limitMemory("0")
	must(t, q.Flush(within(t, 8*time.Second))) // Not by the timer that would renew a lease.
}

// An outage ends when the server answers again, although it is full.
func TestOutageEndsOnFullServer(t *testing.T) {
	q := withoutServer(t)
	shard := q.shards[0]
	shard.senderRuns = true // Nothing is sent.
	shard.server.outage = errors.New("connection refused")
	shard.apply(&batch{}, &reply{status: "FULL", full: true})
	if err := q.outage(); err != nil {
		t.Errorf("the outage continues: %v", err)
	}
	shard.server.outage = errFull
	shard.apply(&batch{}, &reply{status: "FULL", full: true})
	if err := q.outage(); err != errFull {
		t.Errorf("Outage is %v while adds wait for a full server", err)
	}
}

// A session whose lease has ended here, and not on the server, gives its keys back when its handlers have had
// the margin to notice it.
func TestQuitsAfterMargin(t *testing.T) {
	q := withoutServer(t)
	shard, now := q.shards[0], time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	shard.senderRuns = true // Nothing is sent.
	shard.session = session{id: "aaaaaaaaaaa", held: 1, leaseFrom: now.Add(-q.config.Lease)}
	shard.expireLocked(now)
	if margin := q.config.Lease / 20; shard.hasWorkLocked(now.Add(margin-1)) ||
		!shard.hasWorkLocked(now.Add(margin)) {
		t.Errorf("the session does not quit %v after its handlers' contexts have ended", margin)
	}
	shard.session = session{id: "bbbbbbbbbbb", leaseFrom: now.Add(-q.config.Lease)}
	shard.underWay = new(batch)
	shard.expireLocked(now)
	if !shard.session.abandoned || !shard.hasWorkLocked(now) {
		t.Error("a session that holds nothing does not quit at once")
	}
}

// The connection of the blocking read is dead, so no wake-up comes. Keys come nevertheless.
func TestDeadRead(t *testing.T) {
	s := startServer(t)
	producer, q := newTestQueue(t, s.client(), Config[string]{}), newTestQueue(t, s.client(), Config[string]{})
	p := startProxy(t, s.addr, func() int { return -1 })
	must(t, q.blocking.Close())
	q.blocking = newClient(t, &redis.Options{Addr: p.addr()})
	handleWhileAsleep(t, s, q, "x", func() { producer.Add("x") })
	came := make(chan string, 2)
	// Each Get but the first lasts for a second, and begins while the other goroutine's waits.
	for i := range cap(came) {
		go func() {
			key, err := "", context.DeadlineExceeded
			for d := time.Duration(i+1) * 500 * time.Millisecond; err == context.DeadlineExceeded; d = time.Second {
				ctx, cancel := context.WithTimeout(context.Background(), d)
				key, err = q.GetContext(ctx)
				cancel()
			}
			came <- key
		}()
	}
	waitForSleepers(t, s.client(), 1)
	p.toReplica.Store(true)
	began := time.Now()
	producer.Add("y")
	if key, d := <-came, time.Since(began); key != "y" || d > 8*time.Second {
		t.Errorf("%q came after %v, want y after a poll interval of a second", key, d)
	}
	q.Done("y")
	q.ShutDown()
	<-came
}

// The second client has the bounds of the first one, also those that are none.
func TestBoundsOfSecondClient(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "localhost:1", ReadTimeout: -1, WriteTimeout: -1,
		MaxRetries: -1})
	own := ownConnections(client, 1).(*redis.Client)
	if o := own.Options(); o.ReadTimeout != 0 || o.WriteTimeout != 0 || o.MaxRetries != 0 {
		t.Errorf("the second client waits for %v and %v, with %d retries; want no bounds", o.ReadTimeout,
			o.WriteTimeout, o.MaxRetries)
	}
	must(t, own.Close())
	must(t, client.Close())
}

// While a key is held, another string of it is finished and queues the key again; it is not held forever.
func TestTwoStringsOfOneKey(t *testing.T) {
	client := startServer(t).client()
	old := newTestQueue(t, client, Config[string]{})
	lower := decoding(func(encoded string) (string, error) { return strings.ToLower(encoded), nil })
	q := newTestQueue(t, client, Config[string]{Codec: lower})
	addAndGet(t, q, "x")
	getting, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		if key, err := q.GetContext(getting); err == nil {
			t.Errorf("got %q, which is held", key)
		}
	}()
	old.Add("X")
	// It was handed out to q, which has finished it and added the other string.
	waitUntil(t, func() bool { st := old.Stats(); return st.Queued == 0 && st.Processing == 1 && st.Again == 1 })
	cancel()
	waitForGetters(t, q, 0)
	q.Done("x")
	getEach(t, q, "x")
	wantNoKeys(t, q)
}

// An answer that comes too late does not change what the call has returned.
func TestLateAnswer(t *testing.T) {
	s := startServer(t)
	q := newTestQueue(t, s.client(), Config[string]{})
	q.AddRateLimited("a")
	must(t, q.Flush(within(t, 10*time.Second)))
	s.signal(syscall.SIGSTOP)
	answers, err := q.ask(within(t, 10*time.Millisecond), codeNumRequeues, "a")
	wantErr(t, err, context.DeadlineExceeded)
	s.signal(syscall.SIGCONT)
	must(t, q.Flush(within(t, 10*time.Second)))
	if want := []opResult{{}}; !slices.Equal(answers, want) {
		t.Errorf("ask returned %v, and its result became %v", want, answers)
	}
}
