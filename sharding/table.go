package sharding

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"time"
)

// table says who holds which slot. A table that was decoded or stored does not change any more.
type table struct {
	// id names the table. A table that was deleted and made again has another id.
	id string
	// epoch grows with each write. It starts at the milliseconds since 1970, so that a new group's are probably greater than
	// those of an earlier one. If the table was deleted, the new one goes on from the epochs in the members' records.
	epoch int64
	// settling: the table is new, and somebody may still hold slots by another one; see isSettled.
	settling bool
	// leaving are members that hand over what they hold, and must not get more.
	leaving []string
	// slots has the holder of each slot, its next one if it is to move (else ""), and the epoch in which it got this
	// holder.
	slots []tableSlot
}

type tableSlot struct {
	holder, next string
	epoch        int64
}

func newTable(id string, slots int, epoch int64) *table {
	return &table{id: id, epoch: epoch, settling: true, slots: slices.Repeat([]tableSlot{{epoch: epoch}}, slots)}
}

// clone returns a copy to change, with the next epoch.
func (t *table) clone() *table {
	c := *t
	c.epoch++
	c.slots = slices.Clone(t.slots)
	c.leaving = slices.Clone(t.leaving)
	return &c
}

// give makes holder the holder of slot s. All slots that one write gives away get the same epoch.
func (t *table) give(s int, holder string) {
	t.slots[s] = tableSlot{holder: holder, epoch: t.epoch}
}

// same reports whether t says the same as its clone.
func (t *table) same(clone *table) bool {
	return t.settling == clone.settling && slices.Equal(t.leaving, clone.leaving) && slices.Equal(t.slots, clone.slots)
}

// named returns the ids of all members in the table.
func (t *table) named() map[string]bool {
	named := make(map[string]bool)
	for _, s := range t.slots {
		named[s.holder], named[s.next] = true, true
	}
	for _, id := range t.leaving {
		named[id] = true
	}
	delete(named, "")
	return named
}

// view is what a member knows of the table. It may be old: what must be known for certain is read from the store, or is a
// condition of a write.
type view struct {
	// table is the newest table that was seen, in a record of that version. Only its holder gives a slot away, and
	// others only after they have deleted the holder's record. So a member that is valid holds what an old table says
	// that it holds.
	table   *table
	version string
	// adopted is when the read began that showed the first table of this id, and confirmed when the last one began
	// that showed a table of this id after the member's record named it.
	adopted, confirmed time.Duration
	// epoch is the greatest one that was seen anywhere. A new table goes on from there.
	epoch int64
	// missing: a read has shown that there is no table.
	missing bool
	// incompatible is why the present table cannot be used.
	incompatible error
}

