package sharding

import (
	"cmp"
	"errors"
	"time"
)

// makeTable makes a table if there is none, or if the stored one has gone back in time.
func (m *Member) makeTable(now time.Duration) (due time.Duration, err error) {
	m.mu.Lock()
	view := &m.mu.view
	if !view.missing && view.broken == nil || m.mu.phase >= leaving {
		m.mu.makeTableFrom = 0
		m.mu.Unlock()
		return now + m.config.Lease, nil
	}
	m.mu.makeTableFrom = cmp.Or(m.mu.makeTableFrom, now)
	if due = m.mu.makeTableFrom + m.turnLocked(now); due > now {
		m.mu.Unlock()
		return due, nil
	}
	version, epoch := "", max(m.config.Clock.Now().UnixMilli(), view.epochEver+1)
	t := newTable(m.config.newID("table"), m.config.Slots, epoch)
	t.replaces = view.table != nil || view.broken != nil
	t.lease, t.hashes = view.longestLease, m.mu.hashes
	if view.broken != nil {
		version, t.uid = view.broken.Version, view.broken.UID
	}
	m.mu.Unlock()
	began := m.nowByBoth()
	r, err := m.put(m.tableRecord(t, version))
	m.noteWrite(t, err)
	if err == nil {
		m.logger.Info("Made a new table", "table", t.id)
		return now, m.sawTable(r, began, 0)
	}
	if errors.Is(err, ErrExists) || errors.Is(err, ErrConflict) {
		return m.now() + soon, m.confirm()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.makeTableFrom = m.now() + m.retryDelay() // All members try it, so each must not do it at once.
	return m.mu.makeTableFrom, err
}

// mayFill reports whether the new table t may be filled, and when to look again if not. It may be filled when
// no member can hold slots by an earlier one; see "How a new table is filled" in docs/project/sharding.md.
func (m *Member) mayFill(t *table) (ready bool, due time.Duration, err error) {
	m.mu.Lock()
	restEnds, earlier := m.mu.view.restEnds(), t.replaces || m.mu.view.earlier
	m.mu.Unlock()
	if earlier && restEnds > m.now() { // All slots rest for a lease: no list is needed before.
		return false, restEnds, nil
	}
	records, _, err := m.listRecords()
	if err == nil {
		records, err = m.addUnlisted(records)
	}
	if err != nil {
		return false, m.now() + soon, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	allFollow, knewEarlier, claims := m.surveyLocked(t, records)
	view := &m.mu.view
	if view.table.id != t.id { // There is another one by now.
		return false, m.now() + soon, nil
	}
	view.claims = claims
	if earlier = earlier || knewEarlier; earlier {
		m.noteEarlierLocked()
	}
	switch restEnds = view.restEnds(); {
	case earlier && restEnds > m.now():
		return false, restEnds, nil
	case !allFollow:
		return false, m.now() + soon, nil
	}
	return true, 0, nil
}

// surveyLocked looks through all records before t is filled: whether each member that could hold slots by an
// earlier table follows t, whether any has known such a table, and whose handlers still run in which slots.
func (m *Member) surveyLocked(t *table, records []Record) (allFollow, knewEarlier bool, claims map[int]string) {
	allFollow, claims = true, make(map[int]string)
	for _, r := range records {
		id := m.idOf(r)
		if id == "" {
			continue
		}
		d, err := decodeMember(r)
		if err == nil {
			m.noteBoundsLocked(d)
		}
		// One that follows t holds no slots by an earlier table. Its record names t, or none.
		follows := err == nil && (d.Table == "" || d.Table == t.id)
		knewEarlier = knewEarlier || !follows || d.Earlier
		neverFollows := err != nil || len(contradictions(t.hashes, d.Hashes)) > 0
		switch {
		case err == nil && (d.Dead || d.Slots != m.config.Slots): // With other Slots it can use no such table.
			continue
		case neverFollows && !follows && m.mu.view.restEnds() <= m.now(): // Its validity has ended.
			continue
		}
		allFollow = allFollow && follows
		for _, slot := range d.Busy {
			claims[slot] = cmp.Or(claims[slot], id)
		}
	}
	for _, k := range m.mu.members {
		knewEarlier = knewEarlier || k.data.Table != "" && k.data.Table != t.id
	}
	return allFollow, knewEarlier, claims
}

// addUnlisted adds the records of known members that the list does not have: they may have lost their label.
func (m *Member) addUnlisted(records []Record) ([]Record, error) {
	m.mu.Lock()
	unlisted := make(map[string]bool)
	for id, k := range m.mu.members {
		if !k.isGone && !k.data.Dead {
			unlisted[id] = true
		}
	}
	m.mu.Unlock()
	for _, r := range records {
		delete(unlisted, m.idOf(r))
	}
	for id := range unlisted {
		r, err := m.readMember(id)
		if err != nil {
			return nil, err
		}
		if r.Name != "" {
			records = append(records, r)
		}
	}
	return records, nil
}
