package sharding

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// The table of a backup names nobody, or the dead, as the holders of slots that a holds now. The watch of a is silent, so it reads that table
// seconds later. A newcomer that knows nothing else must not take these slots meanwhile.
func TestOperatorRestoresTableWithoutHolders(t *testing.T) {
	for _, all := range []bool{true, false} { // everything is restored, or the table alone
		for _, dead := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				server := newSimServer()
				store := Leases(server, "ns")
				d := mustJoin(t, store, Config{Name: "d", Slots: 4})
				ofA := &switchable{Store: store}
				time.Sleep(10 * time.Second)
				if !dead {
					if err := d.Leave(t.Context()); err != nil {
						t.Error(err)
					}
				} else {
					d.end()
					r := mustGet(t, store, "g-member-"+d.ID())
					data, _ := decodeMember(r)
					data.Dead = true
					setData(server, r.Name, encode(data))
				}
				old, backup := mustGet(t, store, "g-table"), server.backup()
				a := mustJoin(t, ofA, Config{Name: "a", Slots: 4})
				name, now := "g-member-"+a.ID(), server.backup()
				backup.leases[name], backup.version = now.leases[name], now.version // a's record is in the backup too.
				time.Sleep(20 * time.Second)
				wantHeld(t, 4)(a)
				ofA.silent.Store(true)
				time.Sleep(5100 * time.Millisecond)
				if all {
					server.restore(backup, 1000)
				} else {
					setData(server, "g-table", old.Data)
				}
				c := mustJoin(t, store, Config{Name: "c", Slots: 4})
				wantNoSlotTwiceFor(t, time.Minute, a, c)
				ofA.silent.Store(false)
				time.Sleep(20 * time.Second)
				if sum := a.Stats().Held + c.Stats().Held; sum != 4 {
					t.Errorf("FAILURE: %d of 4 slots are held", sum)
				}
			})
		}
	}
}

// a, with a longer lease than all others, is cut off, and its record is deleted. Then the table is made anew from a copy, or is deleted when
// only the record of b, which is cut off too, shows how long to wait. c, which joins last, must wait for a's lease.
func TestMemberWithLongerLeaseAndLostTable(t *testing.T) {
	for _, copied := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			server := newSimServer()
			store := Leases(server, "ns")
			ofA, ofB := &switchable{Store: store}, &switchable{Store: store}
			a := mustJoin(t, ofA, Config{Name: "a", Slots: 4, Lease: time.Minute})
			b := mustJoin(t, ofB, Config{Name: "b", Slots: 4, Lease: 5 * time.Second})
			time.Sleep(10 * time.Second)
			wantHeld(t, 2, 2)(a, b)
			ofA.cutOff(true)
			mustDelete(t, store, "g-member-"+a.ID())
			table := mustGet(t, store, "g-table")
			ofB.cutOff(true)
			mustDelete(t, store, "g-table")
			if copied {
				mustDelete(t, store, "g-member-"+b.ID())
				table.Version = ""
				if _, err := store.Create(t.Context(), table); err != nil {
					t.Error(err)
				}
			}
			c := mustJoin(t, store, Config{Name: "c", Slots: 4, Lease: 5 * time.Second})
			wantNoSlotTwiceFor(t, 2*time.Minute, a, b, c)
			wantHeld(t, 4)(c)
		})
	}
}

// lister counts the lists of a store.
type lister struct {
	Store
	lists atomic.Int32
}

func (s *lister) List(ctx context.Context, group string) ([]Record, string, error) {
	s.lists.Add(1)
	return s.Store.List(ctx, group)
}

// While members wait for a lease after the table was deleted, they do not list at each signal.
func TestNewTableCostsFewLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &lister{Store: Memory()}
		a := mustJoin(t, store, Config{Name: "a", Slots: 4})
		for i := range 4 {
			mustJoin(t, store, Config{Name: fmt.Sprint("m", i), Slots: 4})
		}
		time.Sleep(10 * time.Second)
		mustDelete(t, store, "g-table")
		time.Sleep(time.Second)
		before := store.lists.Load()
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			signal(a.toWork)
		}
		if n := store.lists.Load() - before; n > 0 {
			t.Errorf("FAILURE: %d lists in ten seconds", n)
		}
		time.Sleep(10 * time.Second)
		if a.Stats().Held == 0 {
			t.Error("FAILURE: the table is not filled")
		}
	})
}

// unlisted is a store whose lists lack a record, as if it had lost its label.
type unlisted struct {
	Store
	name atomic.Pointer[string]
}

func (s *unlisted) List(ctx context.Context, group string) ([]Record, string, error) {
	records, version, err := s.Store.List(ctx, group)
	if name := s.name.Load(); name != nil {
		records = slices.DeleteFunc(records, func(r Record) bool { return r.Name == *name })
	}
	return records, version, err
}

// Somebody deletes the table while a handler of a does not return, and removes the label from a's record. Whoever fills the new table, a or
// another one, leaves the slot with a, although no list shows its record.
func TestOperatorRemovesLabelWhileHandlerIsStuck(t *testing.T) {
	for _, name := range []string{"a", "z"} {
		synctest.Test(t, func(t *testing.T) {
			store := &unlisted{Store: Memory()}
			a := mustJoin(t, store, Config{Name: name, Slots: 4})
			time.Sleep(time.Second)
			q := NewQueue(newRoot(), a, QueueConfig[string]{Keys: noKeys[string], Hash: func(string) uint64 { return 1 << 62 }})
			q.Add("stuck")
			_, _ = q.Get()
			b := mustJoin(t, store, Config{Name: "b", Slots: 4})
			time.Sleep(10 * time.Second)
			if a.state(1) == absent {
				t.Fatal("the stuck handler's slot has moved")
			}
			mustDelete(t, store, "g-table")
			record := "g-member-" + a.ID()
			store.name.Store(&record)
			for range 60 {
				time.Sleep(time.Second)
				wantNoSlotTwice(t, a, b)
				if b.state(1) != absent {
					t.Fatal("FAILURE: b got the slot whose handler runs with a")
				}
			}
			wantHeld(t, 2, 2)(a, b)
		})
	}
}
