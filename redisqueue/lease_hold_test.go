package redisqueue

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/worker"
)

// holding runs a worker over q whose handler says that it was called and, if hold is set, holds x for an
// hour.
func holding(t *testing.T, q *Queue[string], hold bool) (calls chan string, release chan func(),
	pool *worker.Pool[string]) {
	calls, release = make(chan string, 10), make(chan func(), 10)
	pool = worker.New(q, func(ctx context.Context, key string) error {
		calls <- key
		if !hold || key != "x" {
			return nil
		}
		release <- worker.CallOf(ctx).Hold("it is ready", time.Hour)
		return worker.RequeueAfter(0)
	}, worker.Options[string]{Logger: discard, Drain: worker.Nothing})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- pool.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-ended)
	})
	return calls, release, pool
}

// A key on hold keeps its lease, and comes to no other replica, even if it is added, until it is released.
func TestHold(t *testing.T) {
	_, a, b := twoReplicas(t, Config[string]{Lease: 5 * time.Second})
	a.Add("x")
	first, release, pool := holding(t, a, true)
	<-first
	end := <-release
	others, _, _ := holding(t, b, false)
	b.Add("x")
	b.Add("y")
	var key string
	select { // The worker of a is also free: a key on hold takes none.
	case key = <-first:
	case key = <-others:
	}
	if key != "y" {
		t.Errorf("%q came", key)
	}
	time.Sleep(6 * time.Second) // More than a lease.
	if st := pool.Stats(); st.OnHold != 1 || len(first)+len(others) != 0 {
		t.Errorf("%d and %d further calls, %+v", len(first), len(others), st)
	}
	end()
	select {
	case <-first:
	case <-others:
	}
}

// The key that a dead replica holds comes to another one when its lease has ended. If the dead one lives
// after all, its hold has ended as well.
func TestHoldOfDeadReplica(t *testing.T) {
	s := startServer(t)
	p := startProxy(t, s.addr, func() int { return -1 })
	a, b := newTestQueue(t, clientOf(t, p.addr()), Config[string]{Lease: time.Second}),
		newTestQueue(t, s.client(), Config[string]{Lease: time.Second})
	a.Add("x")
	first, _, pool := holding(t, a, true)
	<-first
	eventually(t, 10*time.Second, func() error {
		if st := pool.Stats(); st.OnHold != 1 {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
	others, _, _ := holding(t, b, false)
	p.close()
	if key := <-others; key != "x" {
		t.Errorf("%q came", key)
	}
	eventually(t, 10*time.Second, func() error {
		if st := pool.Stats(); st.OnHold != 0 || st.HoldsToLimit != 0 {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
}