// confirm reads the table: a member that cannot does not know whether there is another one.
func (m *Member) confirm() error {
	began := m.now()
	r, err := m.get(m.tableName())
	if err == nil {
		return m.sawTable(r, began)
	}
	if !errors.Is(err, ErrNotFound) {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.view.table == nil || began >= m.mu.view.adopted {
		m.mu.view.missing = true
		signal(m.toWork)
	}
	return nil
}

// tableChanged is called with each change of the table that the watch reports. A watch may be late, so it only shows
// newer revisions of the table that is known.
func (m *Member) tableChanged(e Event) {
	m.mu.Lock()
	defer m.applyAndUnlock()
	m.mu.heard = m.now()
	view := &m.mu.view
	if e.Deleted {
		signal(m.toConfirm)
		return
	}
	if e.Record.Version == view.version {
		return
	}
	t, err := decodeTable(e.Record, m.config.Slots)
	if err != nil || view.table == nil || view.table.id != t.id {
		signal(m.toConfirm)
		return
	}
	m.adoptLocked(t, e.Record.Version)
}

// sawTable notes the table that a read or a write, which began at that time, has returned.
func (m *Member) sawTable(r Record, began time.Duration) error {
	t, err := decodeTable(r, m.config.Slots)
	m.mu.Lock()
	defer signal(m.toWork)
	defer m.applyAndUnlock()
	view := &m.mu.view
	if view.table != nil && began < view.adopted {
		return nil // It may have been replaced since.
	}
	view.missing = false
	if view.incompatible = err; err != nil {
		return err
	}
	if view.table == nil || view.table.id != t.id {
		if view.table != nil {
			m.logger.Error("The table was deleted, and there is a new one", "table", t.id, "before", view.table.id)
		}
		view.table, view.version, view.adopted, view.confirmed = t, r.Version, began, never
		view.epoch = max(view.epoch, t.epoch)
	} else if m.adoptLocked(t, r.Version); t.epoch == view.table.epoch {
		view.version = r.Version // It is another one if a person has edited the Lease, for example its labels.
	}
	self := &m.mu.self
	switch {
	case self.version == "":
	case self.follows != t.id:
		signal(m.toRenew)
	case began >= self.followsSince:
		view.confirmed = max(view.confirmed, began)
	default:
		signal(m.toConfirm)
	}
	return nil
}

// adoptLocked makes t, a table of the known id, the known one, if it is newer.
func (m *Member) adoptLocked(t *table, version string) {
	view := &m.mu.view
	if t.epoch > view.table.epoch {
		view.table, view.version, view.epoch = t, version, max(view.epoch, t.epoch)
	}
}

// makeTable makes a table if there is none.
func (m *Member) makeTable(now time.Duration) (due time.Duration, err error) {
	m.mu.Lock()
	view := &m.mu.view
	if !view.missing || m.mu.leaving {
		m.mu.since.missing = 0
		m.mu.Unlock()
		return now + m.config.Lease, nil
	}
	m.mu.since.missing = cmp.Or(m.mu.since.missing, now)
	if due = m.mu.since.missing + m.turnLocked(now); due > now {
		m.mu.Unlock()
		return due, nil
	}
	epoch := max(m.config.Clock.Now().UnixMilli(), view.epoch+1)
	m.mu.Unlock()
	t := newTable(m.config.newID("table"), m.config.Slots, epoch)
	began := m.now()
	r, err := m.put(m.tableRecord(t, ""))
	if err == nil {
		m.logger.Info("There was no table. Made one", "table", t.id)
		return now, m.sawTable(r, began)
	}
	if errors.Is(err, ErrExists) {
		err = nil
	}
	return now + soon, errors.Join(err, m.confirm())
}

// writeTable writes what follows from the plan, from dead members, and from slots whose handlers have returned.
func (m *Member) writeTable(now time.Duration) (due time.Duration, err error) {
	for range 20 {
		m.mu.Lock()
		t := m.mu.view.table
		m.mu.Unlock()
		if t == nil {
			return now + m.config.Lease, nil
		}
		if t.settling {
			if settled, err := m.isSettled(t); err != nil || !settled {
				return m.now() + soon, err
			}
		}
		now = m.now()
		next, version, due, c := m.draft(t.id, now)
		m.do(c)
		if next == nil {
			return due, nil
		}
		r, err := m.put(m.tableRecord(next, version))
		switch {
		case err == nil:
			return m.now(), m.sawTable(r, now) // There may be more to do.
		case errors.Is(err, ErrConflict), errors.Is(err, ErrNotFound):
		default:
			return m.now() + soon, err
		}
		if err = m.confirm(); err != nil {
			return m.now() + soon, err
		}
		// Not all members try again at once.
		if m.sleep(m.ctx, rand.N(stagger*time.Duration(len(t.named())+1)), nil) != nil {
			return now, nil
		}
	}
	return m.now() + soon, nil
}

// isSettled reports whether nobody can hold slots by a table that was there before t. A list that began after t was
// read shows all members that could: a member says in its record which table it follows before it holds slots by
// it, and checks afterwards that that table is still there. Of a member that is not listed, and that a person may have
// deleted too, that shows nothing until it has been gone for a lease. The records also have the epochs of earlier tables.
func (m *Member) isSettled(t *table) (bool, error) {
	records, _, err := m.listRecords()
	if err != nil {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	listed := make(map[string]bool)
	for _, r := range records {
		id := m.idOf(r)
		if id == "" {
			continue
		}
		listed[id] = true
		d, err := decodeMember(r)
		if err != nil || d.Table != "" && d.Table != t.id {
			return false, nil
		}
		m.mu.view.epoch = max(m.mu.view.epoch, d.Epoch)
	}
	for id, s := range m.mu.members {
		if !listed[id] && id != m.mu.self.id && !s.dead(m.now()) {
			return false, nil // Or it has come since. The next list shows it then.
		}
	}
	return true, nil
}

func (m *Member) tableRecord(t *table, version string) Record {
	return Record{
		Name: m.tableName(), Group: m.config.Group, Version: version, Data: t.encode(),
		Holder: m.ID(), Renewed: m.config.Clock.Now(),
	}
}
