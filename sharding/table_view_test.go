package sharding

import "testing"

// A read confirms a table only if it began when the member's record named that table already. Otherwise the table
// may be gone, and a new member that has listed the records before may have filled another one, without waiting
// for this member.
func TestTableIsReadAfterTheRecordNamesIt(t *testing.T) {
	m := holdingAll(1)
	m.mu.self.version, m.mu.self.followsSince, m.mu.view.confirmed = "1", 10, neverMoment
	for _, began := range []moment{{9, 9}, {10, 10}} {
		m.mu.Lock()
		m.noteConfirmedLocked(m.mu.view.table, began)
		isConfirmed := m.mu.view.confirmed == began
		m.mu.Unlock()
		if isConfirmed != (began.mono >= 10) {
			t.Errorf("FAILURE: a read that began at %d confirms it: %t", began.mono, isConfirmed)
		}
	}
}

// A read that began before the member learned of a newer table may return the older one. A later read that does
// is a sign of a restore.
func TestLateTable(t *testing.T) {
	m := holdingAll(1)
	known := m.mu.view.table
	m.mu.view.table = known.clone()
	late := Record{Data: known.encode()}
	if err := m.sawTable(late, m.nowByBoth(), known); err != nil || m.Err() != nil {
		t.Errorf("FAILURE: %v, %v", err, m.Err())
	}
	if err := m.sawTable(late, m.nowByBoth(), m.mu.view.table); err != ErrRestored {
		t.Errorf("FAILURE: %v", err)
	}
}
