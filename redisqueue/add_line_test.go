package redisqueue

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/operate"
)

// wantOrder gets all keys, and checks that they come in that order.
func wantOrder(t *testing.T, q *Queue[string], keys ...string) {
	t.Helper()
	var got []string
	for range keys {
		key, err := q.GetContext(within(t, 20*time.Second))
		must(t, err)
		q.Done(key)
		got = append(got, key)
	}
	if !slices.Equal(got, keys) {
		t.Errorf("got %q, want %q", got, keys)
	}
}

// A key of priority 1 comes before those that were queued up to a step earlier, and after those that are
// older: priorities age.
func TestPriorities(t *testing.T) {
	client := startServer(t).client()
	q := newShiftedQueue(t, client, Config[string]{PriorityStep: time.Minute})
	q.Pause(operate.UntilResumed)
	add := func(key string, priority int, at time.Duration) {
		shiftClock(t, client, at)
		q.AddWithPriority(key, priority, 0)
		flush(t, q)
	}
	add("old", 0, 0)
	add("low", -1, time.Second)
	add("a", 0, 30*time.Second)
	add("b", 0, 31*time.Second)
	add("c", 0, 32*time.Second)
	add("high", 1, 61*time.Second)
	add("higher", 2, 65*time.Second)
	add("b", 1, 70*time.Second)  // raises the priority of a queued key
	add("b", -5, 71*time.Second) // and does not lower it
	if p := q.PriorityOf("b"); p != 1 {
		t.Errorf("PriorityOf(b) = %d", p)
	}
	if k := q.Snapshot(10).Queued; len(k) != 7 || k[0].Key != "higher" || k[0].Priority != 2 {
		t.Errorf("Snapshot() = %+v", k)
	}
	q.Resume()
	wantOrder(t, q, "higher", "b", "old", "high", "a", "c", "low")
	flush(t, q)
	must(t, checkInvariants(client, q))
	if n := client.HLen(context.Background(), q.shards[0].names.shard[13]).Val(); n != 0 {
		t.Errorf("%d notes are left", n)
	}
}

// Of several delayed adds the highest priority counts, and one without a priority has 0.
func TestPriorityOfDelays(t *testing.T) {
	q := newShiftedQueue(t, startServer(t).client(), Config[string]{})
	q.AddAfter("a", time.Minute)
	q.AddWithPriority("a", -5, time.Hour)
	q.AddWithPriority("b", -5, time.Hour)
	q.AddAfter("b", time.Minute)
	q.AddWithPriority("c", -5, time.Hour)
	q.AddWithPriority("c", -7, time.Minute)
	q.AddWithPriority("d", 3, time.Minute)
	q.AddAfter("d", time.Hour)
	flush(t, q)
	for key, want := range map[string]int{"a": 0, "b": 0, "c": -5, "d": 3} {
		if p := q.PriorityOf(key); p != want {
			t.Errorf("PriorityOf(%s) = %d, want %d", key, p, want)
		}
	}
}

