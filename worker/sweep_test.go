package worker_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/worker"
)

// serverQueue asks a server, which may be down, for Failures and SnapshotKey. Like redisqueue's it waits for an
// answer for a second, or refuses at once, and returns zero then.
type serverQueue struct {
	extended
	down    *bool
	refuses bool
}

func (q serverQueue) Failures(key string) workqueue.Failures {
	if *q.down {
		q.waitForServer()
		return workqueue.Failures{}
	}
	return q.extended.Failures(key)
}

func (q serverQueue) SnapshotKey(key string) (workqueue.KeySnapshot[string], bool) {
	if *q.down {
		q.waitForServer()
		return workqueue.KeySnapshot[string]{Key: key}, false
	}
	return q.extended.SnapshotKey(key)
}

func (q serverQueue) waitForServer() {
	if !q.refuses {
		time.Sleep(time.Second)
	}
}

// Stats reports an outage only if the server refuses: it takes longer to notice that a server is silent.
func (q serverQueue) Stats() workqueue.Stats {
	s := q.extended.Stats()
	s.Shared = &leasing.Stats{Outage: *q.down && q.refuses}
	return s
}

// A queue that cannot reach its server has not forgotten its keys. Snapshot does not ask it about each of
// them, and SnapshotKey does not wait for long.
func TestFailingKeysOverAServerThatIsSilent(t *testing.T) { testFailingKeysWhileDown(t, false) }

func TestFailingKeysOverAServerThatRefuses(t *testing.T) { testFailingKeysWhileDown(t, true) }

func testFailingKeysWhileDown(t *testing.T, refuses bool) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		var down bool
		q := serverQueue{limitedQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Hour,
			time.Hour)), &down, refuses}
		addNumbers(q, n)
		p := worker.New(q, broken, options{})
		r := run(t, p)
		down = true
		if s := p.Snapshot(n); len(s.Failing) != n || time.Since(r.begun) > 2*time.Second {
			t.Errorf("%d keys fail, after %v", len(s.Failing), time.Since(r.begun))
		}
		begun := time.Now()
		if got := p.SnapshotKey("0"); got.Failing == nil || len(got.FailedCalls) != 1 ||
			time.Since(begun) > 1100*time.Millisecond {
			t.Errorf("%+v after %v", got, time.Since(begun))
		}
		r.after(10 * time.Minute) // Several sweeps.
		down = false
		q.Forget("0")
		if s := p.Snapshot(n); len(s.Failing) != n-1 || s.Stats.Failing != n-1 {
			t.Errorf("%d keys fail, or %d", len(s.Failing), s.Stats.Failing)
		}
		if err := r.end(); err != nil || len(p.Left().Failing) != n-1 {
			t.Errorf("Run returned %v, %d keys are left failing", err, len(p.Left().Failing))
		}
	})
}

// slowServer takes a while for each answer.
type slowServer struct {
	extended
	takes  atomic.Int64
	asked  atomic.Int64 // how often
	asking atomic.Int64 // how many wait for an answer
}

func newSlowServer(takes time.Duration) *slowServer {
	q := &slowServer{extended: limitedQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](
		time.Hour, time.Hour))}
	q.takes.Store(int64(takes))
	return q
}

func (q *slowServer) Failures(key string) workqueue.Failures {
	q.asked.Add(1)
	q.asking.Add(1)
	defer q.asking.Add(-1)
	time.Sleep(time.Duration(q.takes.Load()))
	return q.extended.Failures(key)
}

// However slowly the queue answers, and however many keys still fail, those that somebody else has handled
// are found in the end.
func TestSweepReachesAllKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const failing, handled = 250, 100
		q := newSlowServer(10 * time.Millisecond)
		addNumbers(q, failing+handled)
		p := worker.New(q, broken, options{})
		r := run(t, p)
		r.after(30 * time.Second)
		for i := range handled {
			q.Forget(fmt.Sprint(failing + i))
		}
		r.after(4*time.Minute + 2*time.Second) // A sweep takes a second, for 100 answers.
		if n := p.Stats().Failing; n != failing {
			t.Errorf("%d keys fail, want %d", n, failing)
		}
		_ = r.end()
	})
}

// A server is asked for a second in a minute, however many keys fail.
func TestSweepIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newSlowServer(100 * time.Millisecond)
		addNumbers(q, 100)
		r := run(t, worker.New(q, broken, options{}))
		r.after(30 * time.Second)
		q.asked.Store(0)
		r.after(10*time.Minute + 30*time.Second)
		if n := q.asked.Load(); n < 10*9 || n > 10*11 {
			t.Errorf("it was asked %d times in ten minutes", n)
		}
		_ = r.end()
	})
}

