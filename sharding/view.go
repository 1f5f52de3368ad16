package sharding

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// view is what a member knows of its group's records. All of it may be old: what must be known for certain is read from
// the store, or is a condition of a write.
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

	members map[string]*seen
	// heard is when the watch reported something last.
	heard time.Duration
	// listed is the version from which to watch.
	listed string
}

// seen is another member's record, or the member's own, as others see it.
type seen struct {
	data    memberData
	version string
	// valid: data is of this library and version.
	valid bool
	// since is when this version was seen for the first time, or when the record was found to be gone.
	since time.Duration
	// gone: the record was deleted. deleted: by this member.
	gone, deleted bool
}

func newView() view {
	return view{members: make(map[string]*seen), adopted: never, confirmed: never}
}

// expired reports whether the member must count as dead if its record has not changed meanwhile. A record that is
// gone although this member did not delete it (somebody else did, or a person with kubectl) may be that of a member that
// does not know it yet, so its slots stay with it for another lease.
func (s *seen) expired(now time.Duration) bool {
	return s.deleted || now-s.since >= time.Duration(s.data.Lease)
}

// dead reports whether the member's slots may be given away.
func (s *seen) dead(now time.Duration) bool { return s.gone && s.expired(now) }

// watchLoop follows the records of the group.
func (m *Member) watchLoop() {
	for {
		m.mu.Lock()
		from := m.mu.view.listed
		m.mu.view.heard = m.now()
		m.mu.Unlock()
		err := m.watch(from)
		if m.sleep(m.ctx, m.retryDelay(), nil) != nil {
			return
		}
		m.logger.Debug("Watching again", "err", err)
		for {
			if err = m.list(); err == nil {
				break
			}
			m.report("Cannot list the records", err)
			if m.sleep(m.ctx, m.retryDelay(), nil) != nil {
				return
			}
		}
	}
}

// watch follows the records from that version on, until the watch ends. The member's own renewals come back by it. A watch
// that does not report them has stalled, and is ended.
func (m *Member) watch(from string) error {
	ctx, cancel := context.WithCancel(m.ctx)
	defer cancel()
	go func() {
		for m.sleep(ctx, m.config.Lease/6, nil) == nil {
			m.mu.Lock()
			silent := m.now() - m.mu.view.heard
			m.mu.Unlock()
			if silent > m.config.Lease/2 {
				cancel()
			}
		}
	}()
	return m.store.Watch(ctx, m.config.Group, from, m.changed)
}

// list reads all records of the group.
func (m *Member) list() error {
	var records []Record
	var version string
	err := m.call(func(ctx context.Context) (err error) {
		records, version, err = m.store.List(ctx, m.config.Group)
		return err
	})
	if err != nil {
		return err
	}
	listed := make(map[string]bool)
	for _, r := range records {
		m.changed(Event{Record: r})
		listed[m.idOf(r)] = true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.view.listed = version
	for id, s := range m.mu.view.members {
		if !listed[id] && !s.gone {
			// It may have come after the list was made. If the table names it, findMember will see.
			delete(m.mu.view.members, id)
		}
	}
	return nil
}

// idOf returns the id of the member whose record r is, or "" if it is none.
func (m *Member) idOf(r Record) string {
	id, ok := strings.CutPrefix(r.Name, m.recordName(""))
	if !ok {
		return ""
	}
	return id
}

// changed is called with each change of a record.
func (m *Member) changed(e Event) {
	if e.Record.Name == m.tableName() {
		m.tableChanged(e)
		signal(m.toWork)
	} else if id := m.idOf(e.Record); id != "" && m.memberChanged(id, e) {
		signal(m.toWork)
	}
}

// memberChanged reports whether there may be something to do: not after a mere renewal.
func (m *Member) memberChanged(id string, e Event) (news bool) {
	m.mu.Lock()
	defer m.look()
	defer m.mu.Unlock()
	m.mu.view.heard = m.now()
	if e.Deleted {
		m.goneLocked(id)
		if id == m.mu.self.id {
			m.mu.self.alive = false
			signal(m.toRenew)
		}
		return true
	}
	return m.sawMemberLocked(id, e.Record)
}

// sawMemberLocked notes a member's record. If it is older than what is known, the member counts as alive for a lease too
// long, which is harmless. It reports whether more is new than that the member lives.
func (m *Member) sawMemberLocked(id string, r Record) (news bool) {
	s := m.memberLocked(id)
	if s.version == r.Version {
		return false
	}
	before := *s
	s.version, s.since, s.gone, s.deleted = r.Version, m.now(), false, false
	d, err := decodeMember(r)
	if err == nil && d.ID != id {
		err = foreign(r, fmt.Errorf("member %q", d.ID))
	}
	if s.valid = err == nil; !s.valid {
		// The member keeps the lease that was known last.
		m.logger.Error("Ignoring a member", "member", id, "err", err)
		return true
	}
	s.data = d
	m.mu.view.epoch = max(m.mu.view.epoch, d.Epoch)
	return before.version == "" || before.gone || !before.valid || before.expired(m.now())
}

// tableChanged is called with each change of the table that the watch reports. A watch may be late, so it only shows
// newer revisions of the table that is known.
func (m *Member) tableChanged(e Event) {
	m.mu.Lock()
	defer m.look()
	defer m.mu.Unlock()
	m.mu.view.heard = m.now()
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

// adoptLocked makes t, a table of the known id, the known one, if it is newer.
func (m *Member) adoptLocked(t *table, version string) {
	view := &m.mu.view
	if t.epoch > view.table.epoch {
		view.table, view.version, view.epoch = t, version, max(view.epoch, t.epoch)
	}
}

// sawTable notes the table that a read or a write, which began at that time, has returned.
func (m *Member) sawTable(r Record, began time.Duration) error {
	t, err := decodeTable(r, m.config.Slots)
	m.mu.Lock()
	defer signal(m.toWork)
	defer m.look()
	defer m.mu.Unlock()
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

// noTable notes that a read that began at that time has found no table.
func (m *Member) noTable(began time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.view.table == nil || began >= m.mu.view.adopted {
		m.mu.view.missing = true
		signal(m.toWork)
	}
}

// findMember reads a member's record that the watch has not shown. Only that shows that it is gone: the watch may lag
// behind the table that names the member. So the table must have been read before.
func (m *Member) findMember(id string) error {
	var r Record
	err := m.call(func(ctx context.Context) (err error) {
		r, err = m.store.Get(ctx, m.recordName(id))
		return err
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err == nil:
		m.sawMemberLocked(id, r)
	case errors.Is(err, ErrNotFound):
		m.goneLocked(id)
	default:
		return err
	}
	return nil
}

// goneLocked notes that a member's record was deleted.
func (m *Member) goneLocked(id string) {
	s := m.memberLocked(id)
	if !s.gone {
		s.gone, s.since = true, m.now()
	}
}

// memberLocked returns what is known of a member. Of one that is new it is nothing but how long it may live.
func (m *Member) memberLocked(id string) *seen {
	s := m.mu.view.members[id]
	if s == nil {
		s = &seen{data: memberData{Lease: int64(m.config.Lease)}, since: m.now()}
		m.mu.view.members[id] = s
	}
	return s
}
