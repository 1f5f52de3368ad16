package sharding

import (
	"errors"
	"log/slog"
	"time"
)

// view is what a member knows of the table. It may be old: what must be certain is read from the store, or is
// a condition of a write. While a member is valid, nobody else gives away what even an old table gives it.
type view struct {
	// table is the newest table that was seen, in a record of that version.
	table   *table
	version string
	// firstReadEnded is when the first read or write that showed a table of this id ended. confirmed is when
	// the last one began that did so while the member's record named the table.
	firstReadEnded time.Duration
	confirmed      moment
	// epochEver is the greatest epoch, and longestLease the longest lease, that any record has named. A new
	// table has a greater epoch, and waits for that lease.
	epochEver    int64
	longestLease time.Duration
	earlier      bool // There was another table before this one.
	// missing: a read has found no table, or a damaged one of that version, which the next table replaces.
	missing        bool
	damagedVersion string
	unusable       error // why the stored table cannot be used, or nil
}

// isThere reports whether table is stored, or an earlier state of the stored one, as far as is known.
func (v *view) isThere() bool { return v.table != nil && !v.missing }

// restEnds returns when nobody can hold slots by an earlier table any more.
func (v *view) restEnds() time.Duration { return v.firstReadEnded + v.longestLease }

// tableChanged notes what the watch or a list shows. Both may be late: a newer table is certain, and an older
// one says nothing. In all other cases the table must be read.
func (m *Member) tableChanged(e Event) {
	t, err := decodeTable(e.Record, m.config.Slots)
	m.update(func() {
		signal(m.toWork)
		if err != nil || e.Deleted || m.checkHashesLocked(t) != nil {
			signal(m.toRefresh)
			return
		}
		switch t.relationTo(m.mu.view.table) {
		case newer:
			m.adoptLocked(t, e.Record.Version)
		case successor, contrary:
			signal(m.toRefresh)
		case same, older: // It is late.
		}
	})
}

// sawTable notes the table that a read or a write has returned, which began at that moment. known is the
// table that the member knew when the call began. If it knows another one now, this answer may be older than
// that one.
func (m *Member) sawTable(r Record, began moment, known *table) error {
	t, err := decodeTable(r, m.config.Slots)
	m.update(func() {
		if err == nil {
			err = m.checkHashesLocked(t)
		}
		isLate := m.mu.view.table != known
		switch {
		case err == nil:
			err = m.sawUsableTableLocked(t, r.Version, began, isLate)
		case isLate:
			err = nil
			signal(m.toRefresh)
		case errors.Is(err, errDamaged):
			m.noteMissingTableLocked(r.Version, err)
			err = nil
		default:
			m.mu.view.missing, m.mu.view.unusable = false, err
		}
		signal(m.toWork)
	})
	return err
}

func (m *Member) sawUsableTableLocked(t *table, version string, began moment, isLate bool) error {
	view := &m.mu.view
	switch t.relationTo(view.table) {
	case successor:
		if isLate {
			signal(m.toRefresh)
			return nil
		}
		if view.table != nil {
			m.logLocked(slog.LevelError, "There is a new table", "table", t.id, "before", view.table.id)
			view.earlier = true
		}
		view.firstReadEnded, view.confirmed = m.now(), neverMoment
		m.adoptLocked(t, version)
	case newer:
		m.adoptLocked(t, version)
	case same:
		view.version = version // It changes if a person edits the Lease, for example its labels.
	case older:
		if isLate {
			return nil
		}
		return m.endRestoredLocked("the table is older than one that this member has seen")
	case contrary:
		return m.endRestoredLocked("the table contradicts one that this member has seen")
	}
	view.missing, view.unusable = false, nil
	m.noteConfirmedLocked(t, began)
	return nil
}

// noteMissingTableLocked notes that there is no table, or that the one of that version is damaged. Before
// somebody makes another one, nobody gives away what the last one said, so this member stays valid until its
// validity ends by itself.
func (m *Member) noteMissingTableLocked(damagedVersion string, damage error) {
	view := &m.mu.view
	if damage != nil && view.damagedVersion != damagedVersion {
		m.logLocked(slog.LevelError, "The table is damaged: the group replaces it", "err", damage)
	}
	view.missing, view.damagedVersion, view.unusable = true, damagedVersion, nil
	signal(m.toWork)
}

// noteConfirmedLocked notes that a read or write that began then has shown t, which is the known table. It
// confirms the table only if it began after the member's record had named it.
func (m *Member) noteConfirmedLocked(t *table, began moment) {
	self := &m.mu.self
	switch {
	case self.version == "":
	case self.follows != t.id && m.mu.phase >= retiring: // The record is not renewed any more.
	case self.follows != t.id:
		signal(m.toRefresh)
	case began.mono >= self.followsSince:
		m.mu.view.confirmed = m.mu.view.confirmed.latest(began)
	default:
		signal(m.toRefresh)
	}
}

// adoptLocked makes t the known table.
func (m *Member) adoptLocked(t *table, version string) {
	view := &m.mu.view
	view.table, view.version = t, version
	view.epochEver = max(view.epochEver, t.epoch)
	m.timeHandoversLocked()
}
