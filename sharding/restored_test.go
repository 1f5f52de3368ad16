package sharding

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// wantRestored fails unless the member has ended with ErrRestored.
func wantRestored(t *testing.T, m *Member) {
	t.Helper()
	select {
	case <-m.Done():
	default:
		t.Errorf("FAILURE: %s has not ended", m.ID())
	}
	if m.Err() != ErrRestored || m.Stats().Held != 0 {
		t.Errorf("FAILURE: %s: %v, it holds %d slots", m.ID(), m.Err(), m.Stats().Held)
	}
	if err := m.Leave(t.Context()); !errors.Is(err, ErrRestored) {
		t.Errorf("FAILURE: Leave: %v", err)
	}
}

// A backup is restored. All members that knew a later state end within a lease, at the latest when they renew
// their records: their handlers' contexts end, and their queues shut down. No key has two holders, and after
// their restart all slots are held.
func TestRestoredBackup(t *testing.T) {
	for _, away := range []time.Duration{0, 4 * time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			server := newSimServer()
			store := &faulty{Store: Leases(server, "ns")}
			a := mustJoin(t, store, Config{Name: "a", Slots: 6})
			b := mustJoin(t, store, Config{Name: "b", Slots: 6})
			time.Sleep(10 * time.Second)
			backup := server.backup()
			time.Sleep(10 * time.Second)
			c := mustJoin(t, store, Config{Name: "c", Slots: 6})
			expectQueues(a, "")
			q := mustQueue(newRoot(), a, QueueConfig[string]{Keys: listOf("0", "1", "2", "3", "4", "5", "6", "7", "8")})
			time.Sleep(5 * time.Second)
			wantHeld(t, 2, 2, 2)(a, b, c)
			key, _ := q.Get()
			handler, release := q.Lease(t.Context(), key)
			defer release()
			if away > 0 {
				store.cutOff(true)
				time.Sleep(away)
			}
			server.restore(backup, 1000)
			store.cutOff(false)
			members := []*Member{a, b, c}
			wantNoSlotTwiceFor(t, 15*time.Second, members...)
			for _, m := range members {
				wantRestored(t, m)
			}
			want := ErrRestored
			if away > 15*time.Second {
				want = context.Cause(handler) // It has ended before.
			}
			if context.Cause(handler) != want || handler.Err() == nil {
				t.Errorf("FAILURE: the handler's context: %v", context.Cause(handler))
			}
			q.Done(key)
			if _, shutdown := q.Get(); !shutdown {
				t.Error("FAILURE: the queue is not shut down")
			}
			var again []*Member
			for _, m := range members {
				again = append(again, mustJoin(t, store, Config{Name: m.config.Name, Slots: 6}))
			}
			wantNoSlotTwiceFor(t, 35*time.Second, append(members, again...)...)
			wantHeld(t, 2, 2, 2)(again...)
		})
	}
}

// Each of the two signs is enough: the own record is older than what the member has written, or the table is
// older than its last one, or contradicts it.
func TestSignsOfARestore(t *testing.T) {
	for sign, restore := range map[string]func(*testing.T, *simServer, Store, *Member, Record){
		"own record": func(t *testing.T, server *simServer, store Store, a *Member, _ Record) {
			d, err := decodeMember(mustGet(t, store, "g-member-"+a.ID()))
			if err != nil {
				t.Fatal(err)
			}
			d.Sequence--
			setData(server, "g-member-"+a.ID(), encode(d))
		},
		"older table": func(_ *testing.T, server *simServer, _ Store, _ *Member, old Record) {
			setData(server, "g-table", old.Data)
		},
		"table that was written since": func(t *testing.T, server *simServer, _ Store, a *Member, old Record) {
			table, err := decodeTable(old, 4)
			if err != nil {
				t.Fatal(err)
			}
			table.epoch += 1000 // Slots of b are a's again.
			for i := range table.slots {
				table.slots[i].epoch = table.epoch - 1000
			}
			setData(server, "g-table", table.encode())
		},
		"table of the same epoch": func(t *testing.T, server *simServer, store Store, _ *Member, _ Record) {
			table, err := decodeTable(mustGet(t, store, "g-table"), 4)
			if err != nil {
				t.Fatal(err)
			}
			table.slots[0], table.slots[3] = table.slots[3], table.slots[0] // One is a's, one is b's.
			setData(server, "g-table", table.encode())
		},
		"table of an earlier group": func(t *testing.T, server *simServer, _ Store, _ *Member, old Record) {
			table, err := decodeTable(old, 4)
			if err != nil {
				t.Fatal(err)
			}
			table.id = "earlier"
			setData(server, "g-table", table.encode())
		},
		"copy of an older table": func(t *testing.T, _ *simServer, store Store, _ *Member, old Record) {
			mustRemake(t, store, old)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			server := newSimServer()
			store := Leases(server, "ns")
			a := mustJoin(t, store, Config{Name: "a", Slots: 4})
			time.Sleep(10 * time.Second)
			old := mustGet(t, store, "g-table")
			b := mustJoin(t, store, Config{Name: "b", Slots: 4})
			time.Sleep(10 * time.Second)
			wantHeld(t, 2, 2)(a, b)
			restore(t, server, store, a, old)
			wantNoSlotTwiceFor(t, 15*time.Second, a, b)
			wantRestored(t, a)
			if sign != "own record" {
				wantRestored(t, b)
			}
		})
	}
}

// A backup from before the group was there looks like deleted Leases: all slots rest for a lease, and nobody
// ends.
func TestRestoredBackupWithoutGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newSimServer()
		store, backup := Leases(server, "ns"), server.backup()
		a, b, _, _ := two(t, store, 4)
		server.restore(backup, 1000)
		wantNoSlotTwiceFor(t, 35*time.Second, a, b)
		wantHeld(t, 2, 2)(a, b)
	})
}

// The table goes back while c joins. Join says so, and a queue of a member that has ended is an error: it would
// block its workers.
func TestMembersThatHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: Memory()}
		a := mustJoin(t, store.Store, Config{Name: "a", Slots: 4})
		time.Sleep(10 * time.Second)
		old := mustGet(t, store, "g-table")
		b := mustJoin(t, store.Store, Config{Name: "b", Slots: 4})
		time.Sleep(10 * time.Second)
		if err := b.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		store.do(func(verb string, _ Record) error {
			if verb != "create" {
				return nil
			}
			mustRemake(t, store.Store, old)
			return errors.New("no answer")
		})
		_, err := Join(t.Context(), store, Config{Group: "g", Name: "c", Slots: 4})
		if !errors.Is(err, ErrRestored) || err.Error() != ErrRestored.Error() {
			t.Error("FAILURE:", err)
		}
		time.Sleep(10 * time.Second)
		for m, want := range map[*Member]error{a: ErrRestored, b: ErrLeft} {
			if _, err := NewQueue(newRoot(), m, QueueConfig[string]{Keys: noKeys[string]}); err != want {
				t.Errorf("FAILURE: %v, want %v", err, want)
			}
		}
	})
}
