package sharding

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// wantNoSlotTwice fails if two of the members hold a slot.
func wantNoSlotTwice(t *testing.T, members ...*Member) {
	t.Helper()
	for s := range members[0].slots {
		n := 0
		for _, m := range members {
			if m.state(s) != absent {
				n++
			}
		}
		if n > 1 {
			t.Fatalf("FAILURE: slot %d has %d holders", s, n)
		}
	}
}

func mustDelete(t *testing.T, store Store, name string) {
	t.Helper()
	r, err := store.Get(t.Context(), name)
	if err == nil {
		err = store.Delete(t.Context(), r.Name, r.Version)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// mustRemake deletes a record and makes it anew, also if a member is quicker to make another one.
func mustRemake(t *testing.T, store Store, r Record) {
	t.Helper()
	for err := ErrExists; errors.Is(err, ErrExists); {
		mustDelete(t, store, r.Name)
		r.Version = ""
		if _, err = store.Create(t.Context(), r); err != nil && !errors.Is(err, ErrExists) {
			t.Fatal(err)
		}
	}
}

// A member that could not join leaves no record behind: the others would wait for it, and give it slots.
func TestJoinThatFailsLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Memory()
		silent := &switchable{Store: store}
		silent.silent.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		if _, err := Join(ctx, silent, Config{Group: "g"}); err == nil {
			t.Error("it has joined")
		}
		if records, _, err := store.List(t.Context(), "g"); len(records) > 0 || err != nil {
			t.Errorf("%v are left, %v", records, err)
		}
	})
}

// Here b has not heard of a's renewals for a lease, and a person has deleted a's record, which a does not
// know. That b finds no record to delete does not say that a is dead.
func TestRecordDeletedByPersonIsNotThatOfDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Memory()
		ofA, ofB := &switchable{Store: store}, &switchable{Store: store}
		a := mustJoin(t, ofA, Config{Name: "a", Slots: 2})
		b := mustJoin(t, ofB, Config{Name: "b", Slots: 2})
		time.Sleep(2 * time.Second)
		wantHeld(t, 1, 1)(a, b)
		ofB.silent.Store(true)
		time.Sleep(12 * time.Second)
		ofA.away.Store(true)
		ofA.silent.Store(true)
		mustDelete(t, store, "g-member-"+a.ID())
		for range 30 {
			time.Sleep(time.Second)
			wantNoSlotTwice(t, a, b)
		}
		wantHeld(t, 0, 2)(a, b)
	})
}

// noCreate is a store on which Create can fail.
type noCreate struct {
	Store
	fails atomic.Bool
}

func (s *noCreate) Create(ctx context.Context, r Record) (Record, error) {
	if s.fails.Load() {
		return Record{}, errors.New("refused")
	}
	return s.Store.Create(ctx, r)
}

// A member whose record was deleted goes on as a new one. It is in no table before it has a record: others
// would find none, take it for dead after a lease, and an attempt to create it that comes into effect late
// would bring it back.
func TestMemberWithoutRecordIsInNoTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Memory()
		ofA := &noCreate{Store: store}
		a := mustJoin(t, ofA, Config{Name: "a", Slots: 2})
		mustJoin(t, store, Config{Name: "b", Slots: 2})
		time.Sleep(4 * time.Second)
		before := a.ID()
		ofA.fails.Store(true)
		mustDelete(t, store, "g-member-"+before)
		for range 40 {
			time.Sleep(time.Second)
			r, err := store.Get(t.Context(), "g-table")
			if err != nil {
				t.Fatal(err)
			}
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

// onUpdate is a store that calls a function instead of the next update of the table.
type onUpdate struct {
	Store
	call atomic.Pointer[func() error]
}

func (s *onUpdate) Update(ctx context.Context, r Record) (Record, error) {
	if r.Name == "g-table" {
		if call := s.call.Swap(nil); call != nil {
			return r, (*call)()
		}
	}
	return s.Store.Update(ctx, r)
}

// While a, which leaves, writes the table, that is deleted, and somebody makes a new one. Then a must not
// fill that one by what it knew of the old one: z follows the old one, and is cut off.
func TestNewTableIsSettledAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Memory()
		ofA, ofZ := &onUpdate{Store: store}, &switchable{Store: store}
		z := mustJoin(t, ofZ, Config{Name: "z", Slots: 3})
		time.Sleep(2 * time.Second)
		c := mustJoin(t, store, Config{Name: "c", Slots: 3})
		a := mustJoin(t, ofA, Config{Name: "a", Slots: 3})
		time.Sleep(2 * time.Second)
		wantHeld(t, 1, 1, 1)(a, c, z)
		ofZ.away.Store(true)
		ofZ.silent.Store(true)
		replace := func() error {
			mustRemake(t, store, Record{Name: "g-table", Group: "g", Data: newTable("other", 3, 4e12).encode()})
			return ErrNotFound
		}
		ofA.call.Store(&replace)
		go func() { _ = a.Leave(t.Context()) }()
		for range 30 {
			time.Sleep(time.Second)
			wantNoSlotTwice(t, a, c, z)
		}
		wantHeld(t, 0, 3, 0)(a, c, z)
	})
}

