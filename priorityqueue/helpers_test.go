package priorityqueue_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	pq "github.com/keyedqueue/workqueue/priorityqueue"
)

// fixed is a limiter that makes every failure wait equally long.
type fixed time.Duration

func (d fixed) When(string) time.Duration { return time.Duration(d) }
func (fixed) Forget(string)               {}
func (fixed) NumRequeues(string) int      { return 0 }

// script runs f with a queue in a bubble, and checks the queue's invariants at the end.
func script(t *testing.T, config pq.Config[string], f func(t *testing.T, q *pq.Queue[string])) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q := pq.New(config)
		defer q.ShutDown()
		f(t, q)
		if err := q.CheckInvariants(); err != nil {
			t.Error(err)
		}
	})
}

// drain gets and finishes what is queued, which must be want and nothing else.
func drain(t *testing.T, q *pq.Queue[string], want string) {
	t.Helper()
	var got []string
	for q.Len() > 0 {
		key, _ := q.Get()
		got = append(got, key)
		q.Done(key)
	}
	if s := strings.Join(got, " "); s != want {
		t.Fatalf("queued were %q, want %q", s, want)
	}
}

// hold gets keys, which must be want.
func hold(t *testing.T, q *pq.Queue[string], want string) {
	t.Helper()
	for w := range strings.FieldsSeq(want) {
		if q.Len() == 0 {
			t.Fatalf("nothing is queued, want %s", w)
		}
		if key, _ := q.Get(); key != w {
			t.Fatalf("Get() = %s, want %s", key, w)
		}
	}
}

// wantAt asserts how long key still waits, or that it is in another state.
func wantAt(t *testing.T, q *pq.Queue[string], key, want string) {
	t.Helper()
	info, _ := q.Inspect(key)
	got := info.State.String()
	if !info.Due.IsZero() {
		got += " " + time.Until(info.Due).String()
	} else if info.Again {
		got += " again"
	}
	if got != want {
		t.Fatalf("%s is %s, want %s", key, got, want)
	}
}

// call is a call that may block.
type call[R any] struct{ result atomic.Pointer[R] }

func start[R any](f func() R) *call[R] {
	c := &call[R]{}
	go func() {
		r := f()
		c.result.Store(&r)
	}()
	return c
}

func startGet(q *pq.Queue[string]) *call[string] {
	return start(func() string {
		key, err := q.GetContext(context.Background())
		return fmt.Sprint(key, " ", err)
	})
}

func startDrain(q *pq.Queue[string]) *call[error] {
	return start(func() error { return q.ShutDownContext(context.Background()) })
}

func (c *call[R]) mustBlock(t *testing.T, what string) {
	t.Helper()
	synctest.Wait()
	if r := c.result.Load(); r != nil {
		t.Fatalf("%s: returned %v, and should block", what, *r)
	}
}

func (c *call[R]) mustReturn(t *testing.T, what string) (r R) {
	t.Helper()
	synctest.Wait()
	p := c.result.Load()
	if p == nil {
		t.Fatalf("%s: still blocks", what)
	}
	return *p
}

func wantPanic(t *testing.T, what, want string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if v := fmt.Sprint(recover()); !strings.Contains(v, want) {
			t.Errorf("%s: panics with %q, want %q in it", what, v, want)
		}
	}()
	f()
}

var _ workqueue.TypedRateLimiter[string] = fixed(0)
