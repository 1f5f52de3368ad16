package sharding

import (
	"context"
	"iter"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A slot is to move, and stays because the other member leaves. Meanwhile the queue drops its keys, those that
// were queued and those that are added, so it is listed when it stays.
func TestSlotThatStaysIsListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, keys := Memory(), []string{"handled"}
		a := mustJoin(t, store, Config{Name: "a", Slots: 2})
		time.Sleep(time.Second)
		q := mustQueue(newRoot(), a, QueueConfig[string]{Hash: inLastSlot,
			Keys: func(context.Context) (iter.Seq[string], error) { return slices.Values(keys), nil }})
		if key, _ := q.Get(); key != "handled" { // Its handler keeps the slot from moving.
			t.Fatal(key)
		}
		keys = []string{"queued", "added"}
		q.Add("queued")
		b := mustJoin(t, store, Config{Name: "b", Slots: 2})
		time.Sleep(2 * time.Second)
		if st := a.Stats(); st.Stopping != 1 || q.Holds("added") {
			t.Fatalf("the slot is not to move: %+v", st)
		}
		q.Add("added")
		got := getLater(q)
		synctest.Wait()
		if n := q.Len(); n > 0 || len(got) > 0 {
			t.Errorf("FAILURE: %d keys of a slot that is to move are queued, %d handed out", n, len(got))
		}
		if err := b.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		first := <-got
		second, _ := q.Get()
		if first == second || !slices.Contains(keys, first) || !slices.Contains(keys, second) {
			t.Errorf("FAILURE: the slot has stayed, and the queue hands out %q and %q", first, second)
		}
		q.ShutDown()
	})
}
