package redisqueue

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// shiftedScript reads a clock that is off by what shiftClock has set.
func shiftedScript() *redis.Script {
	return redis.NewScript(replacingTime("call('TIME'); time[1] = time[1] + (call('GET', '{' .. string.match(KEYS[1], '{(.-)}') .. '}shift') or 0)"))
}

// shiftClock sets the clock of a queue named "test" that has shiftedScript.
func shiftClock(t testing.TB, client redis.UniversalClient, d time.Duration) {
	t.Helper()
	must(t, client.Set(context.Background(), "{test/0}shift", fmt.Sprintf("%.6f", d.Seconds()), 0).Err())
}

// newShiftedQueue returns a queue named "test" with shiftedScript.
func newShiftedQueue(t testing.TB, client redis.UniversalClient, config Config[string]) *Queue[string] {
	q := newQueue(client, complete(t, config), shiftedScript())
	t.Cleanup(func() { endQueue(t, q) })
	return q
}

// rawDescription is that of a Config[string].
var rawDescription = fmt.Sprintf("format %d, 1 shards, keys: string", format)

// rawSession sends batches as a replica does, but as the test says.
type rawSession struct {
	t      testing.TB
	client redis.UniversalClient
	s      *redis.Script
	id     string
	lease  time.Duration
	losses int           // the limit, the usual one if zero
	forget time.Duration // how long failures are counted, 100 years if zero
	flags  string        // none if empty
}

func (r rawSession) send(number, want int, ops ...string) string {
	r.t.Helper()
	reply, err := r.try(number, want, ops...)
	must(r.t, err)
	return reply
}

func (r rawSession) try(number, want int, ops ...string) (string, error) {
	c := complete(r.t, Config[string]{MaxLostLeases: r.losses})
	c.Backoff.ForgetAfter = cmp.Or(r.forget, 100*365*24*time.Hour)
	args := []any{r.id, number, r.lease.Microseconds(), want, cmp.Or(r.flags, "-"), c.settings(), rawDescription}
	for _, o := range ops {
		args = append(args, o)
	}
	return r.s.Run(context.Background(), r.client, newKeyNames("test", 0).of(r.id), args...).Text()
}

// want sends a batch that gets a reply with that prefix.
func (r rawSession) want(prefix string, number int, ops ...string) {
	r.t.Helper()
	if reply := r.send(number, 0, ops...); !strings.HasPrefix(reply, prefix) {
		r.t.Errorf("the reply to batch %d of %s is %q, want %s", number, r.id, reply, prefix)
	}
}

// A batch that is sent again is not executed again: not after the server's clock was set forward by a year, and not after the
// session has ended. What the server keeps for that is removed in the end.
func TestBatchRunsOnce(t *testing.T) {
	client := startServer(t).client()
	const lease, year = 30 * time.Second, 365 * 24 * time.Hour
	a := rawSession{t: t, client: client, s: shiftedScript(), id: "aaaaaaaaaaa", lease: lease}
	b := a
	b.id = "bbbbbbbbbbb"
	failure := "F0000000000000001x0 0 0 false "
	names := newKeyNames("test", 0).shard
	wantFailures := func(want float64) {
		t.Helper()
		if n := client.ZScore(context.Background(), names[4], "x").Val(); n != want {
			t.Fatalf("%v failures are counted, want %v", n, want)
		}
	}
	var now time.Duration
	batches := 0
	pass := func(times int, d time.Duration) {
		t.Helper()
		for range times {
			now += d
			shiftClock(t, client, now)
			batches++
			b.want("OK ", batches)
		}
	}
	a.want("OK ", 1, failure)
	pass(1, year)
	a.want("OK ", 1, failure)
	wantFailures(1)
	a.want("OK ", 2, failure)
	wantFailures(2) // The delay of the first one has passed.
	pass(3, lease/2)
	pass(1, year)
	a.want("GONE", 2, failure)
	a.want("LOST", 3, failure)
	wantFailures(2)

	known := func() bool {
		reply := client.HExists(context.Background(), names[9], a.id).Val()
		gone := client.ZScore(context.Background(), names[10], a.id).Err() == nil
		if reply != gone {
			t.Fatalf("reply: %v, gone: %v", reply, gone)
		}
		return reply
	}
	pass(int(time.Hour/(lease/2))-10, lease/2)
	if !known() {
		t.Errorf("the reply was forgotten before an hour")
	}
	pass(40, lease/2) // The chores forget a few at a time.
	if known() {
		t.Errorf("the reply is kept for longer than an hour")
	}

	// A session that ends in a batch with chores is gone in that batch already, whose reply is kept nevertheless.
	c := a
	c.id, c.flags = "ccccccccccc", "allCounts"
	c.want("OK ", 1, "ax", "q")
	pass(int(time.Hour/(lease/2))+40, lease/2)
	if left := client.HKeys(context.Background(), names[9]).Val(); len(left) != 2 {
		t.Errorf("the server keeps %q, want nothing but what b has", left)
	}
}

