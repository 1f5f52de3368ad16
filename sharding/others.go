package sharding

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

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

// expired reports whether the member must count as dead if its record has not changed meanwhile. A record that is
// gone although this member did not delete it (somebody else did, or a person with kubectl) may be that of a member that
// does not know it yet, so its slots stay with it for another lease.
func (s *seen) expired(now time.Duration) bool {
	return s.deleted || now-s.since >= time.Duration(s.data.Lease)
}

// isAlive reports whether the member takes part in the group, as far as is known.
func (s *seen) isAlive(now time.Duration) bool { return s.valid && !s.gone && !s.expired(now) }

// dead reports whether the member's slots may be given away.
func (s *seen) dead(now time.Duration) bool { return s.gone && s.expired(now) }

// watchLoop follows the records of the group. Join has listed them.
func (m *Member) watchLoop() {
	for err := error(nil); ; err = m.list() {
		if err == nil {
			err := m.watch() // until it breaks off
			m.logger.Debug("The watch has ended", "err", err)
		} else {
			m.report("Cannot list the records", err)
		}
		if m.sleep(m.ctx, m.retryDelay(), nil) != nil {
			return
		}
	}
}

// watch follows the records from the last list on, until the watch ends. The member's own renewals come back by it. A watch
// that does not report them has stalled, and is ended.
func (m *Member) watch() error {
	m.mu.Lock()
	from := m.mu.listed
	m.mu.heard = m.now()
	m.mu.Unlock()
	ctx, cancel := context.WithCancel(m.ctx)
	defer cancel()
	go func() {
		for m.sleep(ctx, m.config.Lease/6, nil) == nil {
			m.mu.Lock()
			silent := m.now() - m.mu.heard
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
	records, version, err := m.listRecords()
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
	m.mu.listed = version
	for id, s := range m.mu.members {
		if !listed[id] && !s.gone {
			// It may have come after the list was made. If the table names it, findMember will see.
			delete(m.mu.members, id)
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
	defer m.applyAndUnlock()
	m.mu.heard = m.now()
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

// goneLocked notes that a member's record was deleted.
func (m *Member) goneLocked(id string) {
	s := m.memberLocked(id)
	if !s.gone {
		s.gone, s.since = true, m.now()
	}
}

// memberLocked returns what is known of a member. Of one that is new it is nothing but how long it may live.
func (m *Member) memberLocked(id string) *seen {
	s := m.mu.members[id]
	if s == nil {
		s = &seen{data: memberData{Lease: int64(m.config.Lease)}, since: m.now()}
		m.mu.members[id] = s
	}
	return s
}

// buryDead deletes the records of members that have not renewed them for a whole lease. Such a member can then not renew
// it any more, although it may not know it yet; by its own clock its validity is over.
func (m *Member) buryDead(now time.Duration) (due time.Duration, err error) {
	m.mu.Lock()
	wait := m.turnLocked(now)
	due = now + m.config.Lease
	dead := make(map[string]string) // versions by id
	for id, s := range m.mu.members {
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
	err := m.call(m.ctx, func(ctx context.Context) error { return m.store.Delete(ctx, m.recordName(id), version) })
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
			if m.mu.members[id] == nil && id != m.mu.self.id {
				unknown = append(unknown, id)
			}
		}
		for id, s := range m.mu.members {
			if s.dead(now) && !named[id] {
				delete(m.mu.members, id)
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

// findMember reads a member's record that the watch has not shown. Only that shows that it is gone: the watch may lag
// behind the table that names the member. So the table must have been read before.
func (m *Member) findMember(id string) error {
	r, err := m.get(m.recordName(id))
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