// A key keeps its priority while it waits, when it fails, when its replica gives it back or loses its lease,
// and forgets it when it is done.
func TestPriorityStays(t *testing.T) {
	client := startServer(t).client()
	q := newShiftedQueue(t, client, Config[string]{Backoff: workqueue.BackoffConfig[string]{Base: time.Minute}})
	want := func(when string, n int) {
		t.Helper()
		flush(t, q)
		if p := q.PriorityOf("x"); p != n {
			t.Errorf("%s: PriorityOf() = %d, want %d", when, p, n)
		}
	}
	q.AddWithPriority("x", 7, time.Minute)
	want("waiting", 7)
	shiftClock(t, client, time.Minute)
	freshStats(t, q)
	want("queued", 7)
	mustGet(t, q, "x")
	want("held", 7)
	wantFail(t, q, "x", workqueue.Failure{}, workqueue.Retry{Attempt: 1})
	want("failed", 7)
	shiftClock(t, client, 3*time.Minute)
	dead := rawSession{t: t, client: client, s: shiftedScript(), id: "aaaaaaaaaaa", lease: 30 * time.Second}
	dead.send(1, 1)
	want("held elsewhere", 7)
	dead.want("OK ", 2, "q")
	want("given back", 7)
	mustGet(t, q, "x")
	q.Add("x")
	q.Done("x")
	mustGet(t, q, "x")
	want("added without a priority", 0)
	q.AddWithPriority("x", 3, 0)
	q.Done("x")
	mustGet(t, q, "x")
	want("added again with one", 3)
	q.Done("x")
	want("done", 0)
	q.AddWithPriority("x", 9, time.Hour)
	flush(t, q)
	q.Remove("x")
	q.Add("x")
	mustGet(t, q, "x")
	want("removed and added", 0)
	q.Done("x")
	must(t, checkInvariants(client, q))
}

// A key that waits with a priority keeps it when it fails again, held or not, and also if the delay ends during the
// call.
func TestPriorityOfFailingKeyStays(t *testing.T) {
	for name, failsAgain := range map[string]func(t *testing.T, q *Queue[string], endDelay func()){
		"not held": func(_ *testing.T, q *Queue[string], _ func()) { q.AddRateLimited("x") },
		"held without a priority": func(t *testing.T, q *Queue[string], _ func()) {
			addAndGet(t, q, "x")
			mustFail(t, q, "x", workqueue.Failure{})
			q.Done("x")
		},
		"held when the delay ends": func(t *testing.T, q *Queue[string], endDelay func()) {
			addAndGet(t, q, "x")
			endDelay()
			mustFail(t, q, "x", workqueue.Failure{})
			q.Done("x")
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := startServer(t).client()
			q := newShiftedQueue(t, client, Config[string]{Backoff: workqueue.BackoffConfig[string]{Base: time.Minute}})
			q.AddWithPriority("x", 7, 0)
			mustGet(t, q, "x")
			mustFail(t, q, "x", workqueue.Failure{})
			q.Done("x")
			failsAgain(t, q, func() {
				shiftClock(t, client, 2*time.Minute)
				freshStats(t, q)
			})
			flush(t, q)
			k, err := q.key(t.Context(), "x")
			if err != nil || k.Priority != 7 || k.State != workqueue.KeyWaiting {
				t.Errorf("Key() = %+v, %v, want a key that waits with priority 7", k, err)
			}
			must(t, checkInvariants(client, q))
		})
	}
}

// A waiting key keeps its priority when it cannot be decoded, or is given up because its lease was lost too often.
func TestPriorityOfAWaitingKeyStays(t *testing.T) {
	client := startServer(t).client()
	q := newShiftedQueue(t, client, Config[string]{MaxLostLeases: 1})
	dead := rawSession{t: t, client: client, s: shiftedScript(), id: "aaaaaaaaaaa",
		lease: 30 * time.Second, losses: 1}
	hand, err := parseReply(dead.send(1, 2, "abad", "alost"))
	must(t, err)
	q.AddWithPriority("bad", 7, time.Hour)
	q.AddWithPriority("lost", 7, time.Hour)
	flush(t, q)
	dead.send(2, 0, "U"+hand.keys[0].fence+"bad")
	for i := range 4 {
		shiftClock(t, client, time.Duration(i)*15*time.Second)
		freshStats(t, q)
	}
	for _, key := range []string{"bad", "lost"} {
		if k, err := q.key(t.Context(), key); err != nil || k.Priority != 7 || k.State != workqueue.KeyWaiting {
			t.Errorf("%s is %+v, %v", key, k, err)
		}
	}
}