// A person deletes the record of b, which is cut off, and then the table. The others have seen b, so they
// wait for it although no list has it.
func TestNewTableWaitsForDeletedMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Memory()
		ofB := &switchable{Store: store}
		a := mustJoin(t, store, Config{Name: "a", Slots: 2})
		b := mustJoin(t, ofB, Config{Name: "b", Slots: 2})
		time.Sleep(4 * time.Second)
		wantHeld(t, 1, 1)(a, b)
		ofB.away.Store(true)
		ofB.silent.Store(true)
		mustDelete(t, store, "g-member-"+b.ID())
		time.Sleep(time.Second)
		mustDelete(t, store, "g-table")
		for range 30 {
			time.Sleep(time.Second)
			wantNoSlotTwice(t, a, b)
		}
		wantHeld(t, 2, 0)(a, b)
	})
}

// After the table was deleted, epochs go on from the greatest that a living member knows, whatever the clock
// of the member shows that makes the new one.
func TestEpochsGoOnAfterTableWasDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Memory()
		fast := &simClock{start: time.Now(), wrong: time.Hour, rate: 1, stop: &stopper{}}
		ofA := &switchable{Store: store}
		a := mustJoin(t, ofA, Config{Name: "a", Slots: 2, Clock: fast})
		time.Sleep(10 * time.Second)
		before := a.Slots()[0].Fence
		ofA.away.Store(true)
		ofA.silent.Store(true)
		mustDelete(t, store, "g-table")
		b := mustJoin(t, store, Config{Name: "b", Slots: 2})
		time.Sleep(5 * time.Second)
		ofA.away.Store(false)
		ofA.silent.Store(false)
		time.Sleep(20 * time.Second)
		wantHeld(t, 1, 1)(a, b)
		for i, s := range b.Slots() {
			if s.Fence <= before {
				t.Errorf("slot %d has the epoch %d, after %d", i, s.Fence, before)
			}
		}
	})
}

// A slot that a member gets back while it is to move, and then keeps because a handler does not return, is
// listed: keys that changed in between were dropped.
func TestSlotThatComesBackWhileItMovesIsListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Memory()
		ofA := &switchable{Store: store}
		a := mustJoin(t, ofA, Config{Name: "a", Slots: 2, HandoverTimeout: 2 * time.Second})
		time.Sleep(time.Second)
		keys := []string{"stuck"}
		// All keys are in the slot that is to move.
		q := mustQueue(newRoot(), a, QueueConfig[string]{
			Hash: func(string) uint64 { return 1 << 63 },
			Keys: func(context.Context) (iter.Seq[string], error) { return slices.Values(keys), nil },
		})
		if key, _ := q.Get(); key != "stuck" {
			t.Fatal(key)
		}
		ofA.away.Store(true)
		time.Sleep(14 * time.Second)
		if a.Stats().Held != 0 {
			t.Fatal("a is still valid")
		}
		keys = append(keys, "missed")
		q.Add("missed")
		mustJoin(t, store, Config{Name: "b", Slots: 2}) // For it, a has just been alive.
		time.Sleep(time.Second)
		ofA.away.Store(false)
		got := make(chan string, 1)
		go func() { key, _ := q.Get(); got <- key }()
		defer func() { q.ShutDown(); <-got }()
		time.Sleep(1500 * time.Millisecond)
		if st := a.Stats(); st.Held != 2 || st.Stopping != 1 {
			t.Fatalf("no slot is to move: %+v", st)
		}
		time.Sleep(5 * time.Second)
		if st := a.Stats(); st.Held != 2 || st.Kept != 1 {
			t.Fatalf("the slot has not stayed: %+v", st)
		}
		if len(got) == 0 {
			t.Error("FAILURE: the keys of the slot were not listed")
		}
	})
}

// A person adds a label to the table's Lease. It has a new version then, and says the same.
func TestTableWithAnotherVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Memory()
		a := mustJoin(t, store, Config{Name: "a", Slots: 2})
		b := mustJoin(t, store, Config{Name: "b", Slots: 2})
		time.Sleep(4 * time.Second)
		wantHeld(t, 1, 1)(a, b)
		r, err := store.Get(t.Context(), "g-table")
		if err == nil {
			_, err = store.Update(t.Context(), r)
		}
		if err != nil {
			t.Fatal(err)
		}
		b.end() // It is killed.
		time.Sleep(20 * time.Second)
		wantHeld(t, 2)(a)
	})
}

// A member that cannot renew its record tries to give a slot to one that has just joined. It cannot write
// that either, and the other one is gone before the plan is in the table. So no newer table says what has
// become of the slot, unless the member writes one.
func TestSlotThatIsToStayAfterAllComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Memory()
		ofA, ofB, refused := &refuser{Store: store}, &refuser{Store: store}, errors.New("refused")
		a := mustJoin(t, ofA, Config{Name: "a", Slots: 2})
		time.Sleep(time.Second)
		wantHeld(t, 2)(a)
		ofA.members.Store(&refused)
		ofA.table.Store(&refused)
		ofB.table.Store(&refused)
		for a.Stats().Held > 0 {
			time.Sleep(100 * time.Millisecond)
		}
		b := mustJoin(t, ofB, Config{Name: "b", Slots: 2})
		time.Sleep(time.Second)
		b.end()
		mustDelete(t, store, "g-member-"+b.ID())
		ofA.members.Store(nil)
		ofA.table.Store(nil)
		time.Sleep(5 * time.Second)
		if st := a.Stats(); st.Held != 2 {
			t.Errorf("FAILURE: %d slots are held, want 2", st.Held)
		}
	})
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
