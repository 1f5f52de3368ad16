package sharding

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// slowCalls is a store that is slow at the worst moments.
type slowCalls struct {
	Store
	isSlow atomic.Bool
	gets   atomic.Int32
	// Updates of a member's record wait for update. While it is slow, the first answer about the table waits for
	// first, and the others for later.
	update, first, later chan struct{}
}

func (s *slowCalls) Get(ctx context.Context, name string) (Record, error) {
	r, err := s.Store.Get(ctx, name)
	if name == "g-table" && s.isSlow.Load() {
		answer := s.later
		if s.gets.Add(1) == 1 {
			answer = s.first
		}
		if !opens(ctx, answer) {
			return Record{}, ctx.Err()
		}
	}
	return r, err
}

func (s *slowCalls) Update(ctx context.Context, r Record) (Record, error) {
	if r.Name != "g-table" && !opens(ctx, s.update) {
		return Record{}, ctx.Err()
	}
	return s.Store.Update(ctx, r)
}

// opens waits until the channel is closed, and reports false if ctx is done first.
func opens(ctx context.Context, channel <-chan struct{}) bool {
	select {
	case <-channel:
		return true
	case <-ctx.Done():
		return false
	}
}

// A member reads the table once more after its record names it. Here the table is deleted and another one filled
// before the record of a does, so the makers of that one could not know that a would hold slots by the first.
func TestTableIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowCalls{
			Store: Memory(), update: make(chan struct{}), first: make(chan struct{}), later: make(chan struct{}),
		}
		a := mustJoin(t, store, Config{Name: "a"}) // It makes the first table, which its record does not name yet.
		time.Sleep(500 * time.Millisecond)
		table, err := store.Store.Get(t.Context(), "g-table")
		if err != nil {
			t.Fatal(err)
		}
		store.isSlow.Store(true)
		signal(a.toConfirm) // The answer has the first table in it, and comes late.
		synctest.Wait()
		if err := store.Delete(t.Context(), table.Name, table.Version); err != nil {
			t.Fatal(err)
		}
		b := mustJoin(t, store.Store, Config{Name: "0"}) // The new plan gives it the slots that a would keep.
		time.Sleep(1500 * time.Millisecond)
		wantHeld(t, 0, 128)(a, b)
		close(store.update)
		synctest.Wait()
		close(store.first)
		synctest.Wait()
		for s := range a.slots {
			if a.state(s) != absent && b.state(s) != absent {
				t.Fatalf("FAILURE: slot %d has two holders", s)
			}
		}
		close(store.later)
		time.Sleep(2 * time.Second)
		wantHeld(t, 128, 128)(a, b)
	})
}
