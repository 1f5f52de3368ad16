package sharding

import (
	"errors"
	"log/slog"
	"time"
)

// makeTable makes a table if the group has none that can be read.
func (m *Member) makeTable(now time.Duration) (due time.Duration, err error) {
	t, known, replaced, due := m.tableToMake(now)
	if t == nil {
		return due, nil
	}
	began := m.nowByBoth()
	r, err := m.put(m.tableRecord(t, replaced))
	m.update(func() { m.noteWriteLocked(t, err) })
	due = m.now() + m.retryDelay() // All members try it, and somebody may damage each new table at once.
	m.mu.Lock()
	m.mu.makeTableAt = due
	m.mu.Unlock()
	switch {
	case err == nil:
		m.logger.log(slog.LevelInfo, "Made a new table", "table", t.id)
		return due, m.sawTable(r, began, known)
	case errors.Is(err, ErrExists), errors.Is(err, ErrConflict): // with that of another member, or an edit
		return due, m.confirm()
	}
	return due, err
}

// tableToMake returns the table to make now, the table known so far, and the version of the damaged table
// that it replaces, or "". Otherwise it returns when to look again.
func (m *Member) tableToMake(now time.Duration) (t, known *table, replaced string, due time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	view := &m.mu.view
	if !view.missing || m.mu.phase >= leaving {
		m.mu.lacksTable.end()
		return nil, nil, "", now + m.config.Lease
	}
	m.mu.lacksTable.begin(now)
	if due = max(m.mu.lacksTable.since, m.mu.makeTableAt) + m.turnWaitLocked(now); due > now {
		return nil, nil, "", due
	}
	epoch := max(m.config.Clock.Now().UnixMilli(), view.epochEver+1)
	t = emptyTable(m.config.newID("table"), m.config.Slots, epoch)
	t.replaces, t.hashes = view.table != nil || view.damagedVersion != "", m.mu.hashes
	return t, view.table, view.damagedVersion, now
}

// mayFill reports whether the new table t may be filled, and when to look again if not. No member may hold
// slots by an earlier table any more: its validity ends within a lease after that one was there last.
func (m *Member) mayFill(t *table) (ready bool, due time.Duration, err error) {
	m.mu.Lock()
	restEnds, rests := m.mu.view.restEnds(), t.replaces || m.mu.view.earlier
	m.mu.Unlock()
	if rests && restEnds > m.now() { // No list is needed before.
		return false, restEnds, nil
	}
	records, _, err := m.listRecords()
	if err != nil {
		return false, m.now() + shortPause, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	view := &m.mu.view
	for _, r := range records {
		if m.idOf(r) == "" {
			continue
		}
		d, err := decodeMember(r)
		if err == nil {
			m.noteBoundsLocked(d)
		}
		if err != nil || d.Table != "" && d.Table != t.id { // That member may hold slots by an earlier table.
			view.earlier = true
		}
	}
	switch {
	case view.table.id != t.id: // There is another one by now.
		return false, m.now() + shortPause, nil
	case view.earlier && view.restEnds() > m.now():
		return false, view.restEnds(), nil
	}
	return true, 0, nil
}