// A batch whose reply the server has lost is not executed again, and ends its session.
func TestReplyIsLost(t *testing.T) {
	client := startServer(t).client()
	a := rawSession{t: t, client: client, s: batchScript, id: "aaaaaaaaaaa", lease: time.Minute}
	a.want("OK ", 1, "ax")
	if n := client.HDel(context.Background(), newKeyNames("test", 0).shard[9], "reply:"+a.id).Val(); n != 1 {
		t.Fatal("the server has no reply")
	}
	a.want("LOST", 1, "ax")
}

// The batch that ends a session is not executed again either.
func TestQuitRunsOnce(t *testing.T) {
	a := rawSession{t: t, client: startServer(t).client(), s: batchScript, id: "aaaaaaaaaaa", lease: time.Minute}
	a.want(a.send(1, 0, "ax", "q"), 1, "ax", "q")
	a.want("LOST", 2, "ax")
}

// A key whose Done is in the last batch of its session is finished, also if that batch takes keys back.
func TestQuitWithDone(t *testing.T) {
	client := startServer(t).client()
	a := rawSession{t: t, client: client, s: batchScript, id: "aaaaaaaaaaa", lease: time.Minute, flags: "allCounts"}
	reply := a.send(1, 1, "ax")
	fence := regexp.MustCompile(` k1 (\d{16}) `).FindStringSubmatch(reply)
	if fence == nil {
		t.Fatalf("the reply %q has no fence", reply)
	}
	a.want("OK ", 2, "D"+fence[1]+"x", "q")
	if n := client.HLen(context.Background(), newKeyNames("test", 0).shard[1]).Val(); n != 1 { // the filler
		t.Errorf("%d keys are left", n-1)
	}
}

// No key of a queue but the lists of wake-ups has a time to live: a server whose clock is set forward would lose it.
func TestNothingExpires(t *testing.T) {
	s, q, other := twoReplicas(t, Config[string]{StartLimit: StartLimit{Rate: 1000}})
	client := s.client()
	q.AddRateLimited("x")
	mustGet(t, other, "x")
	q.AddAfter("y", time.Hour)
	freshStats(t, q)
	ctx := within(t, 10*time.Second)
	must(t, q.ShutDownContext(ctx))
	keys, err := client.Keys(ctx, "*").Result()
	if err != nil || len(keys) < 8 {
		t.Fatal(keys, err)
	}
	for _, key := range keys {
		if d := client.TTL(ctx, key).Val(); d != -1 && !strings.Contains(key, ":wake:") {
			t.Errorf("%s expires in %v", key, d)
		}
	}
	other.Done("x")
}

// A replica that hears nothing for longer than its lease loses its session. What the server has executed before is not
// executed again, and what it has not is.
func TestDeafReplica(t *testing.T) {
	s, f, q, other := oneFaulty(t, Config[string]{Lease: time.Second, Backoff: noBackoff})
	q.AddRateLimited("x")
	flush(t, q)
	f.deaf.Store(true)
	q.AddRateLimited("x")
	waitUntil(t, func() bool { return failuresOf(t, other, "x") == 2 })
	q.AddRateLimited("x") // It goes when the batch before it was answered.
	gone := newKeyNames("test", 0).shard[10]
	waitUntil(t, func() bool { freshStats(t, other); return s.client().ZCard(context.Background(), gone).Val() > 0 })
	f.deaf.Store(false)
	flush(t, q)
	wantFailures(t, q, "x", 3)
}

// Sessions that hold nothing are removed several at a time.
func TestManyDeadSessions(t *testing.T) {
	client := startServer(t).client()
	a := rawSession{t: t, client: client, s: shiftedScript(), lease: time.Minute}
	for i := range 40 {
		a.id = fmt.Sprintf("dead%07d", i)
		a.want("OK ", 1)
	}
	a.id = "bbbbbbbbbbb"
	for i := range 8 {
		shiftClock(t, client, time.Duration(min(i+1, 3))*30*time.Second)
		a.want("OK ", i+1)
	}
	if left := client.ZRange(context.Background(), newKeyNames("test", 0).shard[6], 0, -1).Val(); len(left) != 1 || left[0] != a.id {
		t.Errorf("%d sessions are left", len(left))
	}
}

