package main

// rules are the protocol's, each broken by changes of the source.
var rules = []rule{
	{"validity counts from the end of a renewal", []change{
		{"own_record.go", "self.renewed = self.attempted", "self.renewed = m.nowByBoth()"},
	}},
	{"validity has no margin for clocks", []change{
		{"expire_loop.go", "m.config.Lease - m.margin()", "m.config.Lease"},
	}},
	{"a record is created a second time", []change{
		{"own_record.go", "if creates && d.Sequence > 1 {", "if false {"},
	}},
	{"a record is marked although it has changed", []change{
		{"dead_members.go", "\t\t_, err = m.readMember(id)\n\t\treturn err\n", "\t\tif r, err = m.get(m.recordName(id)); err != nil {\n\t\t\treturn err\n\t\t}\n\t\tr.Data = encode(d)\n\t\tif r, err = m.put(r); err != nil {\n\t\t\treturn err\n\t\t}\n"},
	}},
	{"handlers are not waited for", []change{
		{"handover.go", "return m.state(i) != serving && !m.isBusy(i)", "return m.state(i) != serving"},
	}},
	{"a slot comes back while its handover may still be written", []change{
		{"own_slots.go", "if s.handover.mayStillSucceed(t) {", "if false {"},
		{"own_slots.go", "(from == stopping || now >= m.mu.handOverAt)", "(from == stopping || from == serving && now >= m.mu.handOverAt)"},
	}},
	{"a slot that is to stay after all stays absent", []change{
		{"handover.go", "next.give(i, p.selfID)", "_ = 0"},
	}},
	{"epochs of a new table begin at the clock", []change{
		{"new_table.go", "max(m.config.Clock.Now().UnixMilli(), view.epochEver+1)", "m.config.Clock.Now().UnixMilli()"},
		{"plan.go", "max(next.epoch, p.m.mu.view.epochEver+1)", "next.epoch"},
	}},
	{"a table that has gone back in time is believed", []change{
		{"slot_table.go", "\t\treturn older\n", "\t\treturn same\n"},
	}},
	{"a table that contradicts the known one is believed", []change{
		{"slot_table.go", "\t\t\treturn contrary\n", "\t\t\tcontinue\n"},
	}},
	{"a table of the same epoch that says something else is believed", []change{
		{"slot_table.go", "case t.epoch == known.epoch:\n\t\treturn contrary", "case t.epoch == known.epoch:\n\t\treturn same"},
	}},
	{"validity does not end by the wall clock", []change{
		{"expire_loop.go", "-now.mono, time.Duration(m.wallUntil.Load())-now.wall)", "-now.mono)"},
	}},
	{"the own lease counts for others", []change{
		{"known_members.go", "k.data.Lease = int64(m.mu.view.longestLease)", "k.data.Lease = int64(m.config.Lease)"},
	}},
	{"a refused handover is not taken back", []change{
		{"table_write.go", "case errors.Is(err, ErrRefused) && !s", "case false && !s"},
	}},
	{"a member that was out of touch counts as dead at once", []change{
		{"own_record.go", "self.attempted.since(self.renewed) > m.config.Lease*2/3", "false"},
	}},
	{"a member that has just come gets slots at once", []change{
		{"plan.go", "if until > now {", "if false {"},
	}},
	{"a table is followed without another look", []change{
		{"table_view.go", "case began.mono >= self.followsSince:", "case true:"},
	}},
	{"records are written unconditionally", []change{
		{"leases.go", "UID: uid, ResourceVersion: version,", "UID: uid, ResourceVersion: version[:0],"},
	}},
	{"an update does not name the UID", []change{
		{"leases.go", "UID: uid, ResourceVersion: version,", "UID: uid[:0], ResourceVersion: version,"},
	}},
	{"keys are listed before the slot is held", []change{
		{"list_loop.go", "keys, err := q.listKeys(q.member.ctx)\n", "keys, err := q.listKeys(q.member.ctx)\n_ = q.member.sleep(q.member.ctx, 2e9, nil)\n"},
		{"queue.go", "bool { return q.member.state(q.slotOf(key)) == serving }", "bool {\nq.mu.Lock()\ndefer q.mu.Unlock()\nreturn !q.mu.listing && q.member.state(q.slotOf(key)) == serving\n}"},
	}},
	{"a listing that fails is not repeated", []change{
		{"list_loop.go", "(err == nil || q.member", "(true || q.member"},
	}},
	{"a slot that was to move and stays is not listed", []change{
		{"own_slots.go", "} else {\n\t\te.toList", "} else if from == absent {\n\t\te.toList"},
	}},
	{"a record that was made again is the member's own", []change{
		{"own_record.go", "&& m.mu.self.uid != r.UID", "&& false"},
	}},
	{"a refusal of a repeated request is certain", []change{
		{"leases.go", "&& requests.Load() > 1", "&& false"},
	}},
	{"the logger is called after Leave", []change{
		{"leave.go", "\tm.logger.end()\n", ""},
	}},
	{"shares may differ by two", []change{
		{"plan.go", "if i < extra {", "if i < extra && i != 1 || i == len(order)-1 && extra > 1 {"},
	}},
	{"slots move without need", []change{
		{"plan.go", "for _, moving := range []bool{false, true} {", "for _, moving := range []bool{false, true}[:len(takers)%2+1] {"},
		{"plan.go", "if isMoving == moving && room", "if i != 3 && isMoving == moving && room"},
	}},
	{"a member that leaves deletes a record that the table names", []change{
		{"leave.go", "if marked && !m.holdsNothing() {", "if marked && false {"},
	}},
	{"a member that has got no answer counts as dead at once", []change{
		{"own_record.go", "self.renewed.mono < m.mu.health.failedAt", "false"},
	}},
	{"nobody looks whether the machine was suspended", []change{
		{"expire_loop.go", "pause := m.config.Lease / 60", "pause := m.config.Lease"},
	}},
	{"validity does not end by the monotonic clock", []change{
		{"expire_loop.go", "min(time.Duration(m.validUntil.Load())-now.mono, ", "min("},
	}},
	{"a member that cannot renew its record tries it at each signal", []change{
		{"refresh_loop.go", "m.retryDelay(), nil // A server", "m.retryDelay(), m.toRefresh // A server"},
	}},
	{"a refused write of the table is no error", []change{
		{"health.go", "case m.forLease(h.unwritable):", "case false:"},
	}},
	{"an old handover counts as one of this write", []change{
		{"handover.go", "&& h.epoch == t.epoch-1 ", ""},
	}},
	{"a member of other slots has a share", []change{
		{"known_members.go", "err == nil && d.Slots != m.config.Slots", "false"},
	}},
	{"a member of another hash has a share", []change{
		{"member_queues.go", "len(queues) > 0 {", "len(queues) > 1<<20 {"},
	}},
	{"slots are released before it is their turn", []change{
		{"own_slots.go", "(from == stopping || now >= m.mu.handOverAt)", "true"},
	}},
	{"hashes are not compared", []change{
		{"hash.go", "ok && other != hash", "ok && other != hash && false"},
	}},
	{"after a conflict the last attempt counts", []change{
		{"own_record.go", "if d.Sequence < self.sequence {", "if false {"},
	}},
	{"slots are given away before the record is marked", []change{
		{"known_members.go", "case k.data.Dead, k.isGone && expired:", "case k.data.Dead, expired:"},
	}},
	{"the watch is believed that a member is gone", []change{
		{"known_members.go", "\t\tk.mustRead = true\n", "\t\tk.data.Dead = true\n"},
	}},
	{"a record that a person deleted counts as dead at once", []change{
		{"known_members.go", "k.isGone && expired:", "k.isGone:"},
	}},
	{"a member without a record is in a table", []change{
		{"plan.go", `, m.mu.self.version == "":`, ":"},
	}},
	{"a new table is filled before a lease has passed", []change{
		{"new_table.go", "case view.earlier && view.restEnds() > m.now():", "case false:"},
		{"new_table.go", "if rests && restEnds > m.now() {", "if rests && restEnds < 0 {"},
	}},
	{"slots are held by a table that lacks the hashes", []change{
		{"own_slots.go", "m.state(i) == absent && !t.hasHashes(m.mu.hashes)", "false"},
	}},
	{"slots are held by a table that cannot be used", []change{
		{"expire_loop.go", "|| view.unusable != nil ||", "||"},
	}},
	{"a table that cannot be used is remembered after its deletion", []change{
		{"table_view.go", "view.unusable = true, damagedVersion, nil", "_ = view.unusable == nil, damagedVersion, 0"},
	}},
	{"an edit of a record is a renewal", []change{
		{"known_members.go", "if !before.usable || d.Sequence > k.data.Sequence {", "if true {"},
	}},
	{"an older record is a renewal", []change{
		{"known_members.go", "!k.data.Dead && d.Sequence >= k.data.Sequence", "!k.data.Dead"},
	}},
	{"a member without a queue takes slots", []change{
		{"plan.go", "hasQueues := m.queuesIfAllLocked() > 0 &&", "hasQueues :="},
		{"known_members.go", "k.isAlive(now) && k.data.Queues > 0", "k.isAlive(now)"},
	}},
	{"a member that cannot use the table renews its record", []change{
		{"refresh_loop.go", "return fmt.Errorf(\"cannot use the table: %w\", err)", "_ = m.renew()\n\t\treturn fmt.Errorf(\"cannot use the table: %w\", err)"},
	}},
	{"a new member does not look which table the others' records name", []change{
		{"new_table.go", "if err != nil || d.Table != \"\" && d.Table != t.id {", "if false {"},
	}},
	{"a member whose record is older than what it has written continues", []change{
		{"own_record.go", "if d.Sequence < self.storedSequence {", "if false {"},
	}},
	{"a table of the past is believed", []change{
		{"table_view.go", `return m.endRestoredLocked("the table is older than one that this member has seen")`, "return nil"},
	}},
	{"a table that contradicts the known one is no sign of a restore", []change{
		{"table_view.go", `return m.endRestoredLocked("the table contradicts one that this member has seen")`, "return nil"},
	}},
	{"a member that was restored keeps its slots", []change{
		{"expire_loop.go", "!self.alive || m.mu.restored || ", ""},
		{"member.go", "m.mu.restored, m.mu.self.alive, m.mu.effects.shutDown = true, false, true", "m.mu.restored, m.mu.effects.shutDown = true, true"},
	}},
	{"a failed write of the table costs the slots that do not move", []change{
		{"table_write.go", "\t\t\ts.handover.unsure = true\n", "\t\t\ts.handover.unsure = true\n\t\t\tm.mu.self.alive = false\n"},
	}},
	{"a handover leaves the slots of the dead to those whose turn it is", []change{
		{"plan.go", "hasDead && handsOver:", "false && handsOver:"},
	}},
	{"a handover that conflicts is not in doubt", []change{
		{"table_write.go", "case errors.Is(err, ErrRefused) && !s", "case (wasChanged || errors.Is(err, ErrRefused)) && !s"},
	}},
	{"a new table with a lower epoch is a sign of a restore", []change{
		{"slot_table.go", "t.id != known.id && (t.settling || ", "t.id != known.id && ("},
	}},
	{"a late read of the table is a sign of a restore", []change{
		{"table_view.go", "\t\tif isLate {\n\t\t\treturn nil\n", "\t\tif false {\n\t\t\treturn nil\n"},
	}},
	{"each failure is logged", []change{
		{"log.go", "if c.failures&(c.failures-1) == 0 {", "if true {"},
	}},
	{"a record that cannot be marked is reported at once", []change{
		{"health.go", "m.forLease(k.unmarkable)", "k.unmarkable.isSo"},
	}},
	{"a damaged table is not replaced", []change{
		{"table_view.go", "case errors.Is(err, errDamaged):", "case errors.Is(err, errDamaged) && false:"},
	}},
	{"a table that replaces a damaged one is filled at once", []change{
		{"new_table.go", ` || view.damagedVersion != ""`, ""},
	}},
}
