package sharding

import (
	"testing"
	"testing/synctest"
	"time"
)

// What a watch shows may be late.
func TestIsNews(t *testing.T) {
	known := knownMember{version: "7", usable: true, data: memberData{ID: "a", Sequence: 3}}
	marked, gone, unusable := known, known, known
	marked.data.Dead, gone.isGone, unusable.usable = true, true, false
	for _, c := range []struct {
		what     string
		k        knownMember
		version  string
		sequence int64
		kind     string // of the record: dead, unusable or neither
		want     bool
	}{
		{"the known record", known, "7", 3, "", false},
		{"a renewal", known, "8", 4, "", true},
		{"an edit by hand", known, "8", 3, "", true},
		{"an older record", known, "6", 2, "", false},
		{"a mark", known, "8", 3, "dead", true},
		{"the mark of an older record", known, "8", 2, "dead", true},
		{"a record that became unusable", known, "8", 0, "unusable", true},
		{"the known unusable record", unusable, "7", 0, "unusable", false},
		{"a record that became usable", unusable, "8", 2, "", true},
		{"a marked record without its mark", marked, "6", 3, "", false},
		{"an edit of a marked record", marked, "8", 3, "dead", true},
		{"a later record of a gone member", gone, "8", 4, "", false},
		{"the first record of a member", knownMember{}, "1", 1, "", true},
		{"an unusable first record", knownMember{}, "1", 0, "unusable", true},
	} {
		d := memberData{ID: "a", Sequence: c.sequence, Dead: c.kind == "dead"}
		if got := c.k.isNews(c.version, d, c.kind != "unusable"); got != c.want {
			t.Errorf("FAILURE: %s is news: %t", c.what, got)
		}
	}
}

// Until a record shows a member's own lease, the longest known one counts for it.
func TestLeaseOfUnknownMember(t *testing.T) {
	m := holdingAll(1)
	m.mu.members = make(map[string]*knownMember)
	m.mu.view.longestLease = time.Minute
	if k := m.memberLocked("b"); k.expires()-k.leaseFrom != time.Minute {
		t.Errorf("FAILURE: it expires after %v", k.expires()-k.leaseFrom)
	}
}

// b was silent for a lease, and renews its record after a has read it and before a marks it. The mark fails, and
// a does not try it again with what it knew.
func TestRecordThatHasChangedIsNotMarked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, b, ofA, ofB := two(t, Memory(), 2)
		name, marks := "g-member-"+b.ID(), 0
		ofA.do(func(verb string, r Record) error {
			if verb == "update" && r.Name == name {
				marks++
				renewed := mustGet(t, ofA.Store, name)
				d, _ := decodeMember(renewed)
				d.Sequence++
				renewed.Data = encode(d)
				_, _ = ofA.Store.Update(t.Context(), renewed)
			}
			return nil
		})
		ofB.cutOff(true)
		time.Sleep(22 * time.Second)
		if d, err := decodeMember(mustGet(t, ofA.Store, name)); err != nil || d.Dead || marks != 1 {
			t.Errorf("FAILURE: %d marks were tried, the record is %+v, %v", marks, d, err)
		}
	})
}

// Somebody's edit of a record is no renewal, and a record of other Slots is that of no member of this group.
func TestRecordsThatDoNotCount(t *testing.T) {
	m := holdingAll(1)
	m.mu.members = make(map[string]*knownMember)
	d := memberData{Format: formatVersion, ID: "b", Sequence: 1, Lease: int64(m.config.Lease), Slots: 1}
	saw := func(version string) *knownMember {
		m.sawMemberLocked("b", Record{Version: version, Data: encode(d)})
		return m.memberLocked("b")
	}
	saw("1").leaseFrom = never
	if saw("2").leaseFrom != never {
		t.Error("FAILURE: an edit counts as a renewal")
	}
	d.Sequence++
	if k := saw("3"); k.leaseFrom == never || !k.isAlive(m.now()) {
		t.Error("FAILURE: a renewal does not count")
	}
	if d.Slots = 2; saw("4").isAlive(m.now()) {
		t.Error("FAILURE: a member of other Slots has a share")
	}
}
