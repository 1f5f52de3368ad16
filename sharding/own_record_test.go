package sharding

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A wall clock that was set back does not leave a later reading of it behind: validity would end too late
// after a suspension.
func TestLatestMoment(t *testing.T) {
	before, after := moment{mono: 1, wall: 100}, moment{mono: 2, wall: 40}
	if before.latest(after) != after || after.latest(before) != after || before.latest(before) != before {
		t.Error("the later moment is not the one of the monotonic clock")
	}
}

// b cannot use the table: it cannot read it, or it has got another Hash than the group. After a lease it
// gives its slots up. With another Hash it holds nothing from the first moment on, also if the server does
// not answer then. When it can use the table again, it has its share.
func TestMemberThatCannotUseTable(t *testing.T) {
	for _, cause := range []string{"read", "hash", "both"} {
		synctest.Test(t, func(t *testing.T) {
			a, b, _, ofB := two(t, Memory(), 4)
			newQueueOf(a, QueueConfig[string]{})
			time.Sleep(time.Second)
			if cause != "hash" {
				ofB.do(func(verb string, r Record) error {
					if r.Name == "g-table" && verb != "update" {
						return errors.New("hidden")
					}
					return nil
				})
			}
			if cause != "read" {
				newQueueOf(b, QueueConfig[string]{Hash: func(key string) uint64 { return HashString(key[:1]) }})
				wantHeld(t, 2, 0)(a, b)
			}
			wantNoSlotTwiceFor(t, 40*time.Second, a, b)
			wantHeld(t, 4, 0)(a, b)
			if b.Err() == nil || cause != "read" && !errors.Is(b.Err(), ErrIncompatible) {
				t.Error("FAILURE:", b.Err())
			}
			ofB.do(nil)
			time.Sleep(10 * time.Second)
			if cause == "read" {
				wantHeld(t, 2, 2)(a, b)
			}
		})
	}
}

// b has another Hash, and a handler of it never returns. Or its record was made unreadable, and it is dead.
// A new table does not wait for it forever.
func TestNewTableDoesNotWaitForever(t *testing.T) {
	for _, cause := range []string{"hash", "garbage"} {
		synctest.Test(t, func(t *testing.T) {
			server := newSimServer()
			store := Leases(server, "ns")
			a, b, _, _ := two(t, store, 2)
			newQueueOf(a, QueueConfig[string]{})
			if cause == "garbage" {
				b.end()
				setData(server, "g-member-"+b.ID(), "garbage")
				time.Sleep(20 * time.Second)
				wantHeld(t, 2)(a)
				setData(server, "g-member-"+b.ID(), "garbage")
			} else {
				stuck := newQueueOf(b, QueueConfig[uint64]{Name: "ints",
					Hash: func(key uint64) uint64 { return key << 63 }})
				stuck.Add(0)
				stuck.Add(1) // One of them is b's.
				_, _ = stuck.Get()
				expectQueues(b, "")
				newQueueOf(b, QueueConfig[string]{Hash: inLastSlot})
			}
			mustDelete(t, store, "g-table")
			time.Sleep(35 * time.Second)
			wantHeld(t, 2)(a)
		})
	}
}

// A record cannot be created in a namespace that is not there. The error says so, and the member keeps its
// id.
func TestMemberInNamespaceThatIsNotThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: Memory()}
		store.do(func(verb string, _ Record) error {
			if verb == "create" {
				return fmt.Errorf("%w: namespace g", ErrNotFound)
			}
			return nil
		})
		ids := 0
		config := Config{Group: "g", newID: func(name string) string {
			if name != "table" {
				ids++
			}
			return fmt.Sprint(name, "-", ids)
		}}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if _, err := Join(ctx, store, config); !errors.Is(err, ErrNotFound) || ids != 1 {
			t.Errorf("FAILURE: %v after %d ids", err, ids)
		}
		time.AfterFunc(5*time.Second, func() { store.do(nil) })
		m := mustJoin(t, store, Config{})
		time.Sleep(time.Second)
		wantHeld(t, 256)(m)
	})
}

// a can neither renew its record nor mark that of b, which is overdue. It tries each once a second, not at
// each look or signal.
func TestMemberThatCannotRenewWhileAnotherIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, ofA, _ := two(t, Memory(), 2)
		b.end()
		time.Sleep(10 * time.Second) // In half a second b's record has not changed for a lease.
		ofA.refuse(errors.New("the server is busy"), false)
		before := ofA.updates.Load()
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			signal(a.toRefresh)
		}
		if n := ofA.updates.Load() - before; n > 25 {
			t.Errorf("FAILURE: %d updates in ten seconds", n)
		}
		ofA.do(nil)
		time.Sleep(17 * time.Second) // a was out of touch, so b has a lease to come back.
		wantHeld(t, 2)(a)
	})
}

