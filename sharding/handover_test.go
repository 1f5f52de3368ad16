package sharding

import "testing"

// A member that leaves while no other one takes slots gives them to nobody, and not to the member to which
// they were to move: that may be dead.
func TestLeaverGivesSlotsToNobody(t *testing.T) {
	m := holdingAll(1)
	m.setState(0, stopping)
	m.mu.phase = leaving
	present := &table{id: "t", epoch: 5, slots: []tableSlot{{holder: "a", next: "b", epoch: 3}}}
	m.mu.view.table = present
	p := &planner{m: m, selfID: "a", t: present}
	next := present.clone()
	p.handOver(next)
	if got := next.slots[0]; got.holder != "" || got.epoch != 6 {
		t.Errorf("FAILURE: the slot has the holder %q since %d", got.holder, got.epoch)
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
