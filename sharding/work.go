package sharding

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

const (
	// batching is how long a plan waits for more members to come or go, and turn is how long each member lets the one
	// before it write the plan.
	batching = 200 * time.Millisecond
	turn     = 150 * time.Millisecond
	maxTurns = 4
	// stagger, times the number of members, keeps those apart that all hand over slots after one plan.
	stagger = 5 * time.Millisecond
	// finishPoll is when to look again whether the queued keys of slots that are to move are finished.
	finishPoll = 50 * time.Millisecond
	// soon is when to look again after a failed call.
	soon = 250 * time.Millisecond
)

// workLoop takes over from dead members, plans, and hands over: everything that writes the table, and the records of others.
func (m *Member) workLoop() {
	for {
		next := m.work()
		if m.tryLeave() {
			return
		}
		if m.sleep(m.ctx, max(0, next-m.now()), m.toWork) != nil {
			return
		}
	}
}

// work does what there is to do, and returns when to look again if nothing changes.
func (m *Member) work() (next time.Duration) {
	again := m.finishQueued()
	m.mu.Lock()
	now := m.now()
	c := m.applyLocked()
	next = m.hurryLocked(now, &c)
	if again {
		next = now + finishPoll
	}
	after := m.applyLocked()
	if m.mu.view.table != nil && m.mu.view.table.id != m.mu.self.follows && !m.anyBusy() {
		signal(m.toRenew) // to follow it
	}
	incompatible := m.mu.view.incompatible != nil
	m.mu.Unlock()
	m.do(c)
	m.do(after)
	if incompatible {
		return next
	}
	for _, step := range []func(now time.Duration) (time.Duration, error){m.makeTable, m.buryDead, m.findHolders, m.writeTable} {
		due, err := step(now)
		if err != nil {
			m.report("Cannot move slots", err)
			due = m.now() + soon
		}
		next = min(next, due)
	}
	return next
}

// turnLocked returns how long this member waits before it does what any member could do: the first one does it at once.
func (m *Member) turnLocked(now time.Duration) time.Duration {
	rank := 0
	for id, s := range m.mu.view.members {
		if id < m.mu.self.id && s.valid && !s.gone && !s.expired(now) {
			rank++
		}
	}
	return turn * time.Duration(min(rank, maxTurns))
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
	if due = m.sinceLocked(&m.mu.since.missing, now) + m.turnLocked(now); due > now {
		m.mu.Unlock()
		return due, nil
	}
	epoch := max(m.config.Clock.Now().UnixMilli(), view.epoch+1)
	m.mu.Unlock()
	t := newTable(m.config.newID("table"), m.config.Slots, epoch)
	began := m.now()
	r := m.tableRecord(t, "")
	err = m.call(func(ctx context.Context) (err error) {
		r, err = m.store.Create(ctx, r)
		return err
	})
	if err == nil {
		m.logger.Info("There was no table. Made one", "table", t.id)
		return now, m.sawTable(r, began)
	}
	if errors.Is(err, ErrExists) {
		err = nil
	}
	return now + soon, errors.Join(err, m.confirm())
}

// sinceLocked returns since when something has been the case, which is noted in *since: zero if it was not.
func (m *Member) sinceLocked(since *time.Duration, now time.Duration) time.Duration {
	if *since == 0 {
		*since = now
	}
	return *since
}

func (m *Member) tableRecord(t *table, version string) Record {
	return Record{
		Name: m.tableName(), Group: m.config.Group, Version: version, Data: t.encode(),
		Holder: m.ID(), Renewed: m.config.Clock.Now(),
	}
}

// buryDead deletes the records of members that have not renewed them for a whole lease. Such a member can then not renew
// it any more, although it may not know it yet; by its own clock its validity is over.
func (m *Member) buryDead(now time.Duration) (due time.Duration, err error) {
	m.mu.Lock()
	wait := m.turnLocked(now)
	due = now + m.config.Lease
	dead := make(map[string]string) // versions by id
	for id, s := range m.mu.view.members {
		if s.gone || id == m.mu.self.id {
			continue
		}
		if d := s.since + time.Duration(s.data.Lease) + wait; d > now {
			due = min(due, d)
		} else {
			dead[id] = s.version
		}
	}
	m.mu.Unlock()
	for id, version := range dead {
		if err := m.bury(id, version); err != nil {
			return due, err
		}
	}
	return due, nil
}

func (m *Member) bury(id, version string) error {
	err := m.call(func(ctx context.Context) error { return m.store.Delete(ctx, m.recordName(id), version) })
	switch {
	case errors.Is(err, ErrConflict), errors.Is(err, ErrNotFound):
		// It lives and the watch is late, or somebody else has deleted the record. If that was a person, the member may
		// not know it yet.
		return m.findMember(id)
	case err != nil:
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.memberLocked(id)
	if s.version != version {
		return nil // It was seen again meanwhile.
	}
	s.gone, s.deleted = true, true
	m.logger.Warn("A member has not renewed its lease: taking over", "dead", id, "lease", time.Duration(s.data.Lease))
	return nil
}

// findHolders looks for members that the table names and the watch has not shown.
func (m *Member) findHolders(now time.Duration) (due time.Duration, err error) {
	var unknown []string
	m.mu.Lock()
	if t := m.mu.view.table; t != nil {
		named := t.named()
		for id := range named {
			if m.mu.view.members[id] == nil && id != m.mu.self.id {
				unknown = append(unknown, id)
			}
		}
		for id, s := range m.mu.view.members {
			if s.dead(now) && !named[id] {
				delete(m.mu.view.members, id)
			}
		}
	}
	m.mu.Unlock()
	for _, id := range unknown {
		if err := m.findMember(id); err != nil {
			return now, err
		}
	}
	return now + m.config.Lease, nil
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
		r := m.tableRecord(next, version)
		err = m.call(func(ctx context.Context) (err error) {
			r, err = m.store.Update(ctx, r)
			return err
		})
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
	var records []Record
	err := m.call(func(ctx context.Context) (err error) {
		records, _, err = m.store.List(ctx, m.config.Group)
		return err
	})
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
	for id, s := range m.mu.view.members {
		if !listed[id] && id != m.mu.self.id && !s.dead(m.now()) {
			return false, nil // Or it has come since. The next list shows it then.
		}
	}
	return true, nil
}