// A replica that sleeps is woken if another one adds a key that is due earlier than all it knows of.
func TestEarlierDelay(t *testing.T) {
	s, producer, consumer := twoReplicas(t, Config[string]{PollInterval: 9 * time.Second})
	producer.AddAfter("much later", time.Hour)
	for range 3 {
		var began time.Time
		handleWhileAsleep(t, s, consumer, "soon", func() {
			began = time.Now()
			producer.AddAfter("later", time.Minute)
			producer.AddAfter("soon", 200*time.Millisecond)
		})
		if d := time.Since(began); d < 200*time.Millisecond || d > 3*time.Second {
			t.Errorf("a key with a delay of 200 ms came after %v", d)
		}
	}
}

// When the replica that waits for the next delayed key is busy with another one, a third one waits in its place.
func TestNextDelayIsPassedOn(t *testing.T) {
	s := startServer(t)
	config := Config[string]{PollInterval: 9 * time.Second}
	producer := newTestQueue(t, s.client(), config)
	came, release := make(chan time.Time, 3), make(chan struct{})
	for range 3 {
		q := newTestQueue(t, s.client(), config)
		go func() {
			key, err := q.GetContext(within(t, 20*time.Second))
			came <- time.Now()
			if err == nil {
				<-release
				q.Done(key)
			}
		}()
	}
	waitForSleepers(t, s.client(), 3)
	began := time.Now()
	for i := range 3 {
		producer.AddAfter(fmt.Sprint(i), time.Duration(i+1)*200*time.Millisecond)
	}
	for i := range 3 {
		due := time.Duration(i+1) * 200 * time.Millisecond
		if d := (<-came).Sub(began); d < due || d > due+3*time.Second {
			t.Errorf("the key with a delay of %v came after %v", due, d)
		}
	}
	close(release)
}

// A replica that sleeps beside an empty queue learns of the first key that a pause or the start limit holds back: the
// key comes when that ends, not at the next poll.
func TestEndOfHoldingBackIsPassedOn(t *testing.T) {
	for name, add := range map[string]func(t *testing.T, s *server, q *Queue[string]){
		"pause": func(t *testing.T, s *server, q *Queue[string]) {
			tool, err := Attach(t.Context(), s.client(), "test")
			must(t, err)
			must(t, tool.Pause(t.Context(), 2*time.Second))
			tool.Close()
			q.Add("x")
		},
		"no tokens": func(_ *testing.T, _ *server, q *Queue[string]) { q.Add("x") },
	} {
		t.Run(name, func(t *testing.T) {
			config := Config[string]{PollInterval: 9 * time.Second}
			if name == "no tokens" {
				config.StartLimit = StartLimit{Rate: 0.5, Burst: 1}
			}
			s, producer, consumer := twoReplicas(t, config)
			addAndGet(t, producer, "first")
			handleWhileAsleep(t, s, consumer, "x", func() { add(t, s, producer) })
			producer.Done("first")
		})
	}
}

// waitForSleepers waits until that many replicas of a queue named "test" are asleep.
func waitForSleepers(t testing.TB, client redis.UniversalClient, n int64) {
	t.Helper()
	eventually(t, 20*time.Second, func() error {
		if asleep := client.SCard(context.Background(), newKeyNames("test", 0).shard[8]).Val(); asleep != n {
			return fmt.Errorf("%d replicas sleep, want %d", asleep, n)
		}
		return nil
	})
}

// A renewal that is answered after more than a third of a lease is followed by another one at once: the lease lives on.
func TestLeaseAfterLateAnswer(t *testing.T) {
	const lease = 6 * time.Second
	client, f := startServer(t).faultyClient()
	q := newTestQueue(t, client, Config[string]{Lease: lease})
	addAndGet(t, q, "x")
	flush(t, q)
	f.down.Store(true)
	waitUntil(t, func() bool { return q.leaseAge() > 2*lease/3+200*time.Millisecond }) // The renewal began after a third.
	f.down.Store(false)
	waitUntil(t, func() bool { return q.leaseAge() < lease/3 || shared(q).LostLeases > 0 })
	if info := shared(q); info.LostLeases != 0 {
		t.Errorf("%+v", info)
	}
	q.Done("x")
}

// A session that quits gets no wake-up any more.
func TestQuitLeavesSleepers(t *testing.T) {
	client := startServer(t).client()
	r := rawSession{t: t, client: client, s: batchScript, id: "aaaaaaaaaaa", lease: time.Minute}
	r.send(1, 1)
	r.send(2, 0, "q")
	if n := client.SCard(t.Context(), newKeyNames("test", 0).shard[8]).Val(); n != 0 {
		t.Errorf("%d sessions sleep, want none", n)
	}
}
