package main

// rules are those of the protocol, each broken by changes of the source.
var rules = []rule{
	{"validity counts from the end of a renewal", []change{
		{"own_record.go", "self.renewed.latest(a.began)", "self.renewed.latest(m.nowByBoth())"},
	}},
	{"validity has no margin for clocks", []change{
		{"own_record.go", "m.config.Lease - m.config.Margin", "m.config.Lease"},
	}},
	{"a record is created a second time", []change{
		{"own_record.go", "if creates && sequence > 1 {", "if false {"},
	}},
	{"a record is marked although it has changed", []change{
		{"dead_members.go", "\t\t_, err = m.readMember(id)\n\t\treturn err\n", "\t\tif r, err = m.get(m.recordName(id)); err != nil {\n\t\t\treturn err\n\t\t}\n\t\tr.Data = encode(d, d.unknown)\n\t\tif r, err = m.put(r); err != nil {\n\t\t\treturn err\n\t\t}\n"},
	}},
	{"handlers are not waited for", []change{
		{"handover.go", "if m.state(i) == held || m.isBusy(i) {", "if m.state(i) == held {"},
	}},
	{"a slot comes back while its handover may still be written", []change{
		{"slots.go", "if s.handover.mayStillSucceed(t) {", "if false {"},
		{"slots.go", "(from == stopping || now >= m.mu.handOverAt)", "(from == stopping || from == held && now >= m.mu.handOverAt)"},
	}},
	{"a slot that is to stay after all stays absent", []change{
		{"handover.go", "next.give(i, p.selfID)", "_ = 0"},
	}},
	{"a new table is filled while a member names another one", []change{
		{"missing_table.go", "case !allFollow:", "case false:"},
	}},
	{"a new table is filled because the last one was settled", []change{
		{"table_io.go", "for range 20 {", "for i := range 20 {"},
		{"table_io.go", "if t.settling {", "if i == 0 && t.settling {"},
	}},
	{"epochs of a new table begin at the clock", []change{
		{"missing_table.go", "max(m.config.Clock.Now().UnixMilli(), view.epochEver+1)", "m.config.Clock.Now().UnixMilli()"},
		{"plan.go", "max(next.epoch, p.m.mu.view.epochEver+1)", "next.epoch"},
	}},
	{"a table that has gone back in time is believed", []change{
		{"table.go", "\t\treturn older\n", "\t\treturn same\n"},
	}},
	{"a table that contradicts the known one is believed", []change{
		{"table.go", "\t\t\treturn contrary\n", "\t\t\tcontinue\n"},
	}},
	{"a table of the same epoch that says something else is believed", []change{
		{"table.go", "case t.epoch == known.epoch:\n\t\treturn contrary", "case t.epoch == known.epoch:\n\t\treturn same"},
	}},
	{"a filled table has the id of the empty one", []change{
		{"plan.go", `next.id = p.m.config.newID("table")`, ""},
	}},
	{"validity does not end by the wall clock", []change{
		{"own_record.go", " || now.wall >= time.Duration(m.wallUntil.Load())", ""},
	}},
	{"a member that is not in a list is forgotten", []change{
		{"watch.go", "\t\t\tm.noteMissingLocked(k)", "\t\t\tdelete(m.mu.members, id)"},
	}},
	{"the own lease counts for others", []change{
		{"others.go", "k.data.Lease = int64(m.mu.view.longestLease)", "k.data.Lease = int64(m.config.Lease)"},
	}},
	{"a record that is being deleted is alive", []change{
		{"store.go", "\tif lease.DeletionTimestamp != nil {\n\t\treturn Record{}, fmt", "\tif false {\n\t\treturn Record{}, fmt"},
	}},
	{"a refused handover is not taken back", []change{
		{"table_io.go", "case m.mu.phase == staying: // One", "case false: //"},
	}},
	{"a member that was out of touch counts as dead at once", []change{
		{"own_record.go", "a.began.since(self.renewed) > m.config.Lease*2/3", "false"},
	}},
	{"a member that has just come gets slots at once", []change{
		{"plan.go", "if until > now {", "if false {"},
	}},
	{"a table is followed without another look", []change{
		{"table_io.go", "case began.mono >= self.followsSince:", "case true:"},
	}},
	{"records are written unconditionally", []change{
		{"store.go", "UID: uid, ResourceVersion: version,", "UID: uid, ResourceVersion: version[:0],"},
	}},
	{"an update does not name the UID", []change{
		{"store.go", "UID: uid, ResourceVersion: version,", "UID: uid[:0], ResourceVersion: version,"},
	}},
	{"keys are listed before the slot is held", []change{
		{"listing.go", "keys, err := q.keys(q.member.ctx)\n", "keys, err := q.keys(q.member.ctx)\n_ = q.member.sleep(q.member.ctx, 2e9, nil)\n"},
		{"queue.go", "if q.member.state(slotOf(q.hasher.hash(key), len(q.cells))) == absent {", "q.mu.Lock()\nlisting := q.mu.listing\nq.mu.Unlock()\nif listing || q.member.state(slotOf(q.hasher.hash(key), len(q.cells))) == absent {"},
	}},
	{"a listing that fails is not repeated", []change{
		{"listing.go", "if err == nil {", "if true {"},
	}},
	{"a slot that comes back while it is to move is not listed", []change{
		{"slots.go", "from == absent || s.stop.keysNotListed", "from == absent"},
	}},
	{"keys that were held back are forgotten when the slot stays", []change{
		{"aside.go", "isHeld := q.member.state(slot) != absent", "isHeld := false"},
	}},
	{"shares may differ by two", []change{
		{"plan.go", "if i < extra {", "if i < extra && i != 1 || i == len(order)-1 && extra > 1 {"},
	}},
	{"slots move without need", []change{
		{"plan.go", "for _, moving := range []bool{false, true} {", "for _, moving := range []bool{false, true}[:len(takers)%2+1] {"},
		{"plan.go", "if isMoving == moving && room", "if i != 3 && isMoving == moving && room"},
	}},
	{"a member that leaves deletes a record that the table names", []change{
		{"leave.go", "if marked && !m.holdsNothing() {", "if false {"},
	}},
	{"nobody takes its turn", []change{
		{"member.go", "min(rank, maxTurns)", "100*min(rank, maxTurns)"},
		{"member.go", "rank := 0", "rank := 1"},
	}},
	{"a member that has got no answer counts as dead at once", []change{
		{"own_record.go", "self.renewed.mono < m.mu.failedAt", "false"},
	}},
	{"nobody looks whether the machine was suspended", []change{
		{"own_record.go", "min(left, m.config.Lease/60)", "left"},
	}},
	{"validity does not end by the monotonic clock", []change{
		{"own_record.go", "now.mono >= time.Duration(m.validUntil.Load()) || ", ""},
		{"own_record.go", "left := min(time.Duration(m.validUntil.Load())-now.mono, ", "left := max(time.Second, "},
	}},
	{"the margin is an eighth of the lease", []change{
		{"config.go", "cmp.Or(c.Margin, c.Lease/6)", "cmp.Or(c.Margin, c.Lease/8)"},
	}},
	{"a watch shows a record that is being deleted", []change{
		{"store.go", "e.Type == watch.Deleted || lease.DeletionTimestamp != nil", "e.Type == watch.Deleted"},
		{"store.go", "if list.Items[i].DeletionTimestamp == nil {", "if true {"},
	}},
	{"a deleted table that a finalizer keeps is no error", []change{
		{"store.go", "getErr == nil && old.DeletionTimestamp != nil", "false && getErr == nil && old != nil"},
	}},
	{"one handler that does not return holds up all", []change{
		{"missing_table.go", "\t\tallFollow = allFollow && follows\n", "\t\tallFollow = allFollow && follows && len(d.Busy) == 0\n"},
	}},
	{"a new member that leaves does not say so", []change{
		{"plan.go", "\tp.nameLeaving(present)\n", ""},
	}},
	{"a member that cannot replace the table tries it without a pause", []change{
		{"missing_table.go", "m.mu.makeTableFrom = m.now() + m.retryDelay() // All", "// All"},
	}},
	{"a member that cannot renew its record tries it at each signal", []change{
		{"member.go", "m.retryDelay(), nil // A server", "m.retryDelay(), signals // A server"},
	}},
	{"a member that cannot write the table tries it at each signal", []change{
		{"member.go", "m.now()+soon, nil // A server", "m.now()+soon, m.toWork // A server"},
	}},
	{"a refused write of the table is no error", []change{
		{"member.go", "since > 0 && m.now()-since >= m.config.Lease {\n\t\treturn fmt.Errorf(\"sharding: cannot write", "since > 1<<60 {\n\t\treturn fmt.Errorf(\"sharding: cannot write"},
	}},
	{"an old handover counts as one of this write", []change{
		{"table_io.go", "h.epoch != t.epoch-1 || ", ""},
	}},
	{"a member that leaves releases at once what it may not hand over", []change{
		{"table_io.go", "case m.mu.phase == staying: // One", "default: //"},
	}},
	{"a member of other slots has a share", []change{
		{"others.go", "err == nil && d.Slots != m.config.Slots", "false"},
	}},
	{"a member of another hash has a share", []change{
		{"others.go", "k.data.Queues > 0 && fits &&", "k.data.Queues > 0 && (fits || true) &&"},
		{"plan.go", "if len(contradictions(p.hashes, hashes)) > 0 {", "if false {"},
		{"member_queues.go", "len(queues) > 0 {", "len(queues) > 1<<20 {"},
	}},
	{"slots are released before it is their turn", []change{
		{"slots.go", "(from == stopping || now >= m.mu.handOverAt)", "true"},
	}},
	{"a member whose clock has jumped waits", []change{
		{"slots.go", "is valid again at once.\n\t\tsignal(m.toRenew)", ""},
	}},
	{"a doubled mark costs another lease", []change{
		{"dead_members.go", "errors.Is(err, ErrConflict) || errors.Is(err, ErrNotFound) {\n\t\t_, err = m.readMember(id)\n\t\treturn err", "errors.Is(err, ErrConflict) || errors.Is(err, ErrNotFound) {\n\t\tk.leaseFrom = m.now()\n\t\treturn nil"},
	}},
	{"the right to delete is not checked", []change{
		{"rights.go", `{"delete", func(ctx context.Context) error { return s.Delete(ctx, name, none.Version) }},`, ""},
	}},
	{"a member without a queue is fine", []change{
		{"member_queues.go", "case now-*since < m.config.Lease:", "case true:"},
	}},
	{"hashes are not compared", []change{
		{"hash.go", "ok && other != hash", "ok && other != hash && false"},
	}},
	{"names have another hash than paths", []change{
		{"hash.go", "stablehash.NewPath[T](); ok {", "stablehash.NewPath[T](); false && ok {"},
	}},
	{"a member that lacks one of several queues takes slots", []change{
		{"member_queues.go", "if len(m.lackingLocked()) > 0 {", "if false {"},
	}},
	{"a watch that fails keeps members from joining", []change{
		{"rights.go", `case r.verb == "get" && err != nil`, "case err != nil"},
	}},
	{"fields of a later version are dropped", []change{
		{"record_format.go", "if len(unknown) > 0 {", "if false {"},
	}},
	{"an attempt is a handover", []change{
		{"slots.go", "if !h.uncounted || valid && h.mayStillSucceed(t) {", "if !h.uncounted {"},
		{"slots.go", "valid && h.table == t.id && t.slots[i].holder != m.mu.self.id {", "true || t == nil {"},
	}},
	{"after a conflict the last attempt counts", []change{
		{"own_record.go", "m.noteStored(d.Sequence, r)", "m.noteStored(m.mu.self.sequence, r)"},
	}},
	{"slots are given away before the record is marked", []change{
		{"others.go", "case k.data.Dead, k.isGone && expired:", "case k.data.Dead, expired:"},
	}},
	{"the watch is believed that a member is gone", []change{
		{"others.go", "\t\tk.mustRead = true\n", "\t\tk.data.Dead = true\n"},
	}},
	{"a record that a person deleted counts as dead at once", []change{
		{"others.go", "k.isGone && expired:", "k.isGone:"},
	}},
	{"a member without a record is in a table", []change{
		{"plan.go", `, m.mu.self.version == "":`, ":"},
	}},
	{"a new table is filled before a lease has passed", []change{
		{"missing_table.go", "case m.mu.view.earlier && restEnds > m.now():", "case false && restEnds > 0:"},
		{"missing_table.go", "if rests && restEnds > m.now() {", "if rests && restEnds < 0 {"},
	}},
	{"a logger that blocks keeps contexts alive", []change{
		{"own_record.go", "c.endHoldings()\n\t\t\tgo m.carryOut(c)", "m.carryOut(c)\n\t\t\tc.endHoldings()"},
	}},
	{"each member reads the records of all that leave", []change{
		{"others.go", "if k.data.Dead { // A read", "if false { // A read"},
	}},
	{"a member that cannot use the table keeps its slots", []change{
		{"own_record.go", "since > 0 && !m.mu.barred", "since > 1<<60 && !m.mu.barred"},
	}},
	{"an earlier life of a process is alive", []change{
		{"own_record.go", "m.memberLocked(self.id).isFormerSelf = true", "_ = 0"},
		{"own_record.go", "return id != m.mu.self.id && (", "return false && ("},
	}},
	{"slots are held by a table that cannot be used", []change{
		{"own_record.go", "|| view.unusable != nil ||", "||"},
	}},
	{"a member whose record changed by hand is dead", []change{
		{"others.go", "return k.usable && !k.mustRead &&", "return k.usable && k.leaseFrom == k.firstSeen &&"},
	}},
	{"a table that cannot be used is remembered after its deletion", []change{
		{"table_io.go", "view.missing, view.unusable = true, nil", "view.missing = view.unusable == nil"},
	}},
	{"an edit of a record is a renewal", []change{
		{"others.go", "if !before.usable || d.Sequence > k.data.Sequence {", "if true {"},
	}},
	{"an older record is a renewal", []change{
		{"others.go", "!k.data.Dead && d.Sequence >= k.data.Sequence", "!k.data.Dead"},
	}},
	{"Leave waits for a table that it cannot read", []change{
		{"leave.go", "view.isThere() && view.unusable == nil", "view.isThere()"},
	}},
	{"a newcomer does not wait for its overdue predecessor", []change{
		{"plan.go", "at = max(at, o.leaseFrom+time.Duration(o.data.Lease))", "_ = o"},
	}},
	{"a member without a queue takes slots", []change{
		{"plan.go", "hasQueues := m.queuesIfAllLocked() > 0 &&", "hasQueues :="},
		{"others.go", "k.isAlive(now) && k.data.Queues > 0", "k.isAlive(now)"},
	}},
	{"a list that fails for good is no error", []change{
		{"member.go", "since > 0 && m.now()-since >= m.config.Lease {\n\t\t\treturn fmt.Errorf(\"sharding: this", "since > 1<<60 {\n\t\t\treturn fmt.Errorf(\"sharding: this"},
	}},
	{"a member whose record is older than what it has written goes on", []change{
		{"own_record.go", "if sequence < self.storedSequence {", "if false {"},
	}},
	{"a table of the past is believed", []change{
		{"table_io.go", `return m.endRestoredLocked("the table is older than one that this member has seen")`, "return nil"},
	}},
	{"a table that contradicts the known one is no sign of a restore", []change{
		{"table_io.go", `return m.endRestoredLocked("the table contradicts one that this member has seen")`, "return nil"},
	}},
	{"a member that was restored keeps its slots", []change{
		{"own_record.go", "!self.alive || m.mu.restored || ", ""},
		{"member.go", "m.mu.restored, m.mu.self.alive, m.mu.changes.shutDown = true, false, true", "m.mu.restored, m.mu.changes.shutDown = true, true"},
	}},
	{"a failed write of the table costs the slots that do not move", []change{
		{"table_io.go", "\t\tcase !errors.Is(err, ErrRefused) && !isDenied(err) || s.handover.unsure:\n", "\t\tcase !errors.Is(err, ErrRefused) && !isDenied(err) || s.handover.unsure:\n\t\t\tm.mu.self.alive = false\n"},
	}},
	{"nobody settles whether a handover was written", []change{
		{"plan.go", "|| p.mustSettle() {", "{"},
	}},
	{"each failure is logged", []change{
		{"member.go", "*t&(*t-1) == 0 &&", ""},
	}},
	{"a record that cannot be marked is reported at once", []change{
		{"dead_members.go", "now >= k.markFailedSince+m.config.Lease", "true"},
	}},
}
