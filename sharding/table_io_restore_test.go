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

// The table of a backup names nobody, or the dead, as the holders of slots that a holds now. The watch of a
// is silent, so it reads that table seconds later. A newcomer that knows nothing else must not take these
// slots meanwhile.
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
					setData(server, r.Name, encode(data, nil))
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

// The server is away, and comes back with a backup from before a has joined, when nobody held a slot. a
// notices that when it tries to renew its record again, a second later at most. c, which joins meanwhile,
// must not take a's slots before that.
func TestBackupThatIsOlderThanAllMembers(t *testing.T) {
	for offset := range 10 {
		synctest.Test(t, func(t *testing.T) {
			server := newSimServer()
			store := &switchable{Store: Leases(server, "ns")}
			d := mustJoin(t, store, Config{Name: "d", Slots: 4})
			time.Sleep(time.Second)
			if err := mustLeave(t, d, time.Second); err != nil {
				t.Error(err)
			}
			backup := server.backup()
			a := mustJoin(t, store, Config{Name: "a", Slots: 4})
			time.Sleep(20 * time.Second)
			wantHeld(t, 4)(a)
			store.away.Store(true)
			time.AfterFunc(10250*time.Millisecond, func() {
				server.restore(backup, 1000)
				store.away.Store(false)
			})
			time.Sleep(9*time.Second + time.Duration(offset)*100*time.Millisecond)
			c := mustJoin(t, store, Config{Name: "c", Slots: 4})
			wantNoSlotTwiceFor(t, time.Minute, a, c)
			wantHeld(t, 2, 2)(a, c)
		})
	}
}

// a's lease is long, and it does not hear of b for a time. Then the server goes away, and a backup is
// restored that lacks b's last renewals. a's own record has not gone back. It must not take b for dead before
// b has tried to renew its record again.
func TestBackupLacksRenewalsThatOneMemberHasNotSeen(t *testing.T) {
	restoreWithoutRenewals(t, 30*time.Second, 10*time.Second, 4*time.Second, 3*time.Second)
}

// a is out of touch until a backup is restored that lacks b's last renewals. b is stopped meanwhile, and
// valid when it goes on. A third of a lease is not long enough for b.
func TestBackupLacksRenewalsOfStoppedMember(t *testing.T) {
	restoreWithoutRenewals(t, 15*time.Second, 8*time.Second, 3*time.Second, 11*time.Second)
}

// restoreWithoutRenewals makes a backup and cuts off a, which has that lease, while b goes on for some time.
// Then b stops, the backup is restored while both are away, and b goes on some time after that.
func restoreWithoutRenewals(t *testing.T, leaseOfA, bGoesOn, bothAway, bStopped time.Duration) {
	for offset := range 20 {
		synctest.Test(t, func(t *testing.T) {
			server := newSimServer()
			ofA, ofB := &switchable{Store: Leases(server, "ns")}, &switchable{Store: Leases(server, "ns")}
			a := mustJoin(t, ofA, Config{Name: "a", Slots: 4, Lease: leaseOfA})
			b := mustJoin(t, ofB, Config{Name: "b", Slots: 4})
			time.Sleep(100*time.Second + time.Duration(offset)*250*time.Millisecond)
			wantHeld(t, 2, 2)(a, b)
			backup := server.backup()
			ofA.cutOff(true)
			time.Sleep(bGoesOn)
			ofB.away.Store(true)
			time.Sleep(bothAway)
			server.restore(backup, 1000)
			ofA.cutOff(false)
			time.AfterFunc(bStopped, func() { ofB.away.Store(false) })
			wantNoSlotTwiceFor(t, time.Minute, a, b)
			wantHeld(t, 2, 2)(a, b)
		})
	}
}

