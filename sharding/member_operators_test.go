package sharding

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// What operators, restores and other programs do to the records. The simulation does the same at random.

// a is cut off. Somebody deletes its record and the table, and b's watch breaks off, so that b lists anew.
func TestOperatorDeletesTableAndRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newSimServer()
		ofA, store := &switchable{Store: Leases(server, "ns")}, Leases(server, "ns")
		a := mustJoin(t, ofA, Config{Name: "a", Slots: 4})
		b := mustJoin(t, store, Config{Name: "b", Slots: 4})
		time.Sleep(10 * time.Second)
		wantHeld(t, 2, 2)(a, b)
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
		store := Leases(server, "ns")
		a := mustJoin(t, store, Config{Name: "a", Slots: 2})
		b := mustJoin(t, store, Config{Name: "b", Slots: 2})
		time.Sleep(10 * time.Second)
		id := a.ID()
		server.edit("g-member-"+id, func(l *coordinationv1.Lease) { l.Labels = nil })
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			wantHeld(t, 1, 1)(a, b)
		}
		if a.ID() != id {
			t.Errorf("FAILURE: %s goes on as %s", id, a.ID())
		}
	})
}

// a's record has a finalizer and is deleted while a is cut off: others give its slots away, so it must not go
// on.
func TestOperatorDeletesRecordWithFinalizer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newSimServer()
		ofA, store := &switchable{Store: Leases(server, "ns")}, Leases(server, "ns")
		a := mustJoin(t, ofA, Config{Name: "a", Slots: 2})
		b := mustJoin(t, store, Config{Name: "b", Slots: 2})
		time.Sleep(10 * time.Second)
		id := a.ID()
		ofA.cutOff(true)
		time.Sleep(6 * time.Second)
		server.edit("g-member-"+id, func(l *coordinationv1.Lease) { l.Finalizers = []string{"example.com/keep"} })
		mustDelete(t, store, "g-member-"+id)
		ofA.cutOff(false)
		wantNoSlotTwiceFor(t, time.Minute, a, b)
		if a.ID() == id {
			t.Error("FAILURE: a goes on with a record that was deleted")
		}
		wantHeld(t, 1, 1)(a, b)
		// The table too. Nobody can create another one before it is gone.
		server.edit("g-table", func(l *coordinationv1.Lease) { l.Finalizers = []string{"example.com/keep"} })
		mustDelete(t, store, "g-table")
		wantNoSlotTwiceFor(t, time.Minute, a, b)
		if err := a.Err(); err == nil || !strings.Contains(err.Error(), "example.com/keep") {
			t.Error("FAILURE:", err)
		}
		server.edit("g-table", func(l *coordinationv1.Lease) { l.Finalizers = nil })
		wantNoSlotTwiceFor(t, time.Minute, a, b)
		wantHeld(t, 1, 1)(a, b)
	})
}

// The machine of a is suspended: its monotonic clock stands still. When it wakes up, a's handlers end within
// a quarter of a second.
func TestMemberOnSuspendedMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := &stopper{}
		clock := &simClock{start: time.Now(), rate: 1, stop: stop}
		store := &switchable{Store: Memory()}
		a := mustJoin(t, store, Config{Name: "a", Slots: 1, Clock: clock})
		time.Sleep(11 * time.Second) // No other timer is due soon after the machine wakes up.
		q := mustQueue(newRoot(), a, QueueConfig[string]{Keys: noKeys[string]})
		q.Add("key")
		key, _ := q.Get()
		ctx, release := q.Lease(t.Context(), key)
		defer release()
		store.cutOff(true) // Connections are dead when it wakes up.
		clock.suspend(20 * time.Second)
		time.Sleep(20*time.Second + 300*time.Millisecond)
		if ctx.Err() == nil {
			t.Error("FAILURE: the handler's context lives")
		}
		if q.Holds(key) {
			t.Error("FAILURE: the slot is held")
		}
		store.cutOff(false)
		time.Sleep(time.Minute)
	})
}

// All processes are stopped for longer than a lease. The first one that goes on does not take the other for
// dead, which goes on later.
func TestGroupThatWasStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Memory()
		var stops []*stopper
		var members []*Member
		for _, name := range []string{"a", "b"} {
			clock := &simClock{start: time.Now(), rate: 1, stop: &stopper{}}
			stops = append(stops, clock.stop)
			members = append(members, mustJoin(t, store, Config{Name: name, Slots: 2, Clock: clock}))
		}
		time.Sleep(11 * time.Second)
		wantHeld(t, 1, 1)(members...)
		for _, s := range stops {
			s.stop(func() {})
		}
		time.Sleep(20 * time.Second)
		stops[0].resume()
		time.Sleep(3 * time.Second)
		stops[1].resume()
		time.Sleep(2 * time.Second)
		wantHeld(t, 1, 1)(members...)
		for _, m := range members {
			if n := m.Stats().LostLeases; n != 0 {
				t.Errorf("FAILURE: it has lost %d leases", n)
			}
		}
	})
}

// setClock is a clock whose wall clock can be set.
type setClock struct {
	*simClock
	set atomic.Int64
}