// Tracker ask no more once the queue is shut down, and a failed call asks once.
func TestTrackerAskNoQueueThatIsShutDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newSlowServer(time.Millisecond)
		tracker := worker.NewTracker(q, options{})
		for range 2 { // From the second failure on the limiter is known to count.
			q.Add("a")
			q.Get()
			e := tracker.Begin(t.Context(), "a")
			e.End(errBroken)
			e.Done(func() { q.Done("a") })
		}
		for _, want := range []int64{2, 3, 3} { // The second one is of a sweep.
			if n := q.asked.Load(); n != want {
				t.Errorf("it was asked %d times, want %d", n, want)
			}
			if want == 3 {
				q.ShutDown()
			}
			time.Sleep(2 * time.Minute)
			tracker.Stats() // Which looks, in the background.
			time.Sleep(time.Second)
		}
	})
}

// The end of a pool does not wait for answers about failing keys, but Run does.
func TestEndDuringSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newSlowServer(10 * time.Millisecond)
		q.Add("fails")
		var ended time.Duration
		start := time.Now()
		r := run(t, worker.New(q, func(ctx context.Context, key string) error {
			if key == "waits" {
				<-ctx.Done()
				ended = time.Since(start)
			}
			return errBroken
		}, options{Drain: worker.Nothing}))
		q.Add("waits")
		r.after(59 * time.Second)
		q.takes.Store(int64(time.Second))
		at := time.Minute + time.Second/2 // The sweep began half a second ago.
		r.after(at)
		q.takes.Store(0) // All other answers come at once.
		_ = r.end()
		if ended != at || q.asking.Load() != 0 {
			t.Errorf("the handler's context has ended after %v, want %v; %d asks outlive Run", ended, at,
				q.asking.Load())
		}
	})
}

// Forget while the handler runs counts: this failure is the first one.
func TestForgetDuringACall(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		var noted []int
		answer := attempts(&noted, errBroken, errBroken, errBroken, nil)
		var p *worker.Pool[string]
		var last outcome
		p = worker.New(q, func(ctx context.Context, key string) error {
			if len(noted) == 2 {
				p.Forget(key)
			}
			return answer(ctx, key)
		}, options{MaxRetries: 2, OnFinish: func(_ context.Context, r outcome) {
			if len(noted) == 3 {
				last = r
			}
		}})
		q.Add("a")
		r := run(t, p)
		r.after(time.Minute)
		equal(t, "attempts", noted, 1, 2, 3, 2)
		if last.Attempt != 1 || last.Next != worker.NextRetry {
			t.Errorf("%+v", last)
		}
		r.endCleanly()
	})
}

// A limiter that forgets a key by itself during a long call does not make its failure the first one again.
func TestLimiterForgetsDuringACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := limitedQueue(workqueue.NewTypedItemBackoffRateLimiter(
			workqueue.BackoffConfig[string]{Base: time.Second, Max: time.Minute}))
		q.Add("a")
		var got []int
		r := run(t, worker.New(q, func(context.Context, string) error {
			time.Sleep(time.Hour)
			return errBroken
		}, options{MaxRetries: 2, OnFinish: func(_ context.Context, r outcome) { got = append(got, r.Attempt) }}))
		r.after(5 * time.Hour)
		equal(t, "attempts", got, 1, 2, 3)
		r.endCleanly()
	})
}

// forgetsAtShutdown is a queue that knows no failures once it is shut down, as redisqueue's.
type forgetsAtShutdown struct{ extended }

func (q forgetsAtShutdown) Failures(key string) workqueue.Failures {
	if q.ShuttingDown() {
		return workqueue.Failures{}
	}
	return q.extended.Failures(key)
}

// A look at the failing keys after the shutdown does not take them from what is left.
func TestSnapshotAfterShutdownKeepsFailing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := forgetsAtShutdown{newQueue()}
		p := worker.New(q, acts, options{Drain: worker.All})
		addAll(q, "fails 10s")
		q.Add("fails")
		r := run(t, p)
		r.after(time.Second / 2)
		r.cancel()
		synctest.Wait()
		if s := p.Snapshot(9); len(s.Failing) != 1 {
			t.Errorf("%+v", s.Failing)
		}
		r.leaves(<-r.result, "1 failed and not retried: fails")
	})
}
