package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/redis/go-redis/v9"
)

// An add is not merged into an add in front of a Discard which nobody waits for any more.
func TestAddBehindDiscardThatTimedOut(t *testing.T) {
	s := startServer(t)
	client, f := s.faultyClient()
	q := newTestQueue(t, client, Config[string]{})
	f.gate.Lock()
	q.Add("holds up the call")
	waitForCall(t, q)
	q.Add("x")
	if found, err := (&Admin{queue: q}).Remove(within(t, 50*time.Millisecond), "x"); len(found) > 0 ||
		err == nil {
		t.Errorf("DiscardContext() = %q, %v", found, err)
	}
	confirmed := make(chan error, 1)
	go func() { confirmed <- q.AddContext(within(t, 20*time.Second), "x") }()
	waitUntil(t, func() bool { return shared(q).Unsent == 3 })
	f.gate.Unlock()
	must(t, <-confirmed)
	getEach(t, q, "holds up the call", "x")
}

// An add of a key that is held, and is given up because its holder is dead, is not lost.
func TestAddOfKeyThatIsGivenUp(t *testing.T) {
	client := startServer(t).client()
	q := newShiftedQueue(t, client, Config[string]{MaxLostLeases: 1})
	dead := rawSession{t: t, client: client, s: shiftedScript(), id: "aaaaaaaaaaa",
		lease: 30 * time.Second, losses: 1}
	dead.send(1, 0, "ax")
	dead.send(2, 1)
	q.AddCause("x", workqueue.Cause{Reason: "why"})
	flush(t, q)
	for i := range 4 {
		shiftClock(t, client, time.Duration(i)*15*time.Second)
		freshStats(t, q)
	}
	mustGet(t, q, "x")
	if c := q.Causes("x"); c.String() != "why" {
		t.Errorf("Causes() = %v", c)
	}
	if k, err := q.key(within(t, 10*time.Second), "x"); err != nil || k.GivenUp == nil {
		t.Errorf("Key() = %+v, %v, want a given-up key", k, err)
	}
	q.Done("x")
	flush(t, q)
	must(t, checkInvariants(client, q))
}

// A retry that comes due while the key is held is no such add.
func TestRetryOfKeyThatIsGivenUp(t *testing.T) {
	client := startServer(t).client()
	q := newShiftedQueue(t, client, Config[string]{MaxLostLeases: 1})
	dead := rawSession{t: t, client: client, s: shiftedScript(), id: "aaaaaaaaaaa",
		lease: 30 * time.Second, losses: 1}
	dead.send(1, 0, "F0000000000000001x10000000 0 0 false why", "ax")
	dead.send(2, 1)
	shiftClock(t, client, 10*time.Second)
	if st := freshStats(t, q); st.Again != 1 || st.Waiting != 0 {
		t.Errorf("Stats() = %+v, want a held key whose retry is due", st)
	}
	for i := range 4 {
		shiftClock(t, client, time.Duration(10+15*i)*time.Second)
		freshStats(t, q)
	}
	if k, err := q.key(within(t, 10*time.Second), "x"); err != nil || k.GivenUp == nil || k.State != "" {
		t.Errorf("Key() = %+v, %v, want a given-up key that is not in the queue", k, err)
	}
	must(t, checkInvariants(client, q))
}

type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

// An error whose Error method panics does not end the caller.
func TestGiveUpWithNilError(t *testing.T) {
	q := newTestQueue(t, startServer(t).client(), Config[string]{})
	giveUp(q, "x", (*nilError)(nil))
	flush(t, q)
	if given := q.GivenUpKeys(1); len(given) != 1 || given[0].Err != "<nil>" {
		t.Errorf("GivenUpKeys() = %+v", given)
	}
}

// When a script was interrupted behind a hand-out that the replica does not know, the key is found,
// however many keys the replica holds.
func TestInterruptedHandOutOfManyHeldKeys(t *testing.T) {
	client := startServer(t).client()
	r := rawSession{t: t, client: client, s: batchScript, id: "aaaaaaaaaaa", lease: time.Minute}
	const held = 5000
	var adds []string
	for i := range held {
		adds = append(adds, fmt.Sprintf("a%060d", i))
	}
	r.send(1, 0, adds...)
	number, last := 1, ""
	for got := 0; got < held; {
		number++
		reply, err := parseReply(r.send(number, maxWant))
		must(t, err)
		got += len(reply.keys)
		last = reply.keys[len(reply.keys)-1].fence
	}
	r.send(number+1, 1, "azzz")
	r.flags = "knownFence=" + last
	reply, err := parseReply(r.send(number+2, 0))
	if must(t, err); reply.counts.Queued != 1 || reply.counts.Processing != held {
		t.Errorf("%+v, want one key that is queued", reply.counts)
	}
}