func (c *setClock) Now() time.Time { return c.simClock.Now().Add(time.Duration(c.set.Load())) }

// Somebody sets the wall clock back while a is cut off. a's validity ends nevertheless, by the monotonic
// clock.
func TestMemberWhoseClockIsSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &setClock{simClock: &simClock{start: time.Now(), rate: 1, stop: &stopper{}}}
		store := Memory()
		ofA := &switchable{Store: store}
		a := mustJoin(t, ofA, Config{Name: "a", Slots: 2, Clock: clock})
		b := mustJoin(t, store, Config{Name: "b", Slots: 2})
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
// nothing, but renews its record at once.
func TestMemberWhoseClockIsSetForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &setClock{simClock: &simClock{start: time.Now(), rate: 1, stop: &stopper{}}}
		a := mustJoin(t, Memory(), Config{Name: "a", Slots: 2, Clock: clock})
		time.Sleep(11 * time.Second)
		clock.set.Store(int64(time.Hour))
		time.Sleep(300 * time.Millisecond)
		if lost := a.Stats().Lost; lost != 2 {
			t.Errorf("it has lost %d slots", lost)
		}
		wantHeld(t, 2)(a)
	})
}

// The clocks of a and b are 9 % too slow and too fast. a's validity ends before b takes over.
func TestMembersWithClocksOfDifferentSpeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Memory()
		ofA := &switchable{Store: store}
		a := mustJoin(t, ofA, Config{Name: "a", Slots: 2, Clock: &simClock{start: time.Now(), rate: 1 - simDrift,
			stop: &stopper{}}})
		b := mustJoin(t, store, Config{Name: "b", Slots: 2, Clock: &simClock{start: time.Now(), rate: 1 + simDrift,
			stop: &stopper{}}})
		time.Sleep(10 * time.Second)
		wantHeld(t, 1, 1)(a, b)
		ofA.cutOff(true)
		wantNoSlotTwiceFor(t, 20*time.Second, a, b)
		wantHeld(t, 0, 2)(a, b)
	})
}

// A logger that blocks keeps no context alive.
func TestMemberWithBlockedLogger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, logger := Memory(), &stopper{}
		ofA := &switchable{Store: store}
		a := mustJoin(t, ofA, Config{Name: "a", Slots: 1, Logger: slog.New(stoppable{slog.DiscardHandler, logger})})
		time.Sleep(time.Second)
		q := mustQueue(newRoot(), a, QueueConfig[string]{Keys: noKeys[string]})
		q.Add("key")
		key, _ := q.Get()
		ctx, release := q.Lease(t.Context(), key)
		defer release()
		b := mustJoin(t, store, Config{Name: "b", Slots: 1})
		logger.stop(func() {})
		ofA.cutOff(true)
		wantNoSlotTwiceFor(t, 20*time.Second, a, b)
		if ctx.Err() == nil || b.Stats().Held != 1 {
			t.Error("FAILURE: the handler's context lives", ctx.Err(), b.Stats().Held)
		}
		q.Done(key)
		ofA.cutOff(false)
		time.Sleep(20 * time.Second)
		logger.resume()
		time.Sleep(5 * time.Second)
		if err := a.Err(); err != nil {
			t.Error("FAILURE:", err)
		}
	})
}

// Under a table of a newer format nobody can hand over anything, so Leave does not wait, also with nobody
// beside it.
func TestLeaveUnderTableOfNewerFormat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newSimServer()
		a := mustJoin(t, Leases(server, "ns"), Config{Name: "a", Slots: 2})
		time.Sleep(10 * time.Second)
		setData(server, "g-table", `{"format":9}`)
		time.Sleep(10 * time.Second)
		began := time.Now()
		if err := a.Leave(t.Context()); err != nil || time.Since(began) > time.Second {
			t.Errorf("FAILURE: %v after %v", err, time.Since(began))
		}
	})
}

// The table is garbage, or of a newer format. The error says that it may be deleted, and after that all goes
// on.
func TestOperatorDeletesGarbage(t *testing.T) {
	for _, garbage := range []string{"garbage", `{"format":9}`} {
		synctest.Test(t, func(t *testing.T) {
			server := newSimServer()
			store := Leases(server, "ns")
			a := mustJoin(t, store, Config{Name: "a", Slots: 2})
			b := mustJoin(t, store, Config{Name: "b", Slots: 2})
			time.Sleep(10 * time.Second)
			setData(server, "g-table", garbage)
			time.Sleep(10 * time.Second)
			wantHeld(t, 0, 0)(a, b)
			if err := a.Err(); err == nil || !strings.Contains(err.Error(), "g-table") {
				t.Error(err)
			}
			if garbage != "garbage" { // Nobody can hand over anything then, so Leave does not wait.
				began := time.Now()
				if err := b.Leave(t.Context()); err != nil || time.Since(began) > time.Second {
					t.Errorf("FAILURE: %v after %v", err, time.Since(began))
				}
				return
			}
			mustDelete(t, store, "g-table")
			wantNoSlotTwiceFor(t, 20*time.Second, a, b)
			wantHeld(t, 1, 1)(a, b)
		})
	}
}