// A tool leaves it to the replicas to queue due keys: it does not know how much a priority is worth to them.
func TestToolQueuesNoDueKeys(t *testing.T) {
	client := startServer(t).client()
	q := newShiftedQueue(t, client, Config[string]{PriorityStep: time.Hour})
	q.Pause(operate.UntilResumed)
	q.Add("old")
	q.AddWithPriority("high", 1, 10*time.Minute)
	flush(t, q)
	tool := attach(t, client)
	tool.queue.script = shiftedScript()
	shiftClock(t, client, 20*time.Minute)
	tool.queue.Add("new")
	flush(t, tool.queue)
	q.Resume()
	freshStats(t, q)
	wantOrder(t, q, "high", "old", "new")
}

// All replicas and shards together start no more keys than the limit says, at any time, and no fewer if they
// are there.
func TestStartLimit(t *testing.T) {
	s := startServer(t)
	const rate, burst, n = 100, 5, 60
	var queues []*Queue[string]
	for range 3 {
		queues = append(queues, newTestQueue(t, s.client(), Config[string]{
			StartLimit: StartLimit{rate, burst}, PollInterval: 9 * time.Second, MetricsProvider: &watcher{},
		}))
	}
	addAll(queues[0], keysNamed("k", n)...)
	flush(t, queues[0])
	began := time.Now()
	var mu sync.Mutex
	var starts []time.Duration
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, q := range queues {
		for range 4 {
			all.Go(func() {
				for {
					key, err := q.GetContext(ctx)
					if err != nil {
						return
					}
					mu.Lock()
					starts = append(starts, time.Since(began))
					last := len(starts) == n
					mu.Unlock()
					q.Done(key)
					if last {
						cancel()
					}
				}
			})
		}
	}
	all.Wait()
	took := starts[n-1]
	if least := time.Duration(float64(n-burst) / rate * float64(
		time.Second)); took < least-20*time.Millisecond || took > 10*least+5*time.Second {
		t.Errorf("%d keys took %v, want %v", n, took, least)
	}
	if calls := batches(queues[0].client); calls > 20*n {
		t.Errorf("%d calls of the server for %d keys", calls, n)
	}
}

// What the limit holds back shows.
func TestStartLimitShows(t *testing.T) {
	client := startServer(t).client()
	q := newShiftedQueue(t, client, Config[string]{StartLimit: StartLimit{Rate: 0.01, Burst: 2}})
	addAll(q, "a", "b", "c")
	getEach(t, q, "a", "b")
	getNothing(t, q, 50*time.Millisecond)
	if st := freshStats(t, q); st.Queued != 1 || st.Blocked != 1 || st.Paused {
		t.Errorf("Stats() = %+v", st)
	}
	if c, err := attach(t, client).Counts(t.Context()); err != nil || !c.Limited {
		t.Errorf("Counts() = %+v, %v", c, err)
	}
	if st := freshStats(t, attach(t, client).queue); st.Blocked != 1 {
		t.Errorf("a tool's Stats() = %+v", st)
	}
	if facts := fmt.Sprint(q.Facts()); !slices.Contains(q.Facts(),
		operate.Fact{Name: "Start limit", Value: "0.01 a second, 2 at once; it holds keys back"}) {
		t.Error(facts)
	}
	shiftClock(t, client, 100*time.Second)
	mustGet(t, q, "c")
	q.Done("c")
	if c, err := attach(t, client).Counts(t.Context()); err != nil || c.Limited {
		t.Errorf("Counts() = %+v, %v", c, err)
	}
}

// A token may start a key up to a millionth of its time early. That does not make the bucket full again.
func TestEarlyToken(t *testing.T) {
	client := startServer(t).client()
	q := newTestQueue(t, client, Config[string]{StartLimit: StartLimit{Rate: 1.0 / 3_600_000, Burst: 10}})
	bucket := "startFullAt " + strings.Join(strings.Fields(q.settings)[:2], " ")
	nextToken := time.Now().Add(3 * time.Second)
	fullAt := nextToken.Add(9 * 3_600_000 * time.Second).UnixMicro()
	must(t, client.HSet(t.Context(), q.shards[0].names.shard[0], bucket, fullAt).Err())
	addAll(q, "a", "b")
	getEach(t, q, "a")
	getNothing(t, q, 50*time.Millisecond)
	if n := freshStats(t, q).Blocked; n != 1 {
		t.Errorf("the limit holds back %d keys, want 1", n)
	}
}