// A failure that is sent again counts, although the key was given up once, before its last hand-out.
func TestFailureIsSentAgain(t *testing.T) {
	r := rawSession{t: t, client: startServer(t).client(), s: batchScript, id: "aaaaaaaaaaa", lease: time.Minute}
	fail := func(number int, terminal string) *reply {
		reply, err := parseReply(r.send(number, 1, "ak"))
		must(t, err)
		r.flags = "knownFence=" + reply.keys[0].fence
		reply, err = parseReply(r.send(number+1, 0, "F0000000000000001k0 5 0 "+terminal+" error",
			"D"+reply.keys[0].fence+"k"))
		must(t, err)
		return reply
	}
	if last := fail(1, "true"); !last.opResults[0].givenUp {
		t.Errorf("%+v, want a key that is given up", last)
	}
	if last := fail(3, "false"); last.opResults[0].givenUp || last.counts.Waiting != 1 {
		t.Errorf("%+v, want a key that waits", last)
	}
}

// Who asks whether a key was added again does not wait for an answer when its lease is lost.
func TestLostQuestion(t *testing.T) {
	b, answered := buffer{merging: make(map[addKey]*op)}, false
	ask := aboutHeld(codeAddedAgain, handedOut{encoded: "x", fence: "1"})
	ask.onResult = func(opResult, error) { answered = true }
	b.put(ask)
	if b.dropAboutHeld(); !answered {
		t.Error("no answer")
	}
}

// What a worker has said of a key is a late Done if the lease is lost, and unsettled until the server has it, whether it finishes the
// key or hands it back. A key without a getter goes back too: nobody waits for that.
func TestHandBackIsADone(t *testing.T) {
	q := withoutServer(t)
	s, key := q.shards[0], handedOut{encoded: "x", fence: "1"}
	byWorker := newHandBack(key)
	byWorker.key = "x"
	for _, o := range []*op{aboutHeld(codeDone, key), byWorker, newHandBack(key)} {
		s.buffer.put(o)
	}
	if keys := q.unsettled(); len(keys) != 2 {
		t.Errorf("%q are unsettled, want two", keys)
	}
	if n := s.buffer.dropAboutHeld(); n != 2 || s.buffer.len() != 0 {
		t.Errorf("%d Dones are lost, want two, and %d operations are left", n, s.buffer.len())
	}
}

// A Remove forgets the priority of a queued key, also for an add behind it in the same batch, whose key is handed out at once.
func TestAddBehindRemoveHasNoPriority(t *testing.T) {
	r := rawSession{t: t, client: startServer(t).client(), s: batchScript, id: "aaaaaaaaaaa", lease: time.Minute}
	r.send(1, 0, "P0000000000000001k5 0")
	reply, err := parseReply(r.send(2, 1, "xk", "ak"))
	if must(t, err); reply.keys[0].priority != 0 {
		t.Errorf("k has the priority %d", reply.keys[0].priority)
	}
}

// What ends a hand-out whose state the server has lost leaves nothing of it. A key that was not finished is queued again.
func TestEndOfLostHandOut(t *testing.T) {
	client := startServer(t).client()
	prefix := newKeyNames("test", 0).prefix
	for operation, queued := range map[string]int{"D%sk": 0, "H%sB0000000000000001k": 1, "O%sk": 1, "U%sk": 1} {
		must(t, client.FlushAll(t.Context()).Err())
		r := rawSession{t: t, client: client, s: batchScript, id: "aaaaaaaaaaa", lease: time.Minute}
		hand, err := parseReply(r.send(1, 1, "C0000000000000001kl0 1700000000000000 21 1700000000000000lwhy"))
		must(t, err)
		must(t, client.Del(t.Context(), prefix+"states").Err())
		reply, err := parseReply(r.send(2, 0, fmt.Sprintf(operation, hand.keys[0].fence)))
		if must(t, err); reply.counts.Processing != 0 || reply.counts.Queued != queued {
			t.Errorf("after %s: %+v, want %d queued", operation, reply.counts, queued)
		}
		if notes := client.HKeys(t.Context(), prefix+"notes").Val(); len(notes) > 0 {
			t.Errorf("after %s NOTES has %q", operation, notes)
		}
		if isDone := operation[0] == 'D' || operation[0] == 'H'; (reply.unmatched == 1) != isDone {
			t.Errorf("%d late Dones after %s", reply.unmatched, operation)
		}
	}
}

