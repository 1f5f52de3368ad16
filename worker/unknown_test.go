package worker_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// serverQueue asks a server, which may be down, for NumRequeues.
type serverQueue struct {
	stringQueue
	down *bool
}

func (q serverQueue) NumRequeues(key string) int {
	n, _ := q.NumRequeuesContext(context.Background(), key)
	return n
}

func (q serverQueue) NumRequeuesContext(ctx context.Context, key string) (int, error) {
	if !*q.down {
		return q.stringQueue.NumRequeues(key), nil
	}
	select {
	case <-time.After(time.Second):
		return 0, errors.New("no answer")
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func newServerQueue(down *bool) serverQueue {
	return serverQueue{workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Hour, time.Hour)), down}
}

// A queue that cannot reach its server has not forgotten its keys. Snapshot does not ask it about each of them.
func TestFailingKeysOfAQueueThatDoesNotKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		var down bool
		q := newServerQueue(&down)
		for i := range n {
			q.Add(fmt.Sprint(i))
		}
		p := worker.New(q, func(context.Context, string) error { return errBroken }, options{})
		r := run(t, p)
		down = true
		begun := time.Now()
		if s := p.Snapshot(n); len(s.Failing) != n {
			t.Errorf("%d keys fail", len(s.Failing))
		}
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("Snapshot took %v", took)
		}
		r.after(10 * time.Minute) // Several sweeps.
		down = false
		q.Forget("0")
		if s := p.Snapshot(n); len(s.Failing) != n-1 || s.Stats.Failing != n-1 {
			t.Errorf("%d keys fail, or %d", len(s.Failing), s.Stats.Failing)
		}
		if e := left(t, r.end()); len(e.Failing) != n-1 {
			t.Errorf("%d keys are left failing", len(e.Failing))
		}
	})
}

// An attempt is not the first one again because the server does not answer.
func TestAttemptsOfAQueueThatDoesNotKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down bool
		q := newServerQueue(&down)
		q.Add("a")
		var attempts []int
		p := worker.New(q, func(ctx context.Context, key string) error {
			attempts = append(attempts, worker.Attempt(ctx))
			return errBroken
		}, options{MaxRetries: 2})
		r := run(t, p)
		down = true
		for range 2 {
			q.Add("a")
			time.Sleep(time.Minute)
		}
		if dropped := p.Snapshot(10).Dropped; !slices.Equal(attempts, []int{1, 2, 3}) || len(dropped) != 1 {
			t.Errorf("attempts: %v, dropped: %v", attempts, dropped)
		}
		r.endCleanly()
	})
}

// A key that its handler wants again, and that the queue does not take back any more, is left, but has not failed.
func TestRefusedKeysHaveNotFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.Add("refused")
		q.Add("sleeps")
		p := worker.New(q, func(_ context.Context, key string) error {
			time.Sleep(time.Second)
			if key == "refused" {
				return worker.RequeueAfter(0)
			}
			return nil
		}, options{Drain: worker.All})
		r := run(t, p)
		r.cancel()
		r.after(time.Second)
		if s := p.Stats(); s.Requeued != 1 || s.Failing != 0 {
			t.Errorf("Stats: %+v", s)
		}
		r.after(2 * time.Second)
		if e := left(t, r.returned()); !slices.Equal(e.NotStarted, []string{"refused"}) || p.Stats().Failing != 0 {
			t.Errorf("left: %+v, failing: %d", e, p.Stats().Failing)
		}
	})
}

// asked is a queue that counts what Snapshot asks it, and takes a while for each answer.
type asked struct {
	extended
	answer            time.Duration
	keys, limit, most int
}

func (q *asked) Snapshot(limit int) workqueue.Snapshot[string] {
	q.limit = max(q.limit, limit)
	return q.extended.Snapshot(limit)
}

func (q *asked) NumRequeues(key string) int {
	q.most++
	return q.extended.NumRequeues(key)
}

// askedByKey is one that shows single keys.
type askedByKey struct{ *asked }

func (q askedByKey) SnapshotKey(key string) (workqueue.KeySnapshot[string], bool) {
	q.keys++
	time.Sleep(q.answer)
	for _, k := range q.extended.Snapshot(1000).Waiting {
		if k.Key == key {
			k.State = workqueue.KeyWaiting
			return k, true
		}
	}
	return workqueue.KeySnapshot[string]{}, false
}

func (q askedByKey) SnapshotKeys() iter.Seq[workqueue.KeySnapshot[string]] { panic("all keys") }

// Snapshot asks the queue about few keys, for a short time, however many fail.
func TestSnapshotAsksLittle(t *testing.T) {
	const n = 700
	for _, c := range []struct {
		name                 string
		byKey                bool
		answer               time.Duration
		limit                int
		failing, known, asks int
	}{
		{"ten keys", true, 0, 10, 10, 10, 10},
		{"all keys", true, 0, n, 512, 512, 512},
		{"no keys", true, 0, -1, 0, 0, 0},
		{"slow", true, 300 * time.Millisecond, 10, 10, 4, 4},
		{"Snapshot", false, 0, 10, 10, 10, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &asked{extended: limitedQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Hour, time.Hour)), answer: c.answer}
				for i := range n {
					q.Add(fmt.Sprint(i))
				}
				var queue stringQueue = q
				if c.byKey {
					queue = askedByKey{q}
				}
				p := worker.New(queue, func(context.Context, string) error { return errBroken }, options{})
				r := run(t, p)
				q.most = 0
				s := p.Snapshot(c.limit)
				known := 0
				for _, f := range s.Failing {
					if !f.NextTry.IsZero() {
						known++
					}
				}
				if c.byKey && known != c.known || len(s.Failing) != c.failing || s.Stats.Failing != n {
					t.Errorf("%d keys of %d fail, of %d the time is known", len(s.Failing), s.Stats.Failing, known)
				}
				if q.keys != c.asks || q.most > c.failing || q.limit > 512 || c.byKey && q.limit > 0 {
					t.Errorf("asked for %d keys, %d numbers of requeues, a snapshot of %d", q.keys, q.most, q.limit)
				}
				if took := time.Since(r.begun); took > 1300*time.Millisecond {
					t.Errorf("it took %v", took)
				}
				r.end()
			})
		})
	}
}

// clockThat calls a function after its next reading.
type clockThat struct {
	clock.Clock
	afterNow *func()
}

func (c clockThat) Now() time.Time {
	now := c.Clock.Now()
	if f := *c.afterNow; f != nil {
		*c.afterNow = nil
		f()
	}
	return now
}

// A call that begins while Snapshot reads the clock has run for no less than nothing.
func TestSnapshotHasNoNegativeDuration(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		var afterNow func()
		p := worker.New(q, func(context.Context, string) error {
			time.Sleep(time.Minute)
			return nil
		}, options{Clock: clockThat{clock.RealClock{}, &afterNow}})
		r := run(t, p)
		afterNow = func() {
			time.Sleep(time.Second)
			q.Add("a")
			synctest.Wait()
		}
		for _, k := range p.Snapshot(10).Running {
			if k.Duration < 0 {
				t.Errorf("a call has run for %v", k.Duration)
			}
		}
		r.after(2 * time.Minute)
		r.endCleanly()
	})
}
