package sharding

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// markSilent marks the records of members that have not renewed them for a whole lease. By their own clocks
// they are not valid any more, and after the mark they cannot renew their records.
func (m *Member) markSilent(now time.Duration) (due time.Duration, err error) {
	m.mu.Lock()
	wait := m.turnLocked(now)
	due = now + m.config.Lease
	var silents []string
	for id, s := range m.mu.members {
		if id == m.mu.self.id || s.life(now) >= gone || !m.validLocked() || s.former && m.anyBusy() {
			continue
		}
		expires := s.expires()
		switch at := max(expires+wait, s.retry); {
		case at > now:
			due = min(due, at)
		case !m.hasRenewedSinceLocked(expires):
			signal(m.toRenew) // A renewal wakes this loop again.
		default:
			silents = append(silents, id)
		}
	}
	m.mu.Unlock()
	for _, id := range silents {
		if err := m.markDead(id); err != nil {
			m.mu.Lock()
			s := m.memberLocked(id)
			s.markErr, s.retry = err, m.now()+m.retryDelay() // Each try takes a renewal as well.
			m.mu.Unlock()
			return due, err
		}
	}
	return due, nil
}

// markErrLocked returns an error if this member has not been able for a lease to mark the record of a silent
// one.
func (m *Member) markErrLocked() error {
	now := m.now()
	for id, s := range m.mu.members {
		if s.markErr != nil && s.life(now) == silent && now >= s.expires()+m.config.Lease {
			return fmt.Errorf("sharding: cannot mark the record of %s, which is dead: %w", id, s.markErr)
		}
	}
	return nil
}

// hasRenewedSinceLocked reports whether the member has renewed its own record since then, and since the
// server was last away. This shows that no backup was restored meanwhile, which would have taken back what
// others have written.
func (m *Member) hasRenewedSinceLocked(then time.Duration) bool {
	return m.mu.self.renewed.mono >= max(then, m.mu.unanswered)
}

// markDead ends a silent member's life. It reads the record once more, because the watch may be late, and
// marks it on condition that it has not changed since. A mark stays, and all members see it.
func (m *Member) markDead(id string) error {
	r, err := m.findMember(id)
	m.mu.Lock()
	s := m.memberLocked(id)
	isSilent := err == nil && s.life(m.now()) == silent
	d := s.data
	m.mu.Unlock()
	if !isSilent {
		return err
	}
	d.Format, d.ID, d.Slots, d.Dead = formatVersion, id, m.config.Slots, true // d may be empty.
	r.Data = encode(d, d.unknown)
	if r, err = m.put(r); errors.Is(err, ErrConflict) || errors.Is(err, ErrNotFound) {
		_, err = m.findMember(id)
		return err
	} else if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.unlock()
	m.sawMemberLocked(id, r, true)
	m.mu.members[id].markedByMe = true
	m.logger.Warn("A member has not renewed its lease: taking over", "dead", id, "lease", time.Duration(d.Lease))
	return nil
}

// findHolders reads the records of members that the table names and the watch has not shown, and of those
// that have vanished from it. It deletes marked records that the table does not name any more.
func (m *Member) findHolders(now time.Duration) (due time.Duration, err error) {
	var lost []string
	toDelete, version := "", "" // One at a time: each costs two calls.
	due = now + m.config.Lease
	m.mu.Lock()
	if t := m.mu.view.table; t != nil {
		named := t.named()
		for id := range named {
			if m.mu.members[id] == nil && id != m.mu.self.id {
				lost = append(lost, id)
			}
		}
		for id, s := range m.mu.members {
			switch {
			case s.mustRead:
				lost = append(lost, id)
			case named[id] || s.life(now) != dead || !m.validLocked():
			case s.isGone && s.former: // It may still be created.
			case s.isGone:
				delete(m.mu.members, id)
			case m.mu.leaving: // Others do it.
			default:
				if at := s.leaseFrom + m.turnLocked(now); at > now {
					due = min(due, at)
				} else {
					toDelete, version = id, s.version
				}
			}
		}
	}
	m.mu.Unlock()
	for _, id := range lost {
		if _, err := m.findMember(id); err != nil {
			return now, err
		}
	}
	if toDelete == "" {
		return due, nil
	}
	name := m.recordName(toDelete)
	err = m.call(m.ctx, func(ctx context.Context) error { return m.store.Delete(ctx, name, version) })
	if err == nil || errors.Is(err, ErrNotFound) || errors.Is(err, ErrConflict) {
		_, err = m.findMember(toDelete)
		return now, err
	}
	m.mu.Lock()
	m.mu.members[toDelete].leaseFrom = m.now() + m.config.Lease // The next try. A marked record stays dead.
	m.mu.Unlock()
	return due, err
}

// findMember reads a member's record. Only a read that began after the table was read shows that a record is
// gone: the watch may lag behind the table that names the member.
func (m *Member) findMember(id string) (Record, error) {
	r, err := m.get(m.recordName(id))
	m.mu.Lock()
	defer m.mu.Unlock()
	switch s := m.memberLocked(id); {
	case err == nil:
		if m.sawMemberLocked(id, r, true) {
			signal(m.toWork)
		}
	case errors.Is(err, ErrNotFound):
		s.noteGone(m.now())
		err = nil
	}
	return r, err
}