// All members that knew the table are dead when somebody puts an old one back. Their records name a later
// epoch, so a newcomer does not go on from it, but replaces it.
func TestOperatorRestoresTableOfTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newSimServer()
		store := Leases(server, "ns")
		a := mustJoin(t, store, Config{Name: "a", Slots: 4})
		time.Sleep(10 * time.Second)
		old := mustGet(t, store, "g-table")
		b := mustJoin(t, store, Config{Name: "b", Slots: 4})
		time.Sleep(10 * time.Second)
		wantHeld(t, 2, 2)(a, b)
		a.end()
		b.end()
		setData(server, "g-table", old.Data)
		c := mustJoin(t, store, Config{Name: "c", Slots: 4})
		time.Sleep(time.Minute)
		if n := c.Stats().Held; n != 4 {
			t.Errorf("FAILURE: c holds %d of 4 slots", n)
		}
	})
}

// d is dead, b has just joined and got its slots, and c has seen neither. Then the server goes away, and a
// backup is restored in which d's slots are with d. c must not take them before b has noticed that.
func TestRestoreTakesBackWhatOneMemberHasNotSeen(t *testing.T) {
	for away := range 10 {
		synctest.Test(t, func(t *testing.T) {
			server := newSimServer()
			store := Leases(server, "ns")
			ofB, ofC := &switchable{Store: store}, &switchable{Store: store}
			a := mustJoin(t, store, Config{Name: "a", Slots: 6})
			c := mustJoin(t, ofC, Config{Name: "c", Slots: 6})
			d := mustJoin(t, store, Config{Name: "d", Slots: 6})
			time.Sleep(17 * time.Second)
			wantHeld(t, 2, 2, 2)(a, c, d)
			d.end()
			old := server.backup()
			time.Sleep(11 * time.Second)
			ofC.cutOff(true)
			b := mustJoin(t, ofB, Config{Name: "b", Slots: 6})
			for range 500 {
				if b.Stats().Held == 2 {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			wantHeld(t, 2)(b)
			ofB.silent.Store(true)             // It reads the table seconds later.
			time.Sleep(300 * time.Millisecond) // c lists the records before it renews its own one, or after it.
			server.restore(old, 0)
			data, err := decodeMember(mustGet(t, store, "g-member-"+d.ID()))
			if err != nil {
				t.Fatal(err)
			}
			data.Dead = true
			setData(server, "g-member-"+d.ID(), encode(data, nil))
			a.end()
			time.Sleep(time.Duration(away) * 100 * time.Millisecond)
			if n := c.Stats().Held; n != 2 {
				t.Errorf("c holds %d slots: this shows nothing", n)
			}
			ofC.cutOff(false)
			wantNoSlotTwiceFor(t, time.Minute, b, c)
			ofB.silent.Store(false)
			time.Sleep(time.Minute)
			wantHeld(t, 3, 3)(b, c)
		})
	}
}

// Somebody puts an old table back, and for some time nobody can write another one. Nobody holds slots
// meanwhile.
func TestOperatorRestoresTableThatCannotBeReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newSimServer()
		store := &refuser{Store: Leases(server, "ns")}
		a := mustJoin(t, store, Config{Name: "a", Slots: 4})
		time.Sleep(10 * time.Second)
		old := mustGet(t, store, "g-table")
		b := mustJoin(t, store, Config{Name: "b", Slots: 4})
		time.Sleep(10 * time.Second)
		wantHeld(t, 2, 2)(a, b)
		err := fmt.Errorf("%w: quota", ErrRefused)
		store.table.Store(&err)
		setData(server, "g-table", old.Data)
		for range 5 {
			time.Sleep(time.Second)
			if n := a.Stats().Held + b.Stats().Held; n != 0 {
				t.Fatalf("FAILURE: %d slots are held by a table that has gone back", n)
			}
		}
		store.table.Store(nil)
		wantNoSlotTwiceFor(t, 30*time.Second, a, b)
		wantHeld(t, 2, 2)(a, b)
	})
}

// a, with a longer lease than all others, is cut off, and its record is deleted. Then the table is made anew
// from a copy, or is deleted when only the record of b, which is cut off too, shows how long to wait. c,
// which joins last, must wait for a's lease.
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

