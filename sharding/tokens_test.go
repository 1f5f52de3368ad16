package sharding

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
)

// A worker may get a key while the Done of another one has yet to take out its token. Whichever cell each of them empties, both are
// empty in the end: otherwise the slot could never move again.
func TestTokensOfOneKey(t *testing.T) {
	var c cells
	c.put(1)
	c.put(2) // of the first worker
	c.remove(1)
	c.put(2) // of the second one
	c.remove(2)
	if n := c.len(); n != 1 || !c.has(2) {
		t.Errorf("%d tokens are left", n)
	}
	c.remove(2)
	if n := c.len(); n != 0 {
		t.Errorf("%d tokens are left", n)
	}
}

// noDeletes is a store that answers each Delete with an error.
type noDeletes struct {
	Store
	err   error
	tries atomic.Int64
}

func (s *noDeletes) Delete(context.Context, string, string) error {
	s.tries.Add(1)
	return s.err
}

// A record of a dead member that cannot be deleted keeps nobody from having its slots, and is not tried again and again.
func TestRecordThatCannotBeDeleted(t *testing.T) {
	for name, err := range map[string]error{"refused": ErrRefused, "failing": errors.New("the webhook does not answer")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &noDeletes{Store: Memory(), err: err}
				a, b := mustJoin(t, store, Config{Name: "a", Slots: 4}), mustJoin(t, store, Config{Name: "b", Slots: 4})
				time.Sleep(5 * time.Second)
				b.end()
				time.Sleep(20 * time.Second)
				wantHeld(t, 4)(a)
				c := mustJoin(t, store, Config{Name: "c", Slots: 4})
				time.Sleep(20 * time.Second)
				wantHeld(t, 2, 2)(a, c)
				time.Sleep(2 * time.Minute)
				if n := store.tries.Load(); n > 40 {
					t.Errorf("%d deletions were tried", n)
				}
			})
		})
	}
}

// The contexts of handlers end before their slot is kept, however late the member looks.
func TestContextsEndBeforeTheSlotIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mustJoin(t, Memory(), Config{Name: "a", Slots: 1, HandoverTimeout: time.Second})
		time.Sleep(5 * time.Second)
		inner := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
		defer inner.ShutDown()
		q := NewQueue(inner, m, QueueConfig[string]{Keys: func(context.Context) ([]string, error) { return nil, nil }})
		synctest.Wait()
		q.Add("a")
		key, _ := q.Get()
		ctx, release := q.Lease(t.Context(), key)
		defer release()
		m.mu.Lock()
		m.setState(0, stopping)
		now := m.now()
		m.slots[0].stop = stop{since: now - 2*time.Second} // It was busy all that time.
		m.hurryLocked(now)
		for _, e := range m.mu.changes.ended {
			e.holding.end(e.cause)
		}
		m.mu.changes = changes{}
		keep := m.slots[0].keep
		m.setState(0, held)
		m.mu.Unlock()
		if ctx.Err() == nil || keep != 0 {
			t.Errorf("the context: %v, the slot is kept until %v", ctx.Err(), keep)
		}
		q.Done(key)
	})
}
