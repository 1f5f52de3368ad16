package sharding

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// breakage is a rule of the protocol, broken by changes of the source.
type breakage struct {
	rule    string
	changes []change
}

type change struct{ file, old, new string }

// Many have a test of their own. With SHARDING_BREAK=0 these alone run, and the test shows for which rules it
// takes the simulation: most of them are found within ten histories, some take a few hundred or thousand. One
// rule is not among them: that validity needs the table as well. A new table waits for all that follow
// another one, so it takes two broken rules to do harm.
var breakages = []breakage{
	{"validity counts from the end of a renewal", []change{{"own_record.go", "self.renewed.latest(a.began)",
		"self.renewed.latest(m.nowByBoth())"}}},
	{"validity has no margin for clocks", []change{{"own_record.go", "m.config.Lease - m.config.Margin",
		"m.config.Lease"}}},
	{"after a conflict the last attempt counts",
		[]change{{"own_record.go", "m.noteStored(d.Sequence, r.Version)",
			"m.noteStored(m.mu.self.sequence, r.Version)"}}},
	{"a record is created a second time", []change{{"own_record.go", "if creates && sequence > 1 {",
		"if false {"}}},
	{"slots are given away before the record is marked",
		[]change{{"others.go", "case k.data.Dead, k.isGone && expired && k.doubt == 0:",
			"case k.data.Dead, expired:"}}},
	{"a record is marked although it has changed",
		[]change{{"dead_members.go", "\t\t_, err = m.readMember(id)\n\t\treturn err\n",
			"\t\tif r, err = m.get(m.recordName(id)); err != nil {\n\t\t\treturn err\n\t\t}\n\t\tr.Data = encode(d, d.unknown)\n\t\tif r, err = m.put(r); err != nil {\n\t\t\treturn err\n\t\t}\n"}}},
	{"the cache is believed that a member is gone", []change{{"others.go", "k.doubt = m.lastSerial.Add(1) // Perhaps",
		"k.data.Dead = true // Perhaps"}}},
	{"a record that a person deleted counts as dead at once",
		[]change{{"others.go", "k.isGone && expired && k.doubt == 0:", "k.isGone:"}}},
	{"a member without a record is in a table", []change{{"plan.go", "case m.mu.self.version == \"\":",
		"case false:"}}},
	{"handlers are not waited for", []change{{"handover.go", "if m.state(i) == held || m.isBusy(i) {",
		"if m.state(i) == held {"}}},
	{"a slot comes back while its handover may still be written",
		[]change{{"slots.go", "if s.handover.mayStillSucceed(t) {", "if false {"},
			{"slots.go", "(from == stopping || now >= m.mu.handOverAt)",
				"(from == stopping || from == held && now >= m.mu.handOverAt)"}}},
	{"a slot that is to stay after all stays absent",
		[]change{{"handover.go", "next.give(i, p.selfID)", "_ = 0"}}},
	{"a new table is filled before a lease has passed",
		[]change{{"missing_table.go", "case earlier && restEnds > m.now():", "case false && restEnds > 0:"}}},
	{"a new table is filled while a member names another one",
		[]change{{"missing_table.go", "case !allFollow:", "case false:"}}},
	{"a new table gives away slots whose handlers still run",
		[]change{{"plan.go", "if i < len(next.slots) && !p.givable[id] {", "if false {"}}},
	{"a new table is filled because the last one was settled",
		[]change{{"table_io.go", "for range 20 {", "for i := range 20 {"},
			{"table_io.go", "if t.settling {", "if i == 0 && t.settling {"}}},
	{"epochs of a new table begin at the clock",
		[]change{{"missing_table.go", "max(m.config.Clock.Now().UnixMilli(), view.epochEver+1)",
			"m.config.Clock.Now().UnixMilli()"}, {"plan.go", "max(next.epoch, p.m.mu.view.epochEver+1)", "next.epoch"}}},
	{"a table that has gone back in time is believed",
		[]change{{"table.go", "\t\treturn older\n", "\t\treturn same\n"}}},
	{"a table that contradicts the known one is believed",
		[]change{{"table.go", "\t\t\treturn contrary\n", "\t\t\tcontinue\n"}}},
	{"a table of the same epoch that says something else is believed",
		[]change{{"table.go", "case t.epoch == known.epoch:\n\t\treturn contrary",
			"case t.epoch == known.epoch:\n\t\treturn same"}}},
	{"a filled table has the id of the empty one",
		[]change{{"plan.go", "next.id = p.m.config.newID(\"table\")", ""}}},
	{"a copy of a table is believed", []change{{"table.go", "case t.copied:", "case false:"}}},
	{"validity does not end by the wall clock",
		[]change{{"own_record.go", " || now.wall >= time.Duration(m.wallUntil.Load())", ""}}},
	{"a logger that blocks holds up the member", []change{{"late_log.go", "case h.lines <- line{h.Handler, r}:",
		"case h.lines <- line{h.Handler, r}:\n\t\t_ = h.Handler.Handle(context.Background(), r)"}}},
	{"each member reads the records of all that leave",
		[]change{{"others.go", "case k.data.Dead && k.doubt == 0:", "case false:"}}},
	{"a member that is not in a list is forgotten",
		[]change{{"watch.go", "\t\t\tm.noteMissingLocked(k)", "\t\t\tdelete(m.mu.members, id)"}}},
	{"the own lease counts for others", []change{{"others.go", "k.data.Lease = int64(m.mu.view.longestLease)",
		"k.data.Lease = int64(m.config.Lease)"}}},
	{"a record that is being deleted is alive",
		[]change{{"store.go", "\tif lease.DeletionTimestamp != nil {\n\t\treturn Record{}, fmt",
			"\tif false {\n\t\treturn Record{}, fmt"}}},
	{"a refused handover is not taken back", []change{{"table_io.go", "case m.mu.phase == staying: // One",
		"case false: //"}}},
	{"a member that was out of touch counts as dead at once",
		[]change{{"own_record.go", "a.began.since(self.renewed) > m.config.Lease*2/3", "false"}}},
	{"a member that has just come gets slots at once", []change{{"plan.go", "if until > now {", "if false {"}}},
	{"a table is followed without another look",
		[]change{{"table_io.go", "case began.mono >= self.followsSince:", "case true:"}}},
	{"records are written unconditionally", []change{{"store.go", "UID: uid, ResourceVersion: version,",
		"UID: uid, ResourceVersion: version[:0],"}}},
	{"an update does not name the UID", []change{{"store.go", "UID: uid, ResourceVersion: version,",
		"UID: uid[:0], ResourceVersion: version,"}}},
	{"keys are listed before the slot is held", []change{
		{"listing.go", "keys, err := q.keys(q.member.ctx)\n",
			"keys, err := q.keys(q.member.ctx)\n_ = q.member.sleep(q.member.ctx, 2e9, nil)\n"},
		{"queue.go", "if q.member.state(slotOf(q.hasher.hash(key), len(q.cells))) == absent {",
			"q.mu.Lock()\nlisting := q.mu.listing\nq.mu.Unlock()\nif listing || q.member.state(slotOf(q.hasher.hash(key), len(q.cells))) == absent {"}}},
	{"a listing that fails is not repeated", []change{{"listing.go", "if err == nil {", "if true {"}}},
	{"a slot that comes back while it is to move is not listed",
		[]change{{"slots.go", "from == absent || s.stop.keysNotListed", "from == absent"}}},
	{"keys that were held back are forgotten when the slot stays",
		[]change{{"queue.go", "isHeld := q.member.state(slot) != absent", "isHeld := false"}}},
	{"shares may differ by two", []change{{"plan.go", "if i < extra {",
		"if i < extra && i != 1 || i == len(order)-1 && extra > 1 {"}}},
	{"slots move without need", []change{{"plan.go", "for _, moving := range []bool{false, true} {",
		"for _, moving := range []bool{false, true}[:len(takers)%2+1] {"},
		{"plan.go", "if isMoving == moving && room", "if i != 3 && isMoving == moving && room"}}},
	{"a newcomer gives slots away before it has heard of the others",
		[]change{{"restore.go", "case !m.mustHearOthersLocked(now):", "case true:"}}},
	{"the longest lease is forgotten", []change{{"others.go", ", time.Duration(d.LongestLease))", ")"}}},
	{"a member that cannot use the table keeps its slots",
		[]change{{"own_record.go", "since > 0 && m.mu.barred == notBarred",
			"since > 1<<60 && m.mu.barred == notBarred"}}},
	{"a record that cannot be read keeps its slots",
		[]change{{"others.go", "!usable || k.data.Sequence", "k.data.Sequence"}}},
	{"a member that leaves deletes a record that the table names",
		[]change{{"leave.go", "if marked && !m.holdsNothing() {", "if false {"}}},
	{"an earlier life of a process is alive", []change{{"own_record.go", "m.mu.formerSelves[id] = true\n", ""},
		{"own_record.go", "m.memberLocked(id).isFormerSelf = true", ""}}},
	{"nobody takes its turn", []change{{"member.go", "min(rank, maxTurns)", "100*min(rank, maxTurns)"},
		{"member.go", "rank := 0", "rank := 1"}}},
	// What operators, restores and other programs do, in the order of docs/sharding.md.
	{"a table behind what a record names is believed",
		[]change{{"table_io.go", "if rel != older && m.isOutdatedLocked(t, upTo) {", "if false {"}}},
	{"a member that has got no answer counts as dead at once",
		[]change{{"own_record.go", "self.renewed.mono < m.mu.failedAt", "false"}}},
	{"a member that has got no answer takes slots before its next renewal",
		[]change{{"restore.go", ">= max(then, m.mu.unansweredAt)", ">= then"}}},
	{"a member that sees a restore takes slots at once",
		[]change{{"restore.go", "case suspicionEnds > now:", "case false:"}}},
	{"slots are held by a table that has gone back",
		[]change{{"own_record.go", "view.incompatible != nil || view.broken != nil {",
			"view.incompatible != nil {"}}},
	{"a table that has gone back is not replaced",
		[]change{{"missing_table.go", "if !view.missing && view.broken == nil || m.mu.phase >= leaving {",
			"if !view.missing || m.mu.phase >= leaving {"}}},
	{"a table that replaces a broken one is filled at once",
		[]change{{"missing_table.go", "t.replaces = view.table != nil || view.broken != nil\n", "t.replaces = false\n"},
			{"restore.go", "t.lease)\n\tm.noteEarlierLocked()\n", "t.lease)\n"},
			{"missing_table.go", "knewEarlier = knewEarlier || !follows || d.Earlier",
				"knewEarlier = false"}}},
	{"a record that has lost its label is not asked for",
		[]change{{"missing_table.go", "unlisted[id] = true", "_ = id"}}},
	{"nobody looks whether the machine was suspended",
		[]change{{"own_record.go", "min(left, m.config.Lease/60)", "left"}}},
	{"validity does not end by the monotonic clock",
		[]change{{"own_record.go", "now.mono >= time.Duration(m.validUntil.Load()) || ", ""},
			{"own_record.go", "left := min(time.Duration(m.validUntil.Load())-now.mono, ",
				"left := max(time.Second, "}}},
	{"a member that was out of touch gives slots away before it has heard of the others",
		[]change{{"own_record.go", "lastListedSerial: notListed", "lastListedSerial: m.mu.self.lastListedSerial"},
			{"slots.go", "m.mu.self.lastListedSerial = notListed", "_ = 0"}}},
	{"the margin is an eighth of the lease", []change{{"config.go", "cmp.Or(c.Margin, c.Lease/6)",
		"cmp.Or(c.Margin, c.Lease/8)"}}},
	{"a record is not read before it is marked",
		[]change{{"dead_members.go", "isOverdue := err == nil && r.Version == k.version && k.doubt == 0 && k.liveness(m.now()) == overdue", "isOverdue := err == nil"}}},
	{"a watch shows a record that is being deleted",
		[]change{{"store.go", "e.Type == watch.Deleted || lease.DeletionTimestamp != nil",
			"e.Type == watch.Deleted"}, {"store.go", "if list.Items[i].DeletionTimestamp == nil {", "if true {"}}},
	{"a deleted table that a finalizer keeps is no error",
		[]change{{"store.go", "getErr == nil && old.DeletionTimestamp != nil",
			"false && getErr == nil && old != nil"}}},
	{"a member whose record changed by hand is dead",
		[]change{{"others.go", "return k.usable && k.doubt == 0 &&",
			"return k.usable && k.leaseFrom == k.firstSeen &&"}}},
	{"slots of an earlier life are claimed", []change{{"own_record.go",
		"m.slots[i].heldAs == m.mu.self.id && ", ""}}},
	{"one handler that does not return holds up all",
		[]change{{"missing_table.go", "\t\tallFollow = allFollow && follows\n",
			"\t\tallFollow = allFollow && follows && len(d.Busy) == 0\n"}}},
	{"a table that cannot be used is remembered after its deletion",
		[]change{{"table_io.go", "view.obstacle = obstacle{missing: true}",
			"view.missing, view.broken = view.incompatible == nil, nil"}}},
	{"a member whose writes of the table fail keeps its slots",
		[]change{{"table_io.go", "if uncertain && m.mu.phase == staying", "if false && uncertain && m.mu.phase == staying"}}},
	{"a member that gives up twice holds nothing again",
		[]change{{"own_record.go", "notBarred, true", "notBarred, m.mu.self.alive"}}},
	{"a new member that leaves does not say so", []change{{"plan.go", "\tp.nameLeaving(present)\n", ""}}},
	{"who waits for its own renewal looks twenty times a second",
		[]change{{"dead_members.go", "signal(m.toRenew) // A renewal wakes this loop again.\n\t\tdefault",
			"signal(m.toRenew)\n\t\t\tdue = min(due, now+soon/5)\n\t\tdefault"}}},
	{"a member that cannot replace the table tries it without a pause",
		[]change{{"missing_table.go", "m.mu.makeTableFrom = m.now() + m.retryDelay() // All", "// All"}}},
	{"a member that cannot renew its record tries it at each signal",
		[]change{{"member.go", "m.retryDelay(), nil // A server", "m.retryDelay(), signals // A server"}}},
	{"a member that cannot write the table tries it at each signal",
		[]change{{"member.go", "m.now()+soon, nil // A server", "m.now()+soon, m.toWork // A server"}}},
	{"a refused write of the table is no error",
		[]change{{"member.go",
			"since > 0 && m.now()-since >= m.config.Lease {\n\t\treturn fmt.Errorf(\"sharding: cannot write",
			"since > 1<<60 {\n\t\treturn fmt.Errorf(\"sharding: cannot write"}}},
	{"an old handover counts as one of this write", []change{{"table_io.go", "h.epoch != t.epoch-1 || ", ""}}},
	{"a member that leaves releases at once what it may not hand over",
		[]change{{"table_io.go", "case m.mu.phase == staying: // One", "default: //"}}},
	{"a member of other slots has a share", []change{{"others.go", "err == nil && d.Slots != m.config.Slots", "false"}}},
	{"a member of another hash has a share", []change{{"others.go", "k.data.Queues > 0 && fits &&",
		"k.data.Queues > 0 && (fits || true) &&"}, {"plan.go", "if len(contradictions(p.hashes, hashes)) > 0 {",
		"if false {"}, {"member_queues.go", "len(queues) > 0 {", "len(queues) > 1<<20 {"}}},
	{"Leave waits for a table that it cannot read",
		[]change{{"leave.go", "view.isThere() && view.incompatible == nil", "view.isThere()"}}},
	{"slots are released before it is their turn",
		[]change{{"slots.go", "(from == stopping || now >= m.mu.handOverAt)", "true"}}},
	{"a newcomer does not wait for its overdue predecessor",
		[]change{{"plan.go", "predecessorEnds = max(predecessorEnds, o.leaseFrom+time.Duration(o.data.Lease))", "_ = o"}}},
	{"a newcomer takes the slots of nobody just after an outage",
		[]change{{"plan.go", "sinceOutage <= p.m.mu.view.longestLease", "false && sinceOutage > 0"}}},
	{"a gone member that is shown again counts as dead",
		[]change{{"others.go", "expired && k.doubt == 0:", "expired:"}}},
	{"a queue with another hash hands out keys until the table is read",
		[]change{{"member_queues.go", "m.updateAndUnlock() // at once", "m.mu.Unlock() //"}}},
	{"deaths are not counted", []change{{"plan.go", "died[nameOf(slot.holder)] = true", "_ = 0"}}},
	{"twins wait for each other's deaths", []change{{"plan.go", "\t\tdefault: // It lives beside the newcomer.\n\t\t\twait = probation", ""}}},
	{"a member whose clock has jumped waits",
		[]change{{"slots.go", "is valid again at once.\n\t\tsignal(m.toRenew)", ""}}},
	{"a doubled mark costs another lease",
		[]change{{"dead_members.go",
			"errors.Is(err, ErrConflict) || errors.Is(err, ErrNotFound) {\n\t\t_, err = m.readMember(id)\n\t\treturn err", "errors.Is(err, ErrConflict) || errors.Is(err, ErrNotFound) {\n\t\tk.leaseFrom = m.now()\n\t\treturn nil"}}},
	{"the right to delete is not checked",
		[]change{{"rights.go",
			"{\"delete\", func(ctx context.Context) error { return s.Delete(ctx, name, none.Version) }},", ""}}},
	{"a member without a queue is fine", []change{{"member_queues.go", "case now-*since < m.config.Lease:",
		"case true:"}}},
	{"hashes are not compared", []change{{"hash.go", "ok && other != hash", "ok && other != hash && false"}}},
	{"names have another hash than paths", []change{{"hash.go", "case !f.isName:", "case true:"}}},
	{"a member without a queue takes slots", []change{{"plan.go", "m.mu.phase == staying && m.queuesIfAllLocked() > 0",
		"m.mu.phase == staying"}, {"others.go", "k.isAlive(now) && k.data.Queues > 0", "k.isAlive(now)"}}},
	{"a member that lacks one of several queues takes slots",
		[]change{{"member_queues.go", "if len(m.lackingLocked()) > 0 {", "if false {"}}},
	{"leaving in order is a death", []change{{"plan.go", " && !p.m.mu.members[id].data.Left", ""}}},
	{"a watch that fails keeps members from joining",
		[]change{{"rights.go", "case r.verb == \"get\" && err != nil", "case err != nil"}}},
	{"each end of a watch puts off the plan", []change{{"plan.go", "max(began, p.now-batching)", "0"}}},
	{"an older record is a renewal", []change{{"others.go", "case isOlder:", "case false:"}}},
	{"a list that fails for good is no error",
		[]change{{"member.go",
			"since > 0 && m.now()-since >= m.config.Lease {\n\t\treturn fmt.Errorf(\"sharding: this",
			"since > 1<<60 {\n\t\treturn fmt.Errorf(\"sharding: this"}}},
	{"fields of a later version are dropped", []change{{"record_format.go", "if len(unknown) > 0 {", "if false {"}}},
	{"an attempt is a handover", []change{{"slots.go", "if !h.uncounted || valid && h.mayStillSucceed(t) {",
		"if !h.uncounted {"}, {"slots.go", "valid && h.table == t.id && t.slots[i].holder != m.mu.self.id {",
		"true || t == nil {"}}},
}

