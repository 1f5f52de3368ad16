package sharding

import (
	"context"
	"errors"
	"strings"
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
	// Updates of a member's record that names a table wait for update. While it is slow, the first answer
	// about the table waits for first, and the others for later.
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
	if r.Name != "g-table" && strings.Contains(r.Data, `"table":`) && !opens(ctx, s.update) {
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

// A member reads the table once more after its record names it. Here b cannot read the first table, which a
// has made, and which is deleted. b makes another one and fills it before the record of a names the first, so
// it cannot know that a would hold slots by that one.
func TestTableIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowCalls{
			Store: Memory(), update: make(chan struct{}), first: make(chan struct{}), later: make(chan struct{}),
		}
		ofB := &faulty{Store: store.Store}
		ofB.do(func(verb string, r Record) error {
			if _, err := store.Store.Get(t.Context(), r.Name); r.Name == "g-table" && (verb == "create" || err == nil) {
				return errors.New("hidden")
			}
			return nil
		})
		b := mustJoin(t, ofB, Config{Name: "0"})
		time.Sleep(4 * time.Second)
		a := mustJoin(t, store, Config{Name: "a"})
		// b has renewed its record, and a has filled the table, which its record does not name yet.
		time.Sleep(1500 * time.Millisecond)
		r := mustGet(t, store.Store, "g-table")
		if table, err := decodeTable(r, 256); err != nil || !table.allNamed()[a.ID()] {
			t.Fatal(r, err)
		}
		store.isSlow.Store(true)
		signal(a.toRefresh) // The answer has the first table in it, and comes late.
		synctest.Wait()
		mustDelete(t, store.Store, "g-table")
		ofB.do(nil)
		time.Sleep(1500 * time.Millisecond)
		wantHeld(t, 0, 128)(a, b)
		close(store.update)
		synctest.Wait()
		close(store.first)
		synctest.Wait()
		wantHeld(t, 0, 128)(a, b) // The table that a knows is not there any more.
		close(store.later)
		time.Sleep(2 * time.Second)
		wantHeld(t, 128, 128)(a, b)
	})
}
