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

// Most are found within ten histories, some take a few hundred or thousand. What is too rare for that has a test of its own, which runs
// before the simulation. One rule is not among them: that validity needs the table as well. A new table waits for all that follow
// another one, so it takes two broken rules to do harm.
var breakages = []breakage{
	{"validity counts from the end of a renewal", []change{{"own_record.go", "max(self.renewed, a.began)", "max(self.renewed, m.now())"}}},
	{"validity has no margin for clocks", []change{{"own_record.go", "m.config.Lease - m.config.Margin", "m.config.Lease"}}},
	{"after a conflict the last attempt counts", []change{{"own_record.go", "m.stored(d.Sequence, r.Version)", "m.stored(m.mu.self.sequence, r.Version)"}}},
	{"a record is created a second time", []change{{"own_record.go", "if create && sequence > 1 {", "if false {"}}},
	{"slots are given away before the record is deleted", []change{{"others.go", "return s.gone && s.expired(now)", "return s.expired(now)"}}},
	{"a record is deleted although it has changed", []change{{"others.go", "\t\treturn m.findMember(id)", "\t\tr, err := m.store.Get(m.ctx, m.recordName(id)); if err != nil { return m.findMember(id) }; return m.bury(id, r.Version)"},
		{"others.go", "if s.version != version {", "if false {"}}},
	{"the cache is believed that a member is gone", []change{{"others.go", "r, err := m.get(m.recordName(id))\n\tm.mu.Lock()\n\tdefer m.mu.Unlock()", "r, err := Record{}, ErrNotFound\n\tm.mu.Lock()\n\tdefer m.mu.Unlock()\n\tm.memberLocked(id).deleted = true"}}},
	{"a record that a person deleted counts as dead at once", []change{{"others.go", "return s.deleted || ", "return s.gone || s.deleted || "}}},
	{"a record that somebody else deleted is that of a dead", []change{
		{"others.go", "case errors.Is(err, ErrConflict), errors.Is(err, ErrNotFound):\n\t\t// It lives", "case errors.Is(err, ErrConflict):\n\t\t// It lives"},
		{"others.go", "case err != nil:\n\t\treturn err\n\t}\n\tm.mu.Lock()", "case err != nil && !errors.Is(err, ErrNotFound):\n\t\treturn err\n\t}\n\tm.mu.Lock()"}}},
	{"a member without a record is in a table", []change{{"plan.go", " || m.mu.self.version == \"\"", ""}}},
	{"handlers are not waited for", []change{{"slots.go", "if m.state(i) == held || m.isBusy(i) {", "if m.state(i) == held {"}}},
	{"a slot comes back while its handover may still be written", []change{{"slots.go", "if s.mayBeGiven(t) {", "if false {"},
		{"slots.go", "t.slots[i].next != \"\" && now >= s.keep", "t.slots[i].next != \"\" && now >= s.keep && m.state(i) != absent"}}},
	{"a slot that is to stay after all stays absent", []change{{"plan.go", "next.give(s, d.self)", "_ = 0"}}},
	{"a new table is filled at once", []change{{"table.go", "if t.settling {", "if false {"}}},
	{"a new table is filled because the last one was settled", []change{{"table.go", "for range 20 {", "for i := range 20 {"}, {"table.go", "if t.settling {", "if i == 0 && t.settling {"}}},
	{"a new table does not wait for members that are not listed", []change{{"table.go", "if !listed[id] && id != m.mu.self.id && !s.dead(m.now()) {", "if !listed[id] && id != m.mu.self.id && s == nil {"}}},
	{"epochs of a new table begin at the clock", []change{{"table.go", "max(m.config.Clock.Now().UnixMilli(), view.epoch+1)", "m.config.Clock.Now().UnixMilli()"}, {"plan.go", "max(next.epoch, d.m.mu.view.epoch+1)", "next.epoch"}}},
	{"a new table is followed while handlers of the last one run", []change{{"own_record.go", "m.mu.self.follows != \"\" && m.anyBusy()", "false"}}},
	{"a table is followed without another look", []change{{"table.go", "case began >= self.followsSince:", "case true:"}}},
	{"records are written unconditionally", []change{{"store.go", "UID: uid, ResourceVersion: version,", "UID: uid, ResourceVersion: version[:0],"}}},
	{"an update does not name the UID", []change{{"store.go", "UID: uid, ResourceVersion: version,", "UID: uid[:0], ResourceVersion: version,"}}},
	{"keys are listed before the slot is held", []change{
		{"listing.go", "keys, err := q.keys(q.member.ctx)\n", "keys, err := q.keys(q.member.ctx)\n_ = q.member.sleep(q.member.ctx, 2e9, nil)\n"},
		{"queue.go", "if q.member.state(slotOf(q.hasher.hash(key), len(q.cells))) == absent {", "q.mu.Lock()\nlisting := q.mu.listing\nq.mu.Unlock()\nif listing || q.member.state(slotOf(q.hasher.hash(key), len(q.cells))) == absent {"}}},
	{"a listing that fails is not repeated", []change{{"listing.go", "if err == nil {", "if true {"}}},
	{"a slot that comes back while it is to move is not listed", []change{{"slots.go", "if s.unlisted {", "if false {"}}},
	{"keys that were held back are forgotten when the slot stays", []change{{"queue.go", "isHeld := q.member.state(slot) != absent", "isHeld := false"}}},
	{"shares may differ by two", []change{{"plan.go", "if i < extra {", "if i < extra && i != 1 || i == len(order)-1 && extra > 1 {"}}},
	{"slots move without need", []change{{"plan.go", "for _, moving := range []bool{false, true} {", "for _, moving := range []bool{false, true}[:len(takes)%2+1] {"}, {"plan.go", "if room[slot.holder] > 0 && target", "if s != 3 && room[slot.holder] > 0 && target"}}},
	{"nobody takes its turn", []change{{"member.go", "min(rank, maxTurns)", "100*min(rank, maxTurns)"}, {"member.go", "rank := 0", "rank := 1"}}},
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
			command := exec.Command("go", "test", "-count=1", "-timeout=20m", "-run=^(TestTableIsReadAgain|TestSlotThat.*|TestRecordDeleted.*|TestNewTable.*|TestMemberWithout.*|TestSimulation)$", "-failfast", "-v", "-overlay", overlay(t, b), ".")
			command.Env = append(os.Environ(), "SHARDING_HISTORIES="+histories)
			out, err := command.CombinedOutput()
			text := string(out)
			if err == nil || !strings.Contains(text, "--- FAIL") {
				t.Fatalf("not found: %v\n%s", err, text[max(0, len(text)-2000):])
			}
			for line := range strings.Lines(text) {
				if strings.Contains(line, "FAILURE") || strings.Contains(line, "--- FAIL: Test") || strings.Contains(line, " histories, ") {
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
