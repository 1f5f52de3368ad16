package redisqueue

import (
	"context"
	"errors"
	"reflect"
	"syscall"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/redis/go-redis/v9"
)

// mortal returns a queue whose process dies when kill is called: the server hears no more of it.
func mortal(t *testing.T, s *server, config Config[string]) (q *Queue[string], kill func()) {
	wire := startProxy(t, s.addr, func() int { return -1 })
	q = newTestQueue(t, newClient(t, &redis.Options{Addr: wire.addr(), MaxRetries: -1}), config)
	return q, func() {
		wire.close()
		q.abandonForTest()
	}
}

// A process that ends between an answer and the Done that follows: the key is released as the answer says,
// and not handed out again.
func TestAnsweredHandOut(t *testing.T) {
	fail := func(f workqueue.Failure) func(*Queue[string]) {
		return func(q *Queue[string]) {
			f.Err = errBroken
			_, _ = q.Fail(context.Background(), "x", f)
		}
	}
	later := workqueue.Failure{AtLeast: time.Hour}
	cases := map[string]struct {
		answer                   func(q *Queue[string])
		waiting, givenUp, comes  bool
		failures, failuresBefore int
	}{
		"succeeded":            {answer: func(q *Queue[string]) { q.Succeed("x") }},
		"failed":               {answer: fail(later), waiting: true, failures: 1},
		"failed again":         {answer: fail(later), waiting: true, failures: 3, failuresBefore: 2},
		"terminal":             {answer: fail(workqueue.Failure{Terminal: true}), givenUp: true},
		"beyond":               {answer: fail(workqueue.Failure{MaxRetries: 2}), givenUp: true, failuresBefore: 2},
		"asked for later":      {answer: func(q *Queue[string]) { q.Requeue("x", 0, time.Hour) }, waiting: true},
		"asked for at once":    {answer: func(q *Queue[string]) { q.Requeue("x", 0, 0) }, comes: true},
		"added again, then ok": {answer: func(q *Queue[string]) { q.Add("x"); q.Succeed("x") }, comes: true},
		"ok, then added again": {answer: func(q *Queue[string]) { q.Succeed("x"); q.Add("x") }, comes: true},
		"nothing":              {answer: func(q *Queue[string]) {}, comes: true},
		"forgotten by a user":  {answer: func(q *Queue[string]) { q.Forget("x") }, comes: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			config := Config[string]{Lease: time.Second, Backoff: noBackoff}
			q, kill := mortal(t, s, config)
			other := newTestQueue(t, s.client(), config)
			addAndGet(t, q, "x")
			for range c.failuresBefore {
				mustFail(t, q, "x", workqueue.Failure{Err: errBroken})
				q.Done("x")
				mustGet(t, q, "x")
			}
			c.answer(q)
			flush(t, q)
			kill()
			waitUntil(t, func() bool {
				st := freshStats(t, other)
				return st.Processing == 0
			})
			k, err := other.key(context.Background(), "x")
			must(t, err)
			isQueued, waits := k.State == workqueue.KeyQueued, k.State == workqueue.KeyWaiting
			if isQueued != c.comes || waits != c.waiting || (k.GivenUp != nil) != c.givenUp ||
				k.Requeues != c.failures {
				t.Errorf("the key became %+v", k)
			}
			if isLoss := name == "nothing" || name == "forgotten by a user"; isLoss != (k.LostLeases == 1) {
				t.Errorf("%d lost leases are counted", k.LostLeases)
			}
			if c.givenUp && len(other.GivenUpKeys(2)) != 1 {
				t.Error("the key is not in the list of those that were given up")
			}
			must(t, checkInvariants(s.client(), other))
		})
	}
}