// When the bucket is full again the limit holds nothing back, also if no replica is left to say so.
func TestStartLimitEndsWithoutReplicas(t *testing.T) {
	client := startServer(t).client()
	q := newTestQueue(t, client, Config[string]{StartLimit: StartLimit{Rate: 0.01, Burst: 1}})
	addAll(q, "a", "b")
	getEach(t, q, "a")
	getNothing(t, q, 50*time.Millisecond)
	q.Done("a")
	q.ShutDown()
	must(t, q.ShutDownContext(t.Context()))
	admin := attach(t, client)
	if c, err := admin.Counts(t.Context()); err != nil || !c.Limited {
		t.Errorf("Counts() = %+v, %v", c, err)
	}
	must(t, client.HSet(t.Context(), q.shards[0].names.shard[0], "limited", 1).Err()) // as when time has passed
	if c, err := admin.Counts(t.Context()); err != nil || c.Limited || c.Queued != 1 {
		t.Errorf("Counts() = %+v, %v", c, err)
	}
}

// The higher priority comes first, however long PriorityStep is and whenever a key gets its priority, and no key comes before those
// that were put back.
func TestHugePriorities(t *testing.T) {
	client := startServer(t).client()
	for step, priorities := range map[time.Duration][]int{
		time.Minute:                {1_000_000, 999_999, 500, 1, 0, -1, -500, -999_999, -1_000_000},
		24 * time.Hour:             {1_000_000, 999_999, 30_000, 25_000, 1, 0, -1, -25_000, -30_000, -1_000_000},
		100 * 365 * 24 * time.Hour: {1_000_000, 5, 3, 2, 1, 0, -1, -2, -3, -5, -1_000_000},
	} {
		q := newTestQueue(t, client, Config[string]{Name: step.String(), PriorityStep: step})
		addAndGet(t, q, "put back")
		q.Pause(operate.UntilResumed)
		order := []string{"put back"}
		for i, priority := range slices.Backward(priorities) { // The order of adds and of the alphabet is another one.
			key := fmt.Sprint("z", 99-i)
			order = slices.Insert(order, 1, key)
			if i%2 == 0 {
				q.AddWithPriority(key, -maxPriority, 0)
				flush(t, q)
			}
			q.AddWithPriority(key, priority, 0)
		}
		flush(t, q)
		q.mu.Lock()
		h := q.mu.held["put back"]
		h.shard.putLocked(newHandBack(h.handedOut))
		q.mu.Unlock()
		flush(t, q)
		q.AddWithPriority("put back", maxPriority, 0)
		q.Done("put back")
		flush(t, q)
		var got []string
		for _, z := range client.ZRangeWithScores(t.Context(), q.shards[0].names.shard[2], 0, -1).Val() {
			got = append(got, z.Member.(string))
			if z.Score != math.Trunc(z.Score) || math.Abs(z.Score) > 1<<53 {
				t.Errorf("%v has the place %f", z.Member, z.Score)
			}
		}
		if !slices.Equal(got, order) {
			t.Errorf("%v: the line is %q, want %q", step, got, order)
		}
		q.Resume()
	}
}

