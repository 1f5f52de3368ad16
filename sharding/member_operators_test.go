package sharding

import (
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// What operators, clocks and machines do to members.

// a is cut off. Somebody deletes its record and the table, and b's watch breaks off, so that b lists anew.
func TestOperatorDeletesTableAndRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newSimServer()
		store := Leases(server, "ns")
		a, b, ofA, _ := two(t, store, 4)
		ofA.cutOff(true)
		mustDelete(t, store, "g-member-"+a.ID())
		mustDelete(t, store, "g-table")
		server.restore(server.backup(), 0)
		c := mustJoin(t, store, Config{Name: "c", Slots: 4})
		wantNoSlotTwiceFor(t, time.Minute, a, b, c)
		wantHeld(t, 0, 2, 2)(a, b, c)
	})
}

// Somebody removes the label from a's record, which looks deleted then to a watch. a is alive, and nothing
// moves.
func TestOperatorRemovesLabel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newSimServer()
		a, b, _, _ := two(t, Leases(server, "ns"), 2)
		id := a.ID()
		server.edit("g-member-"+id, func(l *coordinationv1.Lease) { l.Labels = nil })
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			wantHeld(t, 1, 1)(a, b)
		}
		if a.ID() != id {
			t.Errorf("FAILURE: %s continues as %s", id, a.ID())
		}
	})
}

// The machine of a is suspended: its monotonic clock stands still. When it wakes up, a's handlers end within
// a quarter of a second.
func TestMemberOnSuspendedMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &simClock{start: time.Now(), rate: 1, stop: &stopper{}}
		store := &faulty{Store: Memory()}
		a := mustJoin(t, store, Config{Name: "a", Slots: 1, Clock: clock})
		time.Sleep(11 * time.Second) // No other timer is due soon after the machine wakes up.
		q := newQueueOf(a, QueueConfig[string]{})
		q.Add("key")
		key, _ := q.Get()
		ctx, release := q.Lease(t.Context(), key)
		defer release()
		store.cutOff(true) // Connections are dead when it wakes up.
		clock.suspend(20 * time.Second)
		time.Sleep(20*time.Second + 300*time.Millisecond)
		if ctx.Err() == nil || q.Holds("key") {
			t.Errorf("FAILURE: the handler's context: %v, the slot is held: %t", ctx.Err(), q.Holds("key"))
		}
		store.cutOff(false)
		time.Sleep(time.Minute)
	})
}

// setClock is a clock whose wall clock can be set.
type setClock struct {
	*simClock
	set atomic.Int64
}

func (c *setClock) Now() time.Time { return c.simClock.Now().Add(time.Duration(c.set.Load())) }

func newSetClock() *setClock {
	return &setClock{simClock: &simClock{start: time.Now(), rate: 1, stop: &stopper{}}}
}

// Somebody sets the wall clock back while a is cut off. a's validity ends nevertheless, by the monotonic
// clock.
func TestMemberWhoseClockIsSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock, ofA := newSetClock(), &faulty{Store: Memory()}
		a := mustJoin(t, ofA, Config{Name: "a", Slots: 2, Clock: clock})
		b := mustJoin(t, ofA.Store, Config{Name: "b", Slots: 2})
		time.Sleep(10 * time.Second)
		wantHeld(t, 1, 1)(a, b)
		ofA.cutOff(true)
		clock.set.Store(-int64(time.Hour))
		wantNoSlotTwiceFor(t, time.Minute, a, b)
		wantHeld(t, 0, 2)(a, b)
		ofA.cutOff(false)
		time.Sleep(20 * time.Second)
		wantHeld(t, 1, 1)(a, b)
	})
}

// Somebody sets the wall clock forward by more than a lease. That looks like a suspension, so a holds
// nothing, but renews its record at once. Its logger is slow, and Lease does not wait for that.
func TestMemberWhoseClockIsSetForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := newSetClock()
		logger := slog.New(logFunc(func(r slog.Record) {
			if r.Message == "Lost slots" {
				time.Sleep(100 * time.Millisecond)
			}
		}))
		a := mustJoin(t, Memory(), Config{Name: "a", Slots: 2, Clock: clock, Logger: logger})
		q := newQueueOf(a, QueueConfig[string]{})
		time.Sleep(11*time.Second + 7*time.Millisecond) // No loop is awake.
		q.Add("key")
		key, _ := q.Get()
		clock.set.Store(int64(time.Hour))
		began := time.Now()
		_, _ = q.Lease(t.Context(), key)
		if took := time.Since(began); took > 0 {
			t.Errorf("FAILURE: Lease has waited for %v", took)
		}
		time.Sleep(300 * time.Millisecond)
		if lost := a.Stats().Lost; lost != 2 {
			t.Errorf("it has lost %d slots", lost)
		}
		wantHeld(t, 2)(a)
	})
}

// The table is of a newer format, or a Lease of somebody else. The error names it, and says that it may be
// deleted. Nobody can hand over anything, so Leave does not wait, also with nobody beside it.
func TestTableOfNobody(t *testing.T) {
	for _, data := range []string{"", `{"format":9}`} {
		synctest.Test(t, func(t *testing.T) {
			server := newSimServer()
			store := Leases(server, "ns")
			a, b, _, _ := two(t, store, 2)
			server.edit("g-table", func(l *coordinationv1.Lease) {
				l.Annotations[dataAnnotation] = data
				if data == "" {
					l.Labels = nil
				}
			})
			time.Sleep(10 * time.Second)
			wantHeld(t, 0, 0)(a, b)
			if err := a.Err(); !errors.Is(err, ErrIncompatible) || !strings.Contains(err.Error(), "g-table") {
				t.Error("FAILURE:", err)
			}
			if data == "" {
				mustDelete(t, store, "g-table")
				wantNoSlotTwiceFor(t, 20*time.Second, a, b)
				wantHeld(t, 1, 1)(a, b)
				return
			}
			for _, m := range []*Member{a, b} {
				if err := mustLeave(t, m, time.Second); err != nil {
					t.Error("FAILURE:", err)
				}
			}
		})
	}
}

// Somebody damages the table, by whose last state a holds slots and is cut off. Its record is gone as well, so
// nothing that c can read shows that. c replaces the table, and nobody has slots before a lease has passed.
func TestDamagedTable(t *testing.T) {
	for _, data := range []string{"", "garbage", "{}", `{"format":1,"table":"t","slots":2,"epoch":5}`} {
		synctest.Test(t, func(t *testing.T) {
			server := newSimServer()
			store := Leases(server, "ns")
			a, b, ofA, ofB := two(t, store, 2)
			ofA.cutOff(true)
			ofB.cutOff(true)
			mustDelete(t, store, "g-member-"+a.ID())
			mustDelete(t, store, "g-member-"+b.ID())
			before := mustGet(t, store, "g-table").UID
			setData(server, "g-table", data)
			c := mustJoin(t, store, Config{Name: "c", Slots: 2})
			wantNoSlotTwiceFor(t, 10*time.Second, a, b, c)
			ofB.cutOff(false)
			wantNoSlotTwiceFor(t, 10*time.Second, a, b, c)
			wantHeld(t, 0, 1, 1)(a, b, c)
			if after := mustGet(t, store, "g-table").UID; after != before {
				t.Errorf("FAILURE: another Lease %s", after)
			}
		})
	}
}
