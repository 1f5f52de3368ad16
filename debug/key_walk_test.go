package debug_test

import (
	"context"
	"errors"
	"iter"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
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

// The page of a queue does not go over all keys, even if those in its snapshot are in another list.
func TestQueuePageIsCheap(t *testing.T) {
	h := newHandler(t, debug.Options{})
	var onHold []worker.OnHoldKey[any]
	inspect(h, "q", workqueue.Inspector{
		Stats: func() workqueue.Stats { return workqueue.Stats{Processing: 60} },
		Snapshot: func(limit int) (s workqueue.Snapshot[any]) {
			for key := range limit {
				s.Processing = append(s.Processing, workqueue.KeySnapshot[any]{Key: key, State: workqueue.KeyProcessing})
			}
			return s
		},
		SnapshotKeys: func() iter.Seq[workqueue.KeySnapshot[any]] {
			t.Error("it goes over all keys")
			return func(func(workqueue.KeySnapshot[any]) bool) {}
		},
	})
	for key := range 60 {
		onHold = append(onHold, worker.OnHoldKey[any]{Key: key})
	}
	showPool(h, worker.Snapshot[any]{Stats: worker.Stats{Name: "q", OnHold: 60}, OnHold: onHold})
	get(h, "?queue=q")
}

// Numbers say what they count, and the rates on a queue's page are those of the list.
func TestNumbersSayWhatTheyCount(t *testing.T) {
	inBubble(t, func(t *testing.T, h *debug.Handler) {
		q := newRateLimited[string](t, "q", h)
		start(t, worker.New(q, func(context.Context, string) error { return errors.New("broken") },
			worker.Options[string]{MetricsProvider: h, Logger: silent}))
		time.Sleep(12 * time.Second)
		q.Add("fails")
		time.Sleep(216 * time.Millisecond)
		page := get(h, "?queue=q")
		wantBody(t, page, ">Failing for</th>", `data-label="Failing for">216 ms</td>`)
		if strings.Contains(page.Body.String(), "Fails since") {
			t.Error("a duration is said to be a time")
		}
		rate := strconv.FormatFloat(perSecond(h, "q").Adds, 'g', 2, 64)
		wantBody(t, page, "<b>"+rate+"</b> adds", "a second in the last minute")
		wantBody(t, get(h, ""), `data-label="Adds/s">`+rate+"<")
	})
}

// Pages with the errors of a queue go over its keys one after another, and do not wait for long.
func TestErrorsTakeTurns(t *testing.T) {
	inBubble(t, func(t *testing.T, h *debug.Handler) {
		var busy, calls atomic.Int32
		inspect(h, "q", workqueue.Inspector{
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
