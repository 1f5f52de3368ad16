package sharding

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// a can neither renew its record nor mark that of b, which is overdue. It tries each once a second, not at
// each look.
func TestMemberThatCannotRenewWhileAnotherIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &refuser{Store: Memory()}
		a := mustJoin(t, store, Config{Name: "a", Slots: 2})
		b := mustJoin(t, store, Config{Name: "b", Slots: 2})
		time.Sleep(10 * time.Second)
		wantHeld(t, 1, 1)(a, b)
		b.end()
		time.Sleep(10 * time.Second) // In half a second b's record has not changed for a lease.
		err := errors.New("the server is busy")
		store.members.Store(&err)
		before := store.updates.Load()
		time.Sleep(10 * time.Second)
		if n := store.updates.Load() - before; n > 25 {
			t.Errorf("FAILURE: %d updates in ten seconds", n)
		}
		store.members.Store(nil)
		time.Sleep(17 * time.Second) // a was out of touch, so b has a lease to come back.
		wantHeld(t, 2)(a)
	})
}

var errUnmarkable = errors.New("no answer")

// unmarkable is a store that does not answer when a member marks the record of another one.
type unmarkable struct {
	Store
	own     string
	marks   atomic.Bool
	updates atomic.Int32
}

func (s *unmarkable) Update(ctx context.Context, r Record) (Record, error) {
	s.updates.Add(1)
	if r.Name != "g-table" && !strings.HasPrefix(r.Name, s.own) && !s.marks.Load() {
		return Record{}, errUnmarkable
	}
	return s.Store.Update(ctx, r)
}

// a cannot mark the records of the dead. It tries that once a second.
func TestMemberThatCannotMarkTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Memory()
		ofA := &unmarkable{Store: store, own: "g-member-a"}
		a := mustJoin(t, ofA, Config{Name: "a", Slots: 3})
		b, c := mustJoin(t, store, Config{Name: "b", Slots: 3}), mustJoin(t, store, Config{Name: "c", Slots: 3})
		time.Sleep(5 * time.Second)
		b.end()
		c.end()
		time.Sleep(20 * time.Second)
		if err := a.Err(); errors.Is(err, errUnmarkable) {
			t.Errorf("FAILURE: %v, although the dead have been silent for less than two leases", err)
		}
		before := ofA.updates.Load()
		time.Sleep(10 * time.Second)
		if n := ofA.updates.Load() - before; n < 10 || n > 70 {
			t.Errorf("FAILURE: %d updates in ten seconds", n)
		}
		if err := a.Err(); !errors.Is(err, errUnmarkable) || !a.Stats().InTouch {
			t.Errorf("FAILURE: in touch %t, %v", a.Stats().InTouch, err)
		}
		ofA.marks.Store(true)
		time.Sleep(10 * time.Second)
		if wantHeld(t, 3)(a); errors.Is(a.Err(), errUnmarkable) {
			t.Errorf("FAILURE: %v", a.Err())
		}
	})
}

// a cannot write the table, by which it would hand over a slot to b. It tries it four times a second, not at
// each signal.
func TestMemberThatCannotWriteTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Memory()
		ofA := &refuser{Store: store}
		a := mustJoin(t, ofA, Config{Name: "a", Slots: 2})
		q := mustQueue(newRoot(), a, QueueConfig[string]{Keys: noKeys[string],
			Hash: func(key string) uint64 { return uint64(len(key)) << 63 }})
		time.Sleep(time.Second)
		for _, key := range []string{"k", "kk"} {
			q.Add(key)
			_, _ = q.Get()
		}
		b := mustJoin(t, store, Config{Name: "b", Slots: 2})
		time.Sleep(10 * time.Second)
		err := errors.New("the server is busy")
		ofA.table.Store(&err)
		q.Done("k")
		q.Done("kk")
		before := ofA.updates.Load()
		for range 500 {
			time.Sleep(20 * time.Millisecond)
			signal(a.toWork)
		}
		if n := ofA.updates.Load() - before; n < 20 || n > 90 {
			t.Errorf("FAILURE: %d updates in ten seconds", n)
		}
		ofA.table.Store(nil)
		time.Sleep(10 * time.Second)
		wantHeld(t, 1, 1)(a, b)
	})
}

// uncreating is a store that creates no records of some names, and counts the calls.
type uncreating struct {
	Store
	prefix        atomic.Pointer[string]
	gets, creates atomic.Int32
}

func (s *uncreating) Get(ctx context.Context, name string) (Record, error) {
	s.gets.Add(1)
	return s.Store.Get(ctx, name)
}

func (s *uncreating) Create(ctx context.Context, r Record) (Record, error) {
	s.creates.Add(1)
	if prefix := s.prefix.Load(); prefix != nil && strings.HasPrefix(r.Name, *prefix) {
		return Record{}, errors.New("the database has no space left")
	}
	return s.Store.Create(ctx, r)
}

// The server creates no records for half an hour, and a tries to join. Its hundreds of lives cost nothing
// after that.
func TestJoinWhileNothingIsCreated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &uncreating{Store: Memory()}
		b := mustJoin(t, store.Store, Config{Name: "b", Slots: 4})
		none := ""
		store.prefix.Store(&none)
		time.AfterFunc(30*time.Minute, func() { store.prefix.Store(nil) })
		a := mustJoin(t, store, Config{Name: "a", Slots: 4})
		before := store.gets.Load()
		time.Sleep(5 * time.Second)
		wantHeld(t, 2, 2)(a, b)
		if n := store.gets.Load() - before; n > 20 {
			t.Errorf("FAILURE: %d reads in five seconds", n)
		}
	})
}

// Nobody can make a table, for example because a finalizer keeps the deleted one. Each of ten members tries
// it once a second.
func TestMembersThatCannotMakeTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &uncreating{Store: Memory()}
		var members []*Member
		for i := range 10 {
			members = append(members, mustJoin(t, store, Config{Name: fmt.Sprint("m", i), Slots: 10}))
		}
		time.Sleep(10 * time.Second)
		table := "g-table"
		store.prefix.Store(&table)
		if err := store.Delete(t.Context(), table, mustGet(t, store, table).Version); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		before := store.creates.Load()
		time.Sleep(10 * time.Second)
		if n := store.creates.Load() - before; n < 50 || n > 110 {
			t.Errorf("FAILURE: %d attempts in ten seconds", n)
		}
		store.prefix.Store(nil)
		time.Sleep(40 * time.Second)
		wantHeld(t, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)(members...)
	})
}
