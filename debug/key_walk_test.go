package debug_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/debug"
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
	many(h.Handler, 600, operate.Inspector{Stats: noStats, Add: func(any) {}})
	onHold := []worker.OnHoldKey[any]{{Key: 5}, {Key: 550}}
	showPool(h, worker.Snapshot[any]{Stats: worker.Stats{Name: "q", OnHold: 2}, OnHold: onHold})
	if c := count(t, h, "failing"); c != (counted{600, false}) {
		t.Errorf("%+v", c)
	}
}

// Pages with the errors of a queue go over its keys one after another, and do not wait for long.
func TestErrorsTakeTurns(t *testing.T) {
	inBubble(t, func(t *testing.T, h *debug.Handler) {
		var busy, calls atomic.Int32
		inspect(h, "q", operate.Inspector{
			Stats: noStats,
			GivenUp: func(limit int) []operate.GivenUpKey[any] {
				if limit > 512 { // It is not one of the page's lists.
					if busy.Add(1) > 1 {
						t.Error("two at once")
					}
					calls.Add(1)
					time.Sleep(900 * time.Millisecond)
					busy.Add(-1)
				}
				keys := make([]operate.GivenUpKey[any], min(limit, 512))
				for i := range keys {
					keys[i] = operate.GivenUpKey[any]{Key: i, Err: "broken"}
				}
				return keys
			},
		})
		began := time.Now()
		var wg sync.WaitGroup
		var late atomic.Int32
		for range 20 {
			wg.Go(func() {
				if body := get(h, "?queue=q&state=given_up&error=broken").Body.String(); strings.Contains(body, "There may be more keys") {
					late.Add(1)
				}
			})
		}
		wg.Wait()
		if d := time.Since(began); d > 6*time.Second || calls.Load() > 6 || late.Load() < 14 || late.Load() == 20 {
			t.Errorf("after %v: %d calls, %d pages without all keys", d, calls.Load(), late.Load())
		}
	})
}
