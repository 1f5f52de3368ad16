package sharding

// handover is an attempt to give a slot away by a write that replaces the table of that id and epoch. The
// slot stays absent while it may still succeed.
type handover struct {
	table  string
	epoch  int64
	unsure bool // The write reported an error, and may take effect later.
}

// mayStillSucceed reports whether the handover may still succeed although the table is t.
func (h handover) mayStillSucceed(t *table) bool { return h.table == t.id && h.epoch >= t.epoch }

// isDecidedBy reports whether the write of table t carries out this handover of slot i, or gives the slot to
// its holder anew, which ends the handover.
func (h handover) isDecidedBy(t *table, i int) bool {
	return h.table == t.id && h.epoch == t.epoch-1 && t.slots[i].epoch == t.epoch
}

// handOver makes next give away the member's slots that are to move and whose handlers have returned. If a
// slot is to stay after all while an attempt may still succeed, next names its holder anew: that ends it.
func (p *planner) handOver(next *table) {
	for i, slot := range next.slots {
		switch {
		case slot.holder != p.selfID:
		case slot.next == "" && p.m.mu.phase == staying && p.m.slots[i].handover.mayStillSucceed(p.t):
			next.give(i, p.selfID)
		case !p.takers[slot.next]:
		case p.m.releaseLocked(i, p.t):
			next.give(i, slot.next)
		}
	}
}

// releaseLocked makes slot i absent if it may, so that a write that replaces table t can give it away. It
// reports whether the slot can be given away now.
func (m *Member) releaseLocked(i int, t *table) bool {
	if !m.mayReleaseLocked(i) {
		return false
	}
	s := &m.slots[i]
	if m.state(i) == stopping {
		m.dropLocked(i, ErrNotHeld)
	}
	s.handover.unsure = s.handover.unsure && s.handover.mayStillSucceed(t)
	s.handover.table, s.handover.epoch = t.id, t.epoch
	return true
}

// mayReleaseLocked reports whether slot i is not serving, and none of its keys is being handled. The state
// comes first: a key that is handed out now is seen by isBusy, or sees that it is not serving.
func (m *Member) mayReleaseLocked(i int) bool { return m.state(i) != serving && !m.isBusy(i) }
