package sharding

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// markOverdue marks the records of members that have not renewed them for a whole lease. By their own clocks
// they are not valid any more, and after the mark they cannot renew their records.
func (m *Member) markOverdue(now time.Duration) (due time.Duration, err error) {
	m.mu.Lock()
	wait, valid := m.turnLocked(now), m.updateValidityLocked()
	due = now + m.config.Lease
	var toMark []string
	for id, k := range m.mu.members {
		at := max(k.expires()+wait, k.retryAt)
		switch {
		case id == m.mu.self.id, k.data.Dead, k.isGone, !valid:
		case k.isFormerSelf && m.anyBusy(): // Its handlers may still run.
		case at > now:
			due = min(due, at)
		case !m.hasRenewedSinceLocked(k.expires()):
			signal(m.toRenew) // A renewal wakes this loop again.
		default:
			toMark = append(toMark, id)
		}
	}
	m.mu.Unlock()
	for _, id := range toMark {
		if err := m.markDead(id); err != nil {
			m.mu.Lock()
			k := m.memberLocked(id)
			k.markErr, k.retryAt = err, m.now()+m.retryDelay() // Each try takes a renewal as well.
			m.mu.Unlock()
			return due, err
		}
	}
	return due, nil
}

// markErrLocked returns an error if this member has not been able for a lease to mark an overdue record.
func (m *Member) markErrLocked() error {
	now := m.now()
	for id, k := range m.mu.members {
		if k.markErr != nil && k.liveness(now) == overdue && now >= k.expires()+m.config.Lease {
			return fmt.Errorf("sharding: cannot mark the record of %s, which is overdue: %w", id, k.markErr)
		}
	}
	return nil
}

// markDead ends the life of an overdue member. It reads the record once more, because the watch may be late,
// and marks it on condition that it has not changed since. A mark stays, and all members see it.
func (m *Member) markDead(id string) error {
	r, err := m.readMember(id)
	m.mu.Lock()
	k := m.memberLocked(id)
	isOverdue := err == nil && r.Version == k.version && k.doubt == 0 && k.liveness(m.now()) == overdue
	d := k.data
	m.mu.Unlock()
	if !isOverdue {
		return err
	}
	d.Format, d.ID, d.Slots, d.Dead = formatVersion, id, m.config.Slots, true // d may be empty.
	r.Data = encode(d, d.unknown)
	if r, err = m.put(r); errors.Is(err, ErrConflict) || errors.Is(err, ErrNotFound) {
		_, err = m.readMember(id)
		return err
	} else if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.updateAndUnlock()
	m.sawMemberLocked(id, r, true)
	m.mu.members[id].markedByMe = true
	m.logger.Warn("A member has not renewed its lease: taking over", "dead", id, "lease", time.Duration(d.Lease))
	return nil
}

// tidyRecords reads records of which this member knows too little, and deletes one that nobody needs any
// more. It deletes one at a time, because each costs two calls.
func (m *Member) tidyRecords(now time.Duration) (due time.Duration, err error) {
	m.mu.Lock()
	if m.mu.view.table == nil {
		m.mu.Unlock()
		return now + m.config.Lease, nil
	}
	toRead := m.toReadLocked()
	toDelete, version, due := m.nextDeletionLocked(now)
	m.mu.Unlock()
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
		return now, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.members[toDelete].retryAt = m.now() + m.config.Lease
	return due, err
}

// nextDeletionLocked returns a dead member's record that the table does not name any more, or when to look
// again. It forgets members whose records are gone.
func (m *Member) nextDeletionLocked(now time.Duration) (id, version string, due time.Duration) {
	due = now + m.config.Lease
	named, wait, valid := m.mu.view.table.allNamed(), m.turnLocked(now), m.updateValidityLocked()
	for other, k := range m.mu.members {
		at := max(k.leaseFrom, k.retryAt) + wait
		switch {
		case k.doubt > 0, named[other], k.liveness(now) != dead, !valid:
		case k.isGone && k.isFormerSelf: // It may still be created.
		case k.isGone:
			delete(m.mu.members, other)
		case m.mu.phase >= leaving: // Others do it.
		case at > now:
			due = min(due, at)
		default:
			id, version = other, k.version
		}
	}
	return id, version, due
}