// TestSimulationFindsBrokenRules breaks each rule, and expects that the simulation fails. It takes minutes:
//
//	SHARDING_BREAK=3000 go test -run BrokenRules -timeout 2h -v ./sharding
func TestSimulationFindsBrokenRules(t *testing.T) {
	histories := os.Getenv("SHARDING_BREAK")
	if histories == "" {
		t.Skip("SHARDING_BREAK is not set to a number of histories")
	}
	for _, b := range breakages {
		t.Run(b.rule, func(t *testing.T) {
			command := exec.Command("go", "test", "-vet=off", "-ldflags=-w -s", "-count=1", "-timeout=20m",
				"-run=^Test", "-skip=^(TestHundredMembers|TestBreakagesFit|Test.*Conformance)$", "-failfast", "-v",
				"-overlay", overlay(t, b), ".")
			command.Env = append(os.Environ(), "SHARDING_HISTORIES="+histories, "SHARDING_BREAK=")
			out, err := command.CombinedOutput()
			text := string(out)
			if err == nil || !strings.Contains(text, "--- FAIL") && !strings.Contains(text, "test timed out") {
				t.Fatalf("not found: %v\n%s", err, text[max(0, len(text)-2000):])
			}
			for line := range strings.Lines(text) {
				if strings.Contains(line, "FAILURE") || strings.Contains(line, "--- FAIL: Test") ||
					strings.Contains(line, " histories, ") {
					t.Log(strings.TrimSpace(line))
				}
			}
		})
	}
}

// TestBreakagesFit: a change of the source must not make a rule unbreakable unnoticed.
func TestBreakagesFit(t *testing.T) {
	for _, b := range breakages {
		t.Run(b.rule, func(t *testing.T) { overlay(t, b) })
	}
}

// overlay returns a file for go's -overlay that has the changes in it.
func overlay(t *testing.T, b breakage) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	sources := make(map[string]string)
	for _, c := range b.changes {
		if sources[c.file] == "" {
			source, err := os.ReadFile(c.file)
			if err != nil {
				t.Fatal(err)
			}
			sources[c.file] = string(source)
		}
		if strings.Count(sources[c.file], c.old) != 1 {
			t.Fatalf("%s has %d times %s", c.file, strings.Count(sources[c.file], c.old), c.old)
		}
		sources[c.file] = strings.Replace(sources[c.file], c.old, c.new, 1)
	}
	temp := t.TempDir()
	replace := make(map[string]string)
	for file, source := range sources {
		broken := filepath.Join(temp, file)
		if err := os.WriteFile(broken, []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(dir, file)] = broken
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(temp, "overlay.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