// A key that is given up without a Done leaves no count of interruptions.
func TestGiveUpForgetsInterruptions(t *testing.T) {
	client := startServer(t).client()
	r := rawSession{t: t, client: client, s: batchScript, id: "aaaaaaaaaaa", lease: time.Minute}
	hand, err := parseReply(r.send(1, 1, "ak"))
	must(t, err)
	hand, err = parseReply(r.send(2, 1, "H"+hand.keys[0].fence+"B0000000000000003k"))
	must(t, err)
	r.send(3, 0, "U"+hand.keys[0].fence+"k")
	if fields := client.HKeys(t.Context(), newKeyNames("test", 0).prefix+"troubles").Val(); len(fields) != 1 {
		t.Errorf("TROUBLES has %q, want the reason alone", fields)
	}
}

// A backlog of adds that a full server refuses costs the batches beside it nothing.
func TestBacklogCostsNothing(t *testing.T) {
	b := buffer{merging: make(map[addKey]*op)}
	for i := range 200_000 {
		b.put(newAdd(fmt.Sprint(i)))
	}
	began := time.Now()
	for range 1000 {
		b.put(aboutHeld(codeDone, handedOut{encoded: "x", fence: "1"}))
		if ops, _ := b.take(0, true); len(ops) != 1 {
			t.Fatalf("%d operations, want one", len(ops))
		}
	}
	// To look at each add takes milliseconds a batch.
	if d := time.Since(began); d > time.Second {
		t.Errorf("1,000 batches took %v", d)
	}
	if ops, _ := b.take(0, false); len(ops) != maxWork || b.len() != 200_000-maxWork ||
		b.executed() != ops[len(ops)-1].seq {
		t.Errorf("%d operations, %d are left, all up to %d are executed", len(ops), b.len(), b.executed())
	}
}

// The buffer keeps the order of all that it was given, also of what comes back.
func TestBuffer(t *testing.T) {
	b := buffer{merging: make(map[addKey]*op)}
	text := func() (all string) {
		ops, arguments := b.take(0, false)
		defer b.putBack(ops)
		return strings.TrimSuffix(fmt.Sprintln(arguments...), "\n")
	}
	add := func(key string) (isNew bool) {
		before := b.newest
		return b.put(newAdd(key)) > before
	}
	add("x")
	b.put(newOp(codeForget, "x"))
	add("y")
	add("x")
	b.put(aboutHeld(codeDone, handedOut{encoded: "z", fence: "7"}))
	for range 2 {
		if got := text(); got != "ax fx ay E7z" {
			t.Errorf("the buffer has %q", got)
		}
	}
	if add("x") {
		t.Error("an add was not merged into the returned one")
	}
	b.put(newOp(codeDiscard, "y"))
	add("x")
	if got := text(); got != "ax fx ay E7z xy ax" || !b.hasAboutHeld() || b.executed() != 0 {
		t.Errorf("the buffer has %q, about held keys %v, executed up to %d", got, b.hasAboutHeld(), b.executed())
	}
	ops, _ := b.take(0, true)
	if len(ops) != 3 || b.executed() != 0 {
		t.Errorf("without adds %d operations, executed up to %d", len(ops), b.executed())
	}
	b.putBack(ops)
	if dones := b.dropAboutHeld(); dones != 1 || b.hasAboutHeld() || text() != "ax fx ay xy ax" {
		t.Errorf("%d Dones were dropped, and %q is left", dones, text())
	}
	if n := len(b.drop()); n != 5 || b.len() != 0 {
		t.Errorf("%d operations were dropped", n)
	}
}

