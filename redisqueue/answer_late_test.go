package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
	"github.com/redis/go-redis/v9"
)

// lateAnswers are what a handler may return, by name. The pool's MaxRetries is 1, and the keys of "beyond"
// have failed before.
var lateAnswers = map[string]func(context.Context) error{
	"nil":           func(context.Context) error { return nil },
	"requeue after": func(context.Context) error { return worker.RequeueAfter(time.Millisecond) },
	"error":         func(context.Context) error { return errBroken },
	"its context's": func(ctx context.Context) error { return errors.Join(ctx.Err(), context.Canceled) },
	"retry after":   func(context.Context) error { return worker.RetryAfter(errBroken, time.Millisecond) },
	"terminal":      func(context.Context) error { return worker.Terminal(errBroken) },
	"beyond":        func(context.Context) error { return errBroken },
}

// otherHolders are what became of the key on the replica that has got it meanwhile, by name.
var otherHolders = map[string]func(t *testing.T, q *Queue[string], key string){
	"succeeded": func(_ *testing.T, q *Queue[string], key string) { q.Succeed(key); q.Done(key) },
	"failed": func(t *testing.T, q *Queue[string], key string) {
		mustFail(t, q, key, workqueue.Failure{Err: errBroken, AtLeast: time.Hour})
		q.Done(key)
	},
	"gave up": func(t *testing.T, q *Queue[string], key string) {
		mustFail(t, q, key, workqueue.Failure{Err: errors.New("the other's"), Terminal: true})
		q.Done(key)
	},
	"still runs": func(*testing.T, *Queue[string], string) {},
}

func mustFail(t testing.TB, q *Queue[string], key string, f workqueue.Failure) {
	t.Helper()
	eventually(t, time.Minute, func() error { _, err := q.Fail(within(t, time.Minute), key, f); return err })
}

// No answer of a key's former holder changes anything on the server: the whole matrix of
// what it says, what the other replica has done with the key, and whether the lease ended before that was
// said, or the answer was sent before and arrives after.
func TestLateAnswers(t *testing.T) {
	for _, arrivesLate := range []bool{false, true} {
		for _, isTaken := range []bool{true, false} {
			t.Run(fmt.Sprintf("sent in time=%v taken=%v", arrivesLate, isTaken), func(t *testing.T) {
				t.Parallel()
				testLateAnswers(t, arrivesLate, isTaken)
			})
		}
	}
}

func testLateAnswers(t *testing.T, arrivesLate, isTaken bool) {
	s := startServer(t)
	wire := startProxy(t, s.addr, func() int { return -1 })
	config := Config[string]{Lease: 4 * time.Second}
	cutOff := newTestQueue(t, newClient(t, &redis.Options{Addr: wire.addr(), MaxRetries: -1}), config)
	other := newTestQueue(t, s.client(), config)
	becomes := map[string]func(*testing.T, *Queue[string], string){"nobody had it": nil}
	if isTaken {
		becomes = otherHolders
	}
	var keys []string
	for name := range lateAnswers {
		for end := range becomes {
			keys = append(keys, name+"/"+end)
		}
	}
	for _, key := range keys {
		if strings.HasPrefix(key, "beyond") {
			addAndGet(t, other, key)
			mustFail(t, other, key, workqueue.Failure{Err: errBroken, AtLeast: 500 * time.Millisecond})
			other.Done(key)
		}
	}
	for _, key := range keys {
		if !strings.HasPrefix(key, "beyond") {
			other.Add(key)
		}
	}

	started, say := make(chan string, len(keys)), make(chan struct{})
	ctx, endPool := context.WithCancel(context.Background())
	defer endPool()
	pool := worker.New(cutOff, func(ctx context.Context, key string) error {
		started <- key
		<-say
		name, _, _ := strings.Cut(key, "/")
		return lateAnswers[name](ctx)
	}, worker.Options[string]{Workers: len(keys), MaxRetries: 1, Logger: discard})
	poolEnded := make(chan error, 1)
	go func() { poolEnded <- pool.Run(ctx) }()
	for range keys {
		<-started
	}
	wire.gate.Lock() // What it sends from now on arrives when this is unlocked.
	if arrivesLate {
		close(say)
		waitUntil(t, func() bool { return held(cutOff) == 0 })
	}
	if isTaken {
		for range keys {
			key, err := other.GetContext(within(t, time.Minute))
			must(t, err)
			_, end, _ := strings.Cut(key, "/")
			becomes[end](t, other, key)
		}
	} else {
		waitUntil(t, func() bool { return freshStats(t, other).Processing == 0 })
	}
	flush(t, other)
	lookUp := func() map[string]KeyInfo[string] {
		found := make(map[string]KeyInfo[string])
		for _, key := range keys {
			k, err := other.key(within(t, time.Minute), key)
			must(t, err)
			found[key] = k
		}
		return found
	}
	waitUntil(t, func() bool { return held(cutOff) == 0 || shared(cutOff).LostLeases == uint64(len(keys)) })
	before := lookUp()
	endPool()
	pool.Stop(worker.Running) // From here on no worker begins a Get: cutOff would get a key again, in a new session.
	waitForGetters(t, cutOff, 0)
	if !arrivesLate {
		close(say)
	}
	wire.gate.Unlock()
	must(t, <-poolEnded)
	must(t, cutOff.ShutDownContext(within(t, time.Minute)))
	for key, after := range lookUp() {
		if !reflect.DeepEqual(after, before[key]) {
			t.Errorf("%s: a late answer has made\n%+v of\n%+v", key, after, before[key])
		}
	}
	for _, key := range keys {
		if strings.HasSuffix(key, "still runs") {
			wantHeld(t, other, key)
			other.Done(key)
		}
	}
	flush(t, other)
	must(t, checkInvariants(s.client(), other))
}