// An attempt to renew the record is stored and not answered, and the next one finds it so. Validity counts
// from the first one, as the others count it, although the second one began four seconds later.
func TestValidityCountsFromStoredAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, ofA, _ := two(t, Memory(), 2)
		isStored := false
		ofA.do(func(verb string, r Record) error {
			switch {
			case r.Name == "g-table":
			case verb == "update" && !isStored:
				isStored = true
				_, _ = ofA.Store.Update(t.Context(), r)
				time.Sleep(3 * time.Second)
				return errors.New("no answer")
			case verb == "get" && isStored:
				ofA.cutOff(true) // after this call
			}
			return nil
		})
		wantNoSlotTwiceFor(t, 30*time.Second, a, b)
		wantHeld(t, 0, 2)(a, b)
	})
}

// a cannot mark the records of the dead. It tries that once a second.
func TestMemberThatCannotMarkTheDead(t *testing.T) {
	errUnmarkable := errors.New("no answer")
	synctest.Test(t, func(t *testing.T) {
		a, b, ofA, ofB := two(t, Memory(), 2)
		c := mustJoin(t, ofB, Config{Name: "c", Slots: 2})
		ofA.do(func(verb string, r Record) error {
			if verb == "update" && strings.Contains(r.Data, `"dead":true`) {
				return errUnmarkable
			}
			return nil
		})
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
		ofA.do(nil)
		time.Sleep(10 * time.Second)
		if wantHeld(t, 2)(a); errors.Is(a.Err(), errUnmarkable) {
			t.Errorf("FAILURE: %v", a.Err())
		}
	})
}

// a cannot write the table, by which it would hand over a slot to b. It tries it four times a second, not at
// each signal.
func TestMemberThatCannotWriteTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ofA := &faulty{Store: Memory()}
		a := mustJoin(t, ofA, Config{Name: "a", Slots: 2})
		q := newQueueOf(a, QueueConfig[string]{Hash: func(key string) uint64 { return uint64(len(key)) << 63 }})
		time.Sleep(time.Second)
		for _, key := range []string{"k", "kk"} {
			q.Add(key)
			_, _ = q.Get()
		}
		b := mustJoin(t, ofA.Store, Config{Name: "b", Slots: 2})
		time.Sleep(10 * time.Second)
		ofA.refuse(errors.New("the server is busy"), true)
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
		ofA.do(nil)
		time.Sleep(10 * time.Second)
		wantHeld(t, 1, 1)(a, b)
	})
}

// Somebody deletes a's record and makes it again, as kubectl replace --force does. b has found it gone, so it
// gives a's slots away after a lease, no matter what the new record says. a must have noticed by then.
func TestRecordThatIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Leases(newSimServer(), "ns")
		a, b, ofA, _ := two(t, store, 2)
		before := a.ID()
		r := mustGet(t, store, "g-member-"+before)
		ofA.cutOff(true)
		mustDelete(t, store, r.Name)
		time.Sleep(100 * time.Millisecond)
		r.Version = ""
		if _, err := store.Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		ofA.away.Store(false) // Its watch stays dead.
		wantNoSlotTwiceFor(t, 40*time.Second, a, b)
		if st := a.Stats(); a.ID() == before || st.LostLeases != 1 || st.Err != nil {
			t.Errorf("FAILURE: %s continues as %s: %+v", before, a.ID(), st)
		}
	})
}

// Validity counts from the beginning of a renewal, although the answer came later.
func TestValidityCountsFromBeginningOfRenewal(t *testing.T) {
	m := holdingAll(1)
	m.mu.members = make(map[string]*knownMember)
	m.mu.self.sequence, m.mu.self.attempted = 1, moment{5, 7}
	d := memberData{Format: formatVersion, ID: "a", Sequence: 1, Lease: int64(m.config.Lease), Slots: 1, Table: "t"}
	_, err := m.noteStored(d, Record{Version: "1", Data: encode(d)})
	want := int64(m.config.Lease - m.config.Lease/6)
	if mono, wall := m.validUntil.Load()-5, m.wallUntil.Load()-7; mono != want || wall != want || err != nil {
		t.Errorf("FAILURE: valid for %v and %v, %v", time.Duration(mono), time.Duration(wall), err)
	}
}