// A limit that is raised in a rollout counts at once, also while replicas with the old one run, which keep to theirs.
func TestStartLimitIsRaised(t *testing.T) {
	client := startServer(t).client()
	config := Config[string]{StartLimit: StartLimit{Rate: 100.0 / 3600, Burst: 3}, PollInterval: 20 * time.Millisecond}
	old := newTestQueue(t, client, config)
	keys := keysNamed("k", 30)
	addAll(old, keys...)
	for range 3 {
		key, err := old.GetContext(within(t, 20*time.Second))
		must(t, err)
		old.Done(key)
	}
	flush(t, old)
	getNothing(t, old, 50*time.Millisecond)
	config.StartLimit = StartLimit{Rate: 10, Burst: 2}
	began, raised := time.Now(), newTestQueue(t, client, config)
	for range 7 {
		key, err := raised.GetContext(within(t, 20*time.Second))
		must(t, err)
		raised.Done(key)
		flush(t, raised)
		getNothing(t, old, time.Millisecond)
	}
	if took := time.Since(began); took < 490*time.Millisecond {
		t.Errorf("7 keys took %v", took)
	}
}

// The script may grow: Lua allows 200 local variables at a time, and 60 of them in a function inside.
func TestLocalsOfScript(t *testing.T) {
	const batchBegins = "return (function()\n"
	names := strings.ReplaceAll(strings.Join(keysNamed("", 20), ", "), "/", "x")
	locals := "local " + names + " = 1\n"
	client := startServer(t).client()
	script := strings.Replace(batchLua, batchBegins, batchBegins+locals, 1)
	must(t, client.ScriptLoad(t.Context(), script).Err())
	_, ofData, _ := strings.Cut(names, ", ")
	used := batchBegins + "local _ = " + strings.Join(strings.SplitN(ofData, ", ", 11)[:10], ", ") + "\n"
	script = strings.Replace(locals+batchLua, batchBegins, used, 1)
	must(t, client.ScriptLoad(t.Context(), script).Err())
}

// A key that was put back, discarded and added in one batch has lost its place before all others.
func TestPlaceAfterDiscard(t *testing.T) {
	r := rawSession{t: t, client: startServer(t).client(), s: batchScript, id: "aaaaaaaaaaa", lease: time.Minute}
	first, err := parseReply(r.send(1, 1, "ay"))
	must(t, err)
	r.send(2, 0, "ax")
	r.send(3, 0, "H"+first.keys[0].fence+"B0000000000000000y", "xy", "ay")
	if next, err := parseReply(r.send(4, 1)); err != nil || len(next.keys) != 1 || next.keys[0].encoded != "x" {
		t.Errorf("%+v, %v, want x", next, err)
	}
}

// A lost lease takes no priority from a key, also if a lower one was asked for meanwhile.
func TestLostLeaseKeepsHigherPriority(t *testing.T) {
	client := startServer(t).client()
	q := newShiftedQueue(t, client, Config[string]{Lease: 30 * time.Second})
	dead := rawSession{t: t, client: client, s: shiftedScript(), id: "aaaaaaaaaaa", lease: 30 * time.Second}
	dead.send(1, 0, "ax")
	dead.send(2, 1)
	q.AddWithPriority("x", -5, 0)
	flush(t, q)
	for i := range 4 {
		shiftClock(t, client, time.Duration(i)*15*time.Second)
		freshStats(t, q)
	}
	mustGet(t, q, "x")
	if p := q.PriorityOf("x"); p != 0 {
		t.Errorf("the priority is %d, want 0", p)
	}
	q.Done("x")
}

// However small the rate is, the queue continues, and no more keys start than the burst.
func TestTinyStartLimit(t *testing.T) {
	client := startServer(t).client()
	for i, limit := range []StartLimit{{1e-9, 1}, {1e-12, 2}, {1e-30, 2}, {1e-300, 1}} {
		q := newTestQueue(t, client, Config[string]{Name: fmt.Sprint("q", i), StartLimit: limit})
		keys := keysNamed("k", 3)
		addAll(q, keys...)
		getEach(t, q, keys[:limit.Burst]...)
		getNothing(t, q, 50*time.Millisecond)
		must(t, q.AddContext(within(t, 5*time.Second), "d"))
	}
}
