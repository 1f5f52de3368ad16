package sharding

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

func heldBy(m *Member) (n int) {
	for i := range m.slots {
		if m.slots[i].load() == held {
			n++
		}
	}
	return n
}

func TestSmoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Memory()
		join := func(name string) *Member {
			m, err := Join(t.Context(), store, Config{Group: "g", Name: name, Logger: slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelDebug}))})
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		a := join("a")
		time.Sleep(time.Second)
		t.Log(heldBy(a), a.Err())
		b := join("b")
		time.Sleep(time.Second)
		t.Log(heldBy(a), heldBy(b))
		c := join("c")
		time.Sleep(time.Second)
		t.Log(heldBy(a), heldBy(b), heldBy(c))
		t.Log(a.Leave(context.Background()))
		time.Sleep(time.Second)
		t.Log(heldBy(a), heldBy(b), heldBy(c))
		b.end()
		time.Sleep(17 * time.Second)
		t.Log(heldBy(a), heldBy(b), heldBy(c))
		time.Sleep(time.Minute)
		t.Log(len(store.(*memory).history))
		r, _ := store.Get(t.Context(), c.tableName())
		t.Log(r)
		b.Leave(context.Background())
		t.Log(c.Leave(context.Background()))
		r, _ = store.Get(t.Context(), c.tableName())
		t.Log(r)
		t.Log(store.List(t.Context(), "g"))
	})
}