// What was said while the server was away counts when it is back, also after an outage longer than the
// lease: a key that was given up stays given up, and a key that has succeeded is not queued again. A key whose
// call was still running is handed out with the failures that it had.
func TestAnswersDuringOutage(t *testing.T) {
	s := startServer(t)
	q := newTestQueue(t, s.client(), Config[string]{Lease: 3 * time.Second, Backoff: noBackoff})
	for _, key := range []string{"given up", "succeeded", "failed", "interrupted"} {
		addAndGet(t, q, key)
		mustFail(t, q, key, workqueue.Failure{Err: errBroken})
		q.Done(key)
		mustGet(t, q, key)
	}
	leased, release := q.Lease(context.Background(), "interrupted")
	defer release()
	s.signal(syscall.SIGSTOP)
	retry, err := q.Fail(context.Background(), "given up", workqueue.Failure{Err: errBroken, MaxRetries: 1})
	if !retry.GivenUp || retry.Attempt != 2 || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Fail() = %+v, %v", retry, err)
	}
	q.Done("given up")
	q.Succeed("succeeded")
	q.Done("succeeded")
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_, _ = q.Fail(ended, "failed", workqueue.Failure{Err: errBroken, AtLeast: time.Hour})
	q.Done("failed")
	<-leased.Done()
	wantErr(t, context.Cause(leased), leasing.ErrLost)
	retry, err = q.Fail(context.Background(), "interrupted", workqueue.Failure{Err: errBroken, MaxRetries: 1})
	if retry.GivenUp || err != leasing.ErrLost {
		t.Errorf("Fail() after the lease = %+v, %v", retry, err)
	}
	q.Done("interrupted")
	s.signal(syscall.SIGCONT)
	mustGet(t, q, "interrupted")
	if n := q.Failures("interrupted").Count; n != 1 {
		t.Errorf("%d failures of the key whose lease was lost, want the one before", n)
	}
	q.Done("interrupted")
	flush(t, q)
	if given := q.GivenUpKeys(5); len(given) != 1 || given[0].Key != "given up" || given[0].Attempts != 2 {
		t.Errorf("given up are %+v", given)
	}
	if st := freshStats(t, q); st.Queued+st.Processing != 0 || st.Waiting != 1 {
		t.Errorf("%+v, want the failed key that waits", st)
	}
	wantFailures(t, q, "failed", 2)
}

// A full server executes what a worker says of its key, in that order: if the process ends after the Done,
// the key is not lost.
func TestAnswersOnFullServer(t *testing.T) {
	says := map[string]func(q *Queue[string], key string){
		"fail": func(q *Queue[string], key string) {
			_, _ = q.Fail(context.Background(), key, workqueue.Failure{Err: errBroken})
		},
		"requeue":           func(q *Queue[string], key string) { q.Requeue(key, 1, time.Millisecond) },
		"requeue at once":   func(q *Queue[string], key string) { q.Requeue(key, 0, 0) },
		"hand back":         func(q *Queue[string], key string) { q.HandBack(key, 0) },
		"AddAfter":          func(q *Queue[string], key string) { q.AddAfter(key, time.Millisecond) },
		"AddAfter at once":  func(q *Queue[string], key string) { q.AddAfter(key, 0) },
		"AddWithPriority":   func(q *Queue[string], key string) { q.AddWithPriority(key, 1, time.Millisecond) },
		"AddRateLimited":    func(q *Queue[string], key string) { q.AddRateLimited(key) },
		"nothing before it": func(q *Queue[string], key string) {},
	}
	s := startServer(t)
	q, kill := mortal(t, s, Config[string]{Lease: 6 * time.Second, Backoff: noBackoff})
	for key := range says {
		must(t, q.AddContext(within(t, time.Minute), key))
		mustGet(t, q, key)
	}
	s.fill()
	q.Add("waits")
	waitUntil(t, func() bool { return shared(q).Errors > 0 })
	for key, say := range says {
		say(q, key)
		q.Done(key)
	}
	waitUntil(t, func() bool { // Only the add is left.
		q.mu.Lock()
		defer q.mu.Unlock()
		b := q.shards[0].underWay
		return q.shards[0].buffer.len() == 1 && (b == nil || len(b.ops) == 0)
	})
	kill()
	s.limitMemory("0")
	other := newTestQueue(t, s.client(), Config[string]{Backoff: noBackoff})
	if st := freshStats(t, other); st.Processing != 0 {
		t.Errorf("the server does not know of %d Dones", st.Processing)
	}
	delete(says, "nothing before it")
	var left []string
	for key := range says {
		left = append(left, key)
	}
	getEach(t, other, left...)
	getNothing(t, other, 100*time.Millisecond)
}

// A key that is handed back comes as it came: before all others, with its priority, causes and failures.
func TestHandBack(t *testing.T) {
	_, q, other := twoReplicas(t, Config[string]{Backoff: noBackoff})
	q.AddCause("x", workqueue.Cause{Reason: "because"})
	mustGet(t, q, "x")
	mustFail(t, q, "x", workqueue.Failure{Err: errBroken})
	q.AddCause("x", workqueue.Cause{Reason: "later"})
	q.Done("x")
	q.AddWithPriority("x", 3, 0)
	flush(t, q)
	mustGet(t, q, "x")
	other.AddWithPriority("first", 9, 0)
	flush(t, other)
	q.HandBack("x", 4)
	q.Done("x")
	flush(t, q)
	h, err := other.Next(within(t, time.Minute))
	if err != nil || h.Key != "x" || h.AtOnce != 4 {
		t.Errorf("Next() = %+v, %v", h, err)
	}
	n := other.Failures("x").Count
	causes := other.Causes("x").Last
	if n != 1 || other.PriorityOf("x") != 3 || len(causes) != 1 || causes[0].Reason != "later" {
		t.Errorf("%d failures, priority %d, causes %+v", n, other.PriorityOf("x"), causes)
	}
	other.Done("x")
	mustGet(t, other, "first")
	other.HandBack("unknown", 0)
	other.Done("first")
	wantNoKeys(t, other)
}

