package priorityqueue_test

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
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
	info, _ := q.SnapshotKey(key)
	got := cmp.Or(string(info.State), "absent")
	if !info.Due.IsZero() {
		got += " " + time.Until(info.Due).String()
	} else if info.Again {
		got += " again"
	}
	if got != want {
		t.Fatalf("%s is %s, want %s", key, got, want)
	}
}

func startGet(q *pq.Queue[string]) *testkit.Call[string] {
	return testkit.Start(func() string {
		key, err := q.GetContext(context.Background())
		return fmt.Sprint(key, " ", err)
	})
}

func startDrain(q *pq.Queue[string]) *testkit.Call[error] {
	return testkit.Start(func() error { return q.ShutDownContext(context.Background()) })
}

// limit is a Limit that is n for each group.
func limit(n int) func(string) int { return func(string) int { return n } }

func because(reason string) *workqueue.Cause { return &workqueue.Cause{Reason: reason} }

func keysOf[T comparable](all []workqueue.KeySnapshot[T]) (keys []T) {
	for _, k := range all {
		keys = append(keys, k.Key)
	}
	return keys
}