// lateWatch is a store whose watches report no change before until is closed.
type lateWatch struct {
	Store
	until atomic.Pointer[chan struct{}]
}

func (s *lateWatch) Watch(ctx context.Context, group, version string, changed func(Event)) error {
	return s.Store.Watch(ctx, group, version, func(e Event) {
		if until := s.until.Load(); until == nil || opens(ctx, *until) {
			changed(e)
		}
	})
}

// a is stopped, and b gets its slots. Then somebody puts an old table back, the last one that a has seen, by
// which these slots are still a's. b has not read it yet. When a goes on, as a new member because it was
// taken for dead, it must hear of b before it gives its old slots away.
func TestMemberThatWasStoppedAndOldTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newSimServer()
		store := Leases(server, "ns")
		clock := &simClock{start: time.Now(), rate: 1, stop: &stopper{}}
		ofA, ofB := &lateWatch{Store: store}, &switchable{Store: store}
		a := mustJoin(t, ofA, Config{Name: "a", Slots: 4, Clock: clock})
		b := mustJoin(t, ofB, Config{Name: "b", Slots: 4})
		time.Sleep(10 * time.Second)
		wantHeld(t, 2, 2)(a, b)
		old, until := mustGet(t, store, "g-table"), make(chan struct{})
		ofA.until.Store(&until)
		clock.stop.stop(func() {})
		time.Sleep(21 * time.Second)
		if n := b.Stats().Held; n != 4 {
			t.Fatalf("b holds %d slots", n)
		}
		ofB.silent.Store(true)
		setData(server, "g-table", old.Data)
		clock.stop.resume()
		time.Sleep(10 * time.Millisecond) // It notices that its validity has ended.
		wantNoSlotTwiceFor(t, 10*time.Second, a, b)
		ofB.silent.Store(false)
		close(until)
		wantNoSlotTwiceFor(t, 40*time.Second, a, b)
		wantHeld(t, 2, 2)(a, b)
	})
}

// a, of which a handler does not return, was taken for dead, and b got its slot. After the table was deleted,
// a must not claim that slot: a handler of b runs.
func TestOperatorDeletesTableAfterSlotHasMoved(t *testing.T) {
	for range 8 { // Lists are in any order.
		synctest.Test(t, func(t *testing.T) {
			store := Memory()
			ofA := &switchable{Store: store}
			a := mustJoin(t, ofA, Config{Name: "a", Slots: 2})
			b := mustJoin(t, store, Config{Name: "b", Slots: 2})
			time.Sleep(10 * time.Second)
			s := 0
			if a.state(1) != absent {
				s = 1
			}
			config := QueueConfig[string]{Keys: noKeys[string], Hash: func(string) uint64 { return uint64(s) << 63 }}
			ofB := NewQueue(newRoot(), b, config)
			q := NewQueue(newRoot(), a, config)
			q.Add("stuck")
			_, _ = q.Get()
			ofA.cutOff(true)
			time.Sleep(30 * time.Second)
			ofB.Add("stuck")
			_, _ = ofB.Get()
			ofA.cutOff(false)
			time.Sleep(time.Second)
			mustDelete(t, store, "g-table")
			for range 60 {
				time.Sleep(time.Second)
				if wantNoSlotTwice(t, a, b); a.state(s) != absent {
					t.Fatal("FAILURE: a has the slot, of which a handler of b runs")
				}
			}
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

// Somebody deletes the table while a handler of a does not return, and removes the label from a's record.
// Whoever fills the new table, a or another one, leaves the slot with a, although no list shows its record.
func TestOperatorRemovesLabelWhileHandlerIsStuck(t *testing.T) {
	for _, name := range []string{"a", "z"} {
		synctest.Test(t, func(t *testing.T) {
			store := &unlisted{Store: Memory()}
			a := mustJoin(t, store, Config{Name: name, Slots: 4})
			time.Sleep(time.Second)
			q := NewQueue(newRoot(), a, QueueConfig[string]{Keys: noKeys[string],
				Hash: func(string) uint64 { return 1 << 62 }})
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
