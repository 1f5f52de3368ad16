package sharding

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// a hands over a slot while 0 would have the first turn to give away those of a dead member. a's write does
// that as well: otherwise a row of handovers, each quicker than 0, would leave the slots without a holder.
func TestHandoverGivesAwaySlotsOfDead(t *testing.T) {
	m := holdingAll(2)
	m.setState(0, stopping)
	slots := []tableSlot{{holder: "a", next: "0", epoch: 3}, {holder: "dead", epoch: 3}}
	m.mu.view.table = &table{id: "t", epoch: 5, slots: slots}
	m.mu.self.version = "1"
	alive := memberData{ID: "0", Lease: int64(m.config.Lease), Queues: 1}
	m.mu.members = map[string]*knownMember{
		"0": {data: alive, usable: true}, "dead": {data: memberData{ID: "dead", Dead: true}}}
	next, _, _ := m.nextTable("t", m.now())
	if next == nil || next.slots[0].holder != "0" || next.slots[1].holder != "0" || len(m.mu.effects.log) > 0 {
		t.Fatalf("FAILURE: the next table is %v, the log %v", next, m.mu.effects.log)
	}
	if m.noteWriteLocked(next, nil); len(m.mu.effects.log) != 1 { // not at each attempt
		t.Errorf("FAILURE: the log is %v", m.mu.effects.log)
	}
}

// The server writes a's handover and answers that it is busy, and the client repeats the request: that is a
// conflict. a cannot read the table and is refused the next write, but does not take the slot back.
func TestHandoverThatConflictsWithItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ofA := &faulty{Store: Memory()}
		a := mustJoin(t, ofA, Config{Name: "a", Slots: 2})
		time.Sleep(3 * time.Second)
		written := false
		ofA.do(func(verb string, r Record) error {
			switch {
			case r.Name != "g-table":
				return nil
			case verb == "update" && !written:
				written = true
				ofA.silent.Store(true)
				_, _ = ofA.Store.Update(t.Context(), r)
				return ErrConflict
			case verb == "update":
				return ErrRefused
			case written:
				return errors.New("no answer")
			}
			return nil
		})
		b := mustJoin(t, ofA.Store, Config{Name: "0", Slots: 2}) // It writes the plan.
		wantNoSlotTwiceFor(t, 6*time.Second, a, b)
		wantHeld(t, 1, 1)(a, b)
	})
}

// A handover of long ago does not belong to a write that fails today: the member keeps the slot that it holds.
func TestHandoverOfLongAgoIsNotInDoubt(t *testing.T) {
	for _, refusal := range []error{errors.New("no answer"), ErrRefused} {
		for _, wasUnsure := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				ofA := &faulty{Store: Memory()}
				a := mustJoin(t, ofA, Config{Name: "a", Slots: 2})
				time.Sleep(3 * time.Second)
				b := mustJoin(t, ofA.Store, Config{Name: "b", Slots: 2})
				ofA.do(func(verb string, r Record) error {
					if !wasUnsure || verb != "update" || r.Name != "g-table" {
						return nil
					}
					_, _ = ofA.Store.Update(t.Context(), r) // The answer is lost.
					return errors.New("no answer")
				})
				time.Sleep(4 * time.Second)
				ofA.do(nil)
				time.Sleep(20 * time.Second)
				wantHeld(t, 1, 1)(a, b)
				b.end()
				ofA.refuse(refusal, true)
				for range 60 {
					time.Sleep(time.Second)
					if a.Stats().Held != 1 {
						t.Fatalf("FAILURE: %v, %v: a holds %d slots", refusal, wasUnsure, a.Stats().Held)
					}
				}
			})
		}
	}
}

// A handover was not written for certain, and then its slot is to stay. The member names itself anew, because
// only a newer table ends the attempt: until then the slot stays absent.
func TestSlotThatIsToStayIsNamedAnew(t *testing.T) {
	m := holdingAll(1)
	m.setState(0, absent)
	m.slots[0].handover = handover{table: "t", epoch: 6, unsure: true}
	present := &table{id: "t", epoch: 5, slots: []tableSlot{{holder: "a", epoch: 3}}}
	m.mu.view.table = present
	p := &planner{m: m, selfID: "a", t: present, takers: map[string]bool{"a": true}}
	next := present.clone()
	p.handOver(next)
	if got := next.slots[0]; got.holder != "a" || got.epoch != 6 {
		t.Errorf("FAILURE: the slot has the holder %q since %d", got.holder, got.epoch)
	}
}
