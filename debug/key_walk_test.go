package debug_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/worker"
)

// However many keys fail, each is counted and retried once.
func TestEachKeyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 30_000
		h := newAudited(t)
		q := newRateLimited[int](t, "q", h)
		var calls atomic.Int64
		var repaired atomic.Bool
		start(t, worker.New(q, func(context.Context, int) error {
			if calls.Add(1); repaired.Load() {
				return nil
			}
			return errors.New("broken")
		}, worker.Options[int]{Name: "q", Workers: 4, MetricsProvider: h}))
		for i := range n {
			q.Add(i)
		}
		synctest.Wait()
		if c := count(t, h, "failing"); c != (counted{n, false}) {
			t.Errorf("%+v, want %d", c, n)
		}
		if c := count(t, h, "failing&error=broken"); c != (counted{n, false}) {
			t.Errorf("by error %+v, want %d", c, n)
		}
		calls.Store(0)
		repaired.Store(true)
		b := h.act(t, 200, "q", "retry", "of", "failing")
		synctest.Wait()
		if b.Keys != n || b.Gone != 0 || b.LeftMore || calls.Load() != n {
			t.Errorf("%+v, and the handler was called %d times", b, calls.Load())
		}
	})
}

// Failing keys of a queue without a pool are those whose failures it counts, in the queue or not.
func TestManyFailingKeys(t *testing.T) {
	h := newAudited(t)
	q := newRateLimited[int](t, "q", h)
	for n := range 2000 {
		fail(t, q, n)
	}
	q.AddAfter(5000, time.Hour) // has not failed
	q.AddRateLimited(6000)      // is requeued, without a failure
	if n := count(t, h, "failing"); n.Count != 2000 {
		t.Errorf("%+v", n)
	}
	// The queue has listed them all, in order.
	if body := get(h, "?queue=q&state=failing").Body.String(); strings.Contains(body, "in no order") {
		t.Error("2000 keys are listed in no order")
	}
	if b := h.act(t, 200, "q", "retry", "of", "failing"); b.Keys != 2000 || q.Len() != 2000 {
		t.Errorf("%+v, %d queued", b, q.Len())
	}
	if b := h.act(t, 200, "q", "forget", "of", "failing"); b.Keys != 2000 || q.NumRequeues(1999) != 0 {
		t.Errorf("%+v", b)
	}
}

// A failing key that is on hold counts as failing, also among more keys than a list has.
func TestFailingKeyOnHold(t *testing.T) {
	h := newAudited(t)
	many(h.Handler, 12_000, operate.Inspector{Stats: noStats, Add: func(any) {}})
	onHold := []worker.OnHoldKey[any]{{Key: 5}, {Key: 11_000}}
	showPool(h, worker.Snapshot[any]{Stats: worker.Stats{Name: "q", OnHold: 2}, OnHold: onHold})
	if c := count(t, h, "failing"); c != (counted{12_000, false}) {
		t.Errorf("%+v", c)
	}
}
