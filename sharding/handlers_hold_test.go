package sharding

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/worker"
)

// A slot that is to move releases its keys on hold at once, and its next holder lists them. Nobody waits for
// the limit of a hold.
func TestHandoverReleasesKeysOnHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Memory()
		a := mustJoin(t, store, Config{Name: "a", Slots: 1, HandoverTimeout: 4 * time.Minute})
		var mu sync.Mutex
		var calls []string
		keys := QueueConfig[string]{Keys: listOf("key")}
		pool := func(name string, m *Member) (*worker.Pool[string], func()) {
			p := worker.New(mustQueue(newRoot(), m, keys), func(ctx context.Context, _ string) error {
				mu.Lock()
				defer mu.Unlock()
				calls = append(calls, name)
				worker.CallOf(ctx).Hold("nothing", time.Hour)
				return worker.RequeueAfter(0)
			}, worker.Options[string]{})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- p.Run(ctx) }()
			return p, func() {
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
		}
		p, end := pool("a", a)
		time.Sleep(time.Second)
		if p.Stats().OnHold != 1 {
			t.Fatalf("%+v", p.Stats())
		}
		b := mustJoin(t, store, Config{Name: "b", Slots: 1})
		later, endLater := pool("b", b)
		go func() { _ = a.Leave(context.Background()) }()
		time.Sleep(5 * time.Second)
		wantHeld(t, 0, 1)(a, b)
		if p.Stats().OnHold != 0 || p.Stats().HoldsToLimit != 0 || later.Stats().OnHold != 1 {
			t.Errorf("a %+v, b %+v", p.Stats(), later.Stats())
		}
		end()
		endLater()
		if len(calls) != 2 || calls[1] != "b" {
			t.Errorf("called on %q", calls)
		}
	})
}

// The context of keys on hold ends with their slot, also if it was asked for too late, and for no other
// reason.
func TestLeaseOnHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Memory()
		a := mustJoin(t, store, Config{Name: "a", Slots: 1, HandoverTimeout: time.Hour})
		time.Sleep(time.Second)
		q, err := newQueue(newRoot(), a, QueueConfig[string]{Keys: noKeys[string]})
		if err != nil {
			t.Fatal(err)
		}
		q.Add("key")
		key, _ := q.Get()
		held, _ := q.LeaseOnHold(t.Context(), key)
		if other, _ := q.LeaseOnHold(t.Context(), "other"); other != t.Context() {
			t.Error("a key that nobody has got has a lease")
		}
		mustJoin(t, store, Config{Name: "b", Slots: 1})
		time.Sleep(time.Minute)
		if held.Err() != nil {
			t.Error(context.Cause(held))
		}
		go func() { _ = a.Leave(context.Background()) }()
		time.Sleep(time.Second)
		late, _ := q.LeaseOnHold(t.Context(), key)
		if !errors.Is(context.Cause(held), ErrHandover) || !errors.Is(context.Cause(late), ErrHandover) {
			t.Error(context.Cause(held), context.Cause(late))
		}
		q.Done(key)
		time.Sleep(time.Second)
		q.ShutDown()
	})
}