// What a shard does for its getters after the reply to a batch.
func TestGetterAfterReply(t *testing.T) {
	now := time.Now()
	key := []handedOut{{}}
	for name, c := range map[string]struct {
		before fetcherState
		b      batch
		r      reply
		want   fetcherState
	}{
		"all that was wanted": {b: batch{want: 1}, r: reply{keys: key}, want: fetcherState{}},
		"nothing there": {b: batch{want: 2}, r: reply{keys: key},
			want: fetcherState{empty: true, isSleeper: true}},
		"more is queued": {b: batch{want: 2}, r: reply{keys: key, counts: Counts{Queued: 1}},
			want: fetcherState{}},
		"paused": {b: batch{want: 1}, r: reply{counts: Counts{Queued: 9, Paused: true}},
			want: fetcherState{empty: true, isSleeper: true}},
		"woken meanwhile": {before: fetcherState{woken: true}, b: batch{want: 1},
			want: fetcherState{woken: true, isSleeper: true}},
		"the session has quit": {b: batch{want: 1, quits: true}, want: fetcherState{empty: true}},
		"more is due":          {b: batch{want: 1}, r: reply{callIn: 0}, want: fetcherState{isSleeper: true}},
		"due later": {b: batch{want: 1}, r: reply{callIn: time.Hour},
			want: fetcherState{empty: true, isSleeper: true, callAt: now.Add(time.Hour)}},
		"nothing wanted": {before: fetcherState{empty: true, isSleeper: true},
			want: fetcherState{empty: true, isSleeper: true}},
		"nothing wanted, queued": {before: fetcherState{empty: true, isSleeper: true},
			r: reply{counts: Counts{Queued: 1}}, want: fetcherState{isSleeper: true}},
		"no getter any more": {before: fetcherState{empty: true, isSleeper: true}, b: batch{leavesSleepers: true},
			want: fetcherState{}},
	} {
		if c.r.callIn == 0 && name != "more is due" {
			c.r.callIn = -1
		}
		got := c.before.next(&c.b, &c.r, now)
		got.lastFetch = time.Time{}
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// The scripts and this package know the same operations, by the same names, and execute each.
func TestCodes(t *testing.T) {
	source, err := os.ReadFile("protocol.go")
	must(t, err)
	operations := lua("operations")
	adds := strings.Split(regexp.MustCompile(`local ADDS = ([A-Z_. ]+) --`).FindStringSubmatch(operations)[1],
		" .. ")
	theirs := make(map[string]string) // name -> letter
	for _, m := range regexp.MustCompile(`(?m)^local ([A-Z_]+) = '(\w)'`).FindAllStringSubmatch(operations, -1) {
		theirs[m[1]] = m[2]
	}
	ours := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^\tcode(\w+)\s+code = '(.)'`).FindAllStringSubmatch(string(source),
		-1) {
		name := strings.ToUpper(regexp.MustCompile(`([a-z])([A-Z])`).ReplaceAllString(m[1], "${1}_$2"))
		if theirs[name] != m[2] {
			t.Errorf("%s is %q here and %q in operations.lua", name, m[2], theirs[name])
		}
		if ours[m[2]] {
			t.Errorf("%s is there twice", m[2])
		}
		ours[m[2]] = true
		if c := code(m[2][0]); c.isAdd() != slices.Contains(adds, name) {
			t.Errorf("is %s an add? %v", name, c.isAdd())
		}
		if !regexp.MustCompile(`code == ` + name + `\b`).MatchString(operations) {
			t.Errorf("operations.lua does not execute %s", name)
		}
	}
	if len(ours) != len(theirs) {
		t.Errorf("%d codes in protocol.go, %d in operations.lua", len(ours), len(theirs))
	}
}

type badBounds struct{ watcher }

func (badBounds) HistogramBounds() []float64 { return []float64{2, 1} }

// New returns an error for what it cannot use, and no queue.
func TestNewRefuses(t *testing.T) {
	client := startServer(t).client()
	for _, without := range []redis.UniversalClient{nil, (*redis.Client)(nil), (*redis.ClusterClient)(nil)} {
		if q, err := New(context.Background(), without, Config[string]{Name: "test"}); q != nil || err == nil {
			t.Errorf("New() without a client = %v, %v", q, err)
		}
		if q, err := Attach(context.Background(), without, "test"); q != nil || err == nil {
			t.Errorf("Attach() without a client = %v, %v", q, err)
		}
	}
	if q, err := New(context.Background(), client, Config[string]{Name: "test",
		MetricsProvider: badBounds{}}); q != nil || err == nil {
		t.Errorf("New() with bounds that do not ascend = %v, %v", q, err)
	}
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": client.Options().Addr}})
	defer ring.Close()
	if q, err := New(t.Context(), ring, Config[string]{Name: "test"}); q != nil || err == nil || !strings.Contains(err.Error(), "Ring") {
		t.Errorf("New() over a Ring = %v, %v", q, err)
	}
	forKey := workqueue.BackoffConfig[string]{
		ForKey: func(string) (base, longest time.Duration) { return 0, 0 }, // The server cannot call it.
	}
	for i, config := range []Config[string]{
		{}, {Name: "{"}, {Name: "}"}, {Name: "test", Lease: time.Second - 1}, {Name: "test", Lease: -1},
		{Name: "test", Shards: -1}, {Name: "test", Shards: maxShards + 1}, {Name: "test", Backoff: forKey},
	} {
		if q, err := New(context.Background(), client, config); q != nil || err == nil ||
			errors.Is(err, ErrIncompatible) {
			t.Errorf("New() with config %d returns a queue: %v, %v", i, q != nil, err)
		}
	}
	config := Config[string]{Name: "test", Lease: time.Second, Shards: maxShards}
	must(t, config.complete())
}

// The server has executed a Discard, and the session has ended before its answer came. It is not sent again:
// another replica may have added the key since.
func TestDiscardWhoseAnswerIsLost(t *testing.T) {
	q := newTestQueue(t, startServer(t).client(), Config[string]{})
	shard := q.shards[0]
	var answers []error
	ops := []*op{newOp(codeDiscard, "a"), newOp(codeForget, "b")}
	ops[0].onResult = func(_ opResult, err error) { answers = append(answers, err) }
	q.mu.Lock()
	shard.senderRuns = true // Nothing is sent.
	q.mu.Unlock()
	shard.apply(&batch{ops: slices.Clone(ops)}, &reply{status: "GONE"})
	q.mu.Lock()
	defer q.mu.Unlock()
	if others := shard.buffer.others; len(answers) != 1 || answers[0] != errAnswerLost || len(others) != 0 {
		t.Errorf("answers %v, sent again %v", answers, others)
	}
	shard.senderRuns = false
	shard.buffer.drop()
}

// Queues are made with a client that is in use: the race detector must not see what go-redis does meanwhile.
func TestClientInUse(t *testing.T) {
	s := startServer(t)
	client := newClient(t, &redis.Options{Addr: s.addr, PoolSize: 20})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { must(t, client.Ping(context.Background()).Err()) })
		wg.Go(func() { must(t, ownConnections(client, 1).Close()) })
	}
	wg.Wait()
}

// Whether a server is still full is tried with a few adds, however many wait: the others would only be sent
// and put back. A batch without adds is as large as ever.
func TestBatchOnAFullServer(t *testing.T) {
	q := withoutServer(t)
	s := q.shards[0]
	s.senderRuns = true // Nothing is sent.
	for i := range 1000 {
		q.Add(fmt.Sprint(i))
	}
	s.server.fullSince = time.Now()
	if n := len(s.nextBatch().ops); n == 0 || n > 20 {
		t.Errorf("%d adds in a batch", n)
	}
	s.buffer.drop()
	for range 200 {
		s.buffer.put(newOp(codeForget, "x"))
	}
	if n := len(s.nextBatch().ops); n != 200 {
		t.Errorf("%d of 200 operations that are no adds in a batch", n)
	}
}

// A blocking read takes no connection that other calls need.
func TestWaitingTakesNoConnection(t *testing.T) {
	s := startServer(t)
	client := newClient(t, &redis.Options{Addr: s.addr, PoolSize: 1, ReadTimeout: time.Minute})
	q := newTestQueue(t, client, Config[string]{PollInterval: 5 * time.Second})
	go q.Get() // which reads
	waitForGetters(t, q, 1)
	for range 5 {
		if _, err := (&Admin{queue: q}).Counts(within(t, 3*time.Second)); err != nil {
			t.Error(err)
		}
	}
}
