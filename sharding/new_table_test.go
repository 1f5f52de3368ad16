package sharding

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A member that could not join leaves no record behind: the others would wait for it, and give it slots.
func TestJoinThatFailsLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := &faulty{Store: Memory()}
		silent.silent.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		if _, err := Join(ctx, silent, Config{Group: "g"}); err == nil {
			t.Error("it has joined")
		}
		if records, _, err := silent.Store.List(t.Context(), "g"); len(records) > 0 || err != nil {
			t.Errorf("%v are left, %v", records, err)
		}
	})
}

// Here b has not heard of a's renewals for a lease, and a person has deleted a's record, which a does not
// know. That b finds no record to delete does not say that a is dead.
func TestRecordDeletedByPersonIsNotThatOfDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Memory()
		a, b, ofA, ofB := two(t, store, 2)
		ofB.silent.Store(true)
		time.Sleep(12 * time.Second)
		ofA.cutOff(true)
		mustDelete(t, store, "g-member-"+a.ID())
		wantNoSlotTwiceFor(t, 30*time.Second, a, b)
		wantHeld(t, 0, 2)(a, b)
	})
}

// A member whose record was deleted continues as a new one. It is in no table before it has a record: others
// would find none, take it for dead after a lease, and an attempt to create it that comes into effect late
// would bring it back.
func TestMemberWithoutRecordIsInNoTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Memory()
		a, _, ofA, _ := two(t, store, 2)
		before := a.ID()
		ofA.do(func(verb string, _ Record) error {
			if verb == "create" {
				return errors.New("no answer")
			}
			return nil
		})
		mustDelete(t, store, "g-member-"+before)
		for range 40 {
			time.Sleep(time.Second)
			r := mustGet(t, store, "g-table")
			table, err := decodeTable(r, 2)
			if err != nil {
				t.Fatal(err)
			}
			if id := a.ID(); id == before || table.allNamed()[id] {
				t.Fatalf("FAILURE: the table names %s, which has no record: %s", id, r.Data)
			}
		}
	})
}

// While a, which leaves, writes the table, that is deleted, and somebody makes a new one. Then a must not
// fill that one by what it knew of the old one: z follows the old one, and is cut off.
func TestNewTableIsSettledAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Memory()
		ofA, ofZ := &faulty{Store: store}, &faulty{Store: store}
		z := mustJoin(t, ofZ, Config{Name: "z", Slots: 3})
		time.Sleep(2 * time.Second)
		c := mustJoin(t, store, Config{Name: "c", Slots: 3})
		a := mustJoin(t, ofA, Config{Name: "a", Slots: 3})
		time.Sleep(2 * time.Second)
		wantHeld(t, 1, 1, 1)(a, c, z)
		ofZ.cutOff(true)
		var replaced atomic.Bool
		ofA.do(func(verb string, r Record) error {
			if verb != "update" || r.Name != "g-table" || replaced.Swap(true) {
				return nil
			}
			mustRemake(t, store, Record{Name: "g-table", Group: "g", Data: emptyTable("other", 3, 4e12).encode()})
			return ErrNotFound
		})
		go func() { _ = a.Leave(t.Context()) }()
		wantNoSlotTwiceFor(t, 30*time.Second, a, c, z)
		wantHeld(t, 0, 3, 0)(a, c, z)
	})
}

// A person deletes the record of b, which is cut off, and then the table. The others have seen b, so they
// wait for it although no list has it.
func TestNewTableWaitsForDeletedMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Memory()
		a, b, _, ofB := two(t, store, 2)
		ofB.cutOff(true)
		mustDelete(t, store, "g-member-"+b.ID())
		time.Sleep(time.Second)
		mustDelete(t, store, "g-table")
		wantNoSlotTwiceFor(t, 30*time.Second, a, b)
		wantHeld(t, 2, 0)(a, b)
	})
}

// A table is deleted, and all who know it are cut off. A new member finds their records, which name it, and
// waits for a lease.
func TestNewTableOfNewMemberWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Memory()
		a, b, ofA, ofB := two(t, store, 2)
		ofA.cutOff(true)
		ofB.cutOff(true)
		mustDelete(t, store, "g-table")
		c := mustJoin(t, store, Config{Name: "c", Slots: 2})
		wantNoSlotTwiceFor(t, 40*time.Second, a, b, c)
		wantHeld(t, 0, 0, 2)(a, b, c)
	})
}

// After the table was deleted, epochs go on from the greatest that a living member knows, no matter what the
// clock of the member shows that makes the new one.
func TestEpochsGoOnAfterTableWasDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Memory()
		fast := &simClock{start: time.Now(), wrong: time.Hour, rate: 1, stop: &stopper{}}
		ofA := &faulty{Store: store}
		a := mustJoin(t, ofA, Config{Name: "a", Slots: 2, Clock: fast})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		before := a.mu.view.table.slots[0].epoch
		ofA.cutOff(true)
		mustDelete(t, store, "g-table")
		b := mustJoin(t, store, Config{Name: "b", Slots: 2})
		time.Sleep(5 * time.Second)
		ofA.cutOff(false)
		time.Sleep(20 * time.Second)
		wantHeld(t, 1, 1)(a, b)
		synctest.Wait()
		if epoch := b.mu.view.table.slots[0].epoch; epoch <= before {
			t.Errorf("FAILURE: the epoch is %d, after %d", epoch, before)
		}
	})
}

// A member with a slow clock, which knows no epochs, makes the new table. That is no restore, and epochs grow
// nevertheless when the table is filled.
func TestNewTableWithLowerEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Memory()
		a, b, _, _ := two(t, store, 2)
		synctest.Wait()
		before := a.mu.view.table.slots[0].epoch
		mustRemake(t, store, Record{Name: "g-table", Group: "g", Data: emptyTable("other", 2, 5).encode()})
		wantNoSlotTwiceFor(t, 35*time.Second, a, b)
		wantHeld(t, 1, 1)(a, b)
		synctest.Wait()
		if epoch := a.mu.view.table.slots[0].epoch; epoch <= before {
			t.Errorf("FAILURE: the epoch is %d, after %d", epoch, before)
		}
	})
}

// A person adds a label to the table's Lease. It has a new version then, and says the same.
func TestTableWithAnotherVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Memory()
		a, b, _, _ := two(t, store, 2)
		if _, err := store.Update(t.Context(), mustGet(t, store, "g-table")); err != nil {
			t.Fatal(err)
		}
		b.end() // It is killed.
		time.Sleep(20 * time.Second)
		wantHeld(t, 2)(a)
	})
}

// While members wait for a lease after the table was deleted, they do not list at each signal.
func TestNewTableCostsFewLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: Memory()}
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