// What is said of a key whose lease is lost is not sent, and adds are. A late Fail says so.
func TestAnswerWithoutLease(t *testing.T) {
	_, f, q, other := oneFaulty(t, Config[string]{Lease: time.Second, Backoff: noBackoff})
	addAndGet(t, q, "x")
	leased, release := q.Lease(context.Background(), "x")
	defer release()
	f.down.Store(true)
	<-leased.Done()
	f.down.Store(false)
	mustGet(t, other, "x")
	mustFail(t, other, "x", workqueue.Failure{Err: errBroken})
	_, err := q.Fail(context.Background(), "x", workqueue.Failure{Terminal: true})
	wantErr(t, err, leasing.ErrLost)
	q.Forget("x")
	q.Succeed("x")
	q.Requeue("x", 0, 0)
	q.HandBack("x", 0)
	q.Done("x")
	flush(t, q)
	k, err := other.key(context.Background(), "x")
	if must(t, err); k.Again || k.GivenUp != nil || k.Requeues != 1 {
		t.Errorf("the key became %+v", k)
	}
	q.Add("x") // an event
	flush(t, q)
	if k, err = other.key(context.Background(), "x"); err != nil || !k.Again {
		t.Errorf("the event's add is lost: %+v, %v", k, err)
	}
	other.Done("x")
	getEach(t, other, "x")
}

// An abandoned session quits only when all is sent that was said while its lease lived, however many batches
// that takes.
func TestAnswersBeforeQuit(t *testing.T) {
	q := withoutServer(t)
	s := q.shards[0]
	s.senderRuns = true // Nothing is sent.
	s.session = session{id: newSession(), batchSeq: 1, abandoned: true}
	for range maxWork + 1 {
		s.buffer.put(aboutHeld(codeDone, handedOut{encoded: "x", fence: "1234567890123456"}))
	}
	for i, quits := range []bool{false, true} {
		b := s.nextBatch()
		if b == nil || b.quits != quits {
			t.Fatalf("batch %d is %+v", i, b)
		}
		s.apply(b, &reply{status: "OK", callIn: -1})
	}
}

// A give-up takes back the retry that waits, with its priority.
func TestGiveUpTakesRetryBack(t *testing.T) {
	s, q, _ := twoReplicas(t, Config[string]{})
	q.AddWithPriority("x", 3, 0)
	mustGet(t, q, "x")
	mustFail(t, q, "x", workqueue.Failure{Err: errBroken, AtLeast: time.Hour})
	q.Done("x")
	addAndGet(t, q, "x")
	giveUp(q, "x", errBroken)
	q.Done("x")
	flush(t, q)
	wantNoKeys(t, q)
	must(t, checkInvariants(s.client(), q))
}

// The server does nothing that carries the fence of a hand-out which is over, also for a session that lives.
func TestStaleFence(t *testing.T) {
	s := startServer(t)
	q := newTestQueue(t, s.client(), Config[string]{})
	addAndGet(t, q, "x")
	q.mu.Lock()
	stale := q.mu.held["x"].fence
	q.mu.Unlock()
	q.Done("x")
	addAndGet(t, q, "x")
	mustFail(t, q, "x", workqueue.Failure{Err: errBroken, AtLeast: time.Hour})
	flush(t, q)
	before, err := q.key(context.Background(), "x")
	must(t, err)
	shard, result := q.shards[0], make(chan opResult, 1)
	q.mu.Lock()
	fail := q.newFailLocked("x", "x", newFailure(workqueue.Failure{Terminal: true}), nil)
	fail.onResult = func(a opResult, _ error) { result <- a }
	for _, o := range []*op{
		newOp(codeForget, "x"), newOp(codeSucceed, "x"), fail, newOp(codeAddAfter, "0000000000000000x"),
		newAddLater("x", 5, 0), newAddLater("x", 5, time.Millisecond),
	} {
		shard.putLocked(o.byHolder(stale))
	}
	q.mu.Unlock()
	if a := <-result; !a.late {
		t.Errorf("the server answers %+v", a)
	}
	flush(t, q)
	if after, err := q.key(context.Background(), "x"); err != nil || !reflect.DeepEqual(before, after) {
		t.Errorf("%v: %+v became %+v", err, before, after)
	}
	q.Done("x")
}
