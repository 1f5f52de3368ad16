package sharding

import (
	"errors"
	"sync/atomic"
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

// The table names a, whose record somebody has deleted. b, which has never seen a record of a, fails to read
// it once. a's slots must rest for one lease, not for two.
func TestFirstReadFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ofA, ofB := &faulty{Store: Memory()}, &faulty{}
		a := mustJoin(t, ofA, Config{Name: "a", Slots: 2})
		time.Sleep(10 * time.Second)
		wantHeld(t, 2)(a)
		ofA.cutOff(true)
		name := "g-member-" + a.ID()
		mustDelete(t, ofA.Store, name)
		ofB.Store = ofA.Store
		var failed atomic.Bool
		ofB.do(func(verb string, r Record) error {
			if verb != "get" || r.Name != name || failed.Swap(true) {
				return nil
			}
			return errors.New("the server is away")
		})
		b := mustJoin(t, ofB, Config{Name: "b", Slots: 2})
		time.Sleep(28 * time.Second)
		if !failed.Load() {
			t.Fatal("b has not read a's record")
		}
		wantHeld(t, 0, 2)(a, b)
	})
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

// Failures to mark a record do not count any more when its member has renewed it.
func TestRenewalEndsFailuresToMark(t *testing.T) {
	m := holdingAll(1)
	m.mu.members = make(map[string]*knownMember)
	d := memberData{Format: formatVersion, ID: "b", Sequence: 1, Lease: int64(m.config.Lease), Slots: 1}
	m.sawMemberLocked("b", Record{Version: "1", Data: encode(d)})
	k := m.memberLocked("b")
	k.markErr, k.markFailedSince, k.retryAt = ErrRefused, 1, m.now()+m.config.Lease
	m.sawMemberLocked("b", Record{Version: "2", Data: encode(d)})
	if k.markErr == nil {
		t.Error("FAILURE: an edit counts as a renewal")
	}
	d.Sequence++
	m.sawMemberLocked("b", Record{Version: "3", Data: encode(d)})
	if k.markErr != nil || k.markFailedSince != 0 || k.retryAt != 0 {
		t.Errorf("FAILURE: %v since %v, next try at %v", k.markErr, k.markFailedSince, k.retryAt)
	}
}
