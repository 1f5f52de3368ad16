package sharding

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// markOverdue marks the records of members that have not renewed them for a whole lease. By their own clocks
// they are not valid any more, and after the mark they cannot renew their records.
func (m *Member) markOverdue(now time.Duration) (due time.Duration, err error) {
	toMark, due := m.membersToMark(now)
	for _, id := range toMark {
		if err := m.markDead(id); err != nil {
			m.mu.Lock()
			defer m.mu.Unlock()
			k := m.memberLocked(id)
			k.unmarkable.begin(m.now())
			k.markErr, k.retryAt = err, m.now()+m.retryDelay()
			return due, err
		}
	}
	return due, nil
}

// membersToMark returns the overdue members whose record this member should mark now, and when to look again.
func (m *Member) membersToMark(now time.Duration) (toMark []string, due time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	wait, valid := m.turnWaitLocked(now), m.updateValidityLocked()
	due = now + m.config.Lease
	for id, k := range m.mu.members {
		at := max(k.expires()+wait, k.retryAt)
		switch {
		case id == m.mu.self.id, k.data.Dead, k.isGone, !valid: // It needs no mark, or not by this member.
		case at > now:
			due = min(due, at)
		default:
			toMark = append(toMark, id)
		}
	}
	return toMark, due
}

// markDead ends the life of an overdue member. It reads the record once more, because the watch may be late,
// and marks it on condition that it has not changed since. A mark stays, and all members see it.
func (m *Member) markDead(id string) error {
	r, err := m.readMember(id)
	m.mu.Lock()
	k := m.memberLocked(id)
	isOverdue := err == nil && k.liveness(m.now()) == overdue
	d := k.data
	m.mu.Unlock()
	if !isOverdue {
		return err
	}
	d.Format, d.ID, d.Slots, d.Dead = formatVersion, id, m.config.Slots, true // d may be empty.
	r.Group, r.Data = m.config.Group, encode(d)                               // Without label no list has it.
	if r, err = m.put(r); errors.Is(err, ErrConflict) || errors.Is(err, ErrNotFound) {
		_, err = m.readMember(id)
		return err
	} else if err != nil {
		return err
	}
	m.update(func() {
		m.sawMemberLocked(id, r)
		m.logLocked(slog.LevelWarn, "A member has not renewed its lease: taking over",
			"dead", id, "lease", time.Duration(d.Lease))
	})
	return nil
}

// tidyRecords reads records about which this member knows too little, and deletes one that is not needed any
// more. It deletes one at a time, because each costs two calls.
func (m *Member) tidyRecords(now time.Duration) (due time.Duration, err error) {
	toRead, toDelete, version, due := m.untidy(now)
	for _, id := range toRead {
		if _, err := m.readMember(id); err != nil {
			return now, err
		}
	}
	if toDelete == "" {
		return due, nil
	}
	name := m.recordName(toDelete)
	err = m.call(m.ctx, func(ctx context.Context) error { return m.store.Delete(ctx, name, version) })
	if err == nil || errors.Is(err, ErrNotFound) || errors.Is(err, ErrConflict) {
		_, err = m.readMember(toDelete)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.memberLocked(toDelete)
	if k.isGone {
		return now, err
	}
	k.retryAt = m.now() + m.config.Lease // Somebody has edited it, or it cannot be deleted.
	return due, err
}

// untidy returns the members to read, and a dead one's record that the table does not name any more, or when
// to look again. It forgets members whose records are gone.
func (m *Member) untidy(now time.Duration) (toRead []string, toDelete, version string, due time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	due = now + m.config.Lease
	if m.mu.view.table == nil {
		return nil, "", "", due
	}
	named, wait, valid := m.mu.view.table.allNamed(), m.turnWaitLocked(now), m.updateValidityLocked()
	for other, k := range m.mu.members {
		at := max(k.leaseFrom, k.retryAt) + wait
		switch {
		case k.mustRead, named[other], k.liveness(now) != dead, !valid: // It must stay, or must be read first.
		case k.isGone:
			delete(m.mu.members, other)
		case m.mu.phase >= leaving: // Others do it.
		case at > now:
			due = min(due, at)
		default:
			toDelete, version = other, k.version
		}
	}
	return m.toReadLocked(), toDelete, version, due
}
