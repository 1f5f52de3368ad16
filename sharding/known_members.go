package sharding

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// liveness says whether another member lives, as far as this one knows. The first line that holds counts:
//
//	Its record is marked (data.Dead).            dead
//	A read has found no record (isGone).         gone; dead when its lease ends
//	Its record was not renewed for a lease.      overdue
//	Otherwise.                                   present
//
// A member that leaves marks its own record. Others mark the record of an overdue member. If somebody has
// deleted a record, its member may not know that, and holds its slots until its lease ends. A record that is
// marked or gone never comes back.
type liveness int

const (
	present liveness = iota
	overdue          // Its next renewal, or extendLeasesLocked, makes it present.
	gone
	dead // Only now may others give its slots away.
)

// knownMember is what this member knows of another one, or of itself, from the records that it has seen.
type knownMember struct {
	data      memberData    // from the last usable record; until there is one, only its Lease is set
	version   string        // of the last record
	usable    bool          // decodeOther has accepted that record.
	firstSeen time.Duration // when this entry was made
	// leaseFrom is when the lease began: when this entry was made, a renewal seen, or the member found gone.
	leaseFrom time.Duration
	isGone    bool // A read has found no record, or the watch or a list lacks a marked one.
	// mustRead: the watch has shown a deletion, or a list lacks the record, although it had no mark. Perhaps
	// it has only lost its label: tidyRecords reads it. Meanwhile the member gets no slots.
	mustRead   bool
	unmarkable condition // This member cannot mark the record; markErr is the latest reason.
	markErr    error
	retryAt    time.Duration // not before then to try again to mark or delete it
}

func (k *knownMember) liveness(now time.Duration) liveness {
	expired := now >= k.expires()
	switch {
	case k.data.Dead, k.isGone && expired:
		return dead
	case k.isGone:
		return gone
	case expired:
		return overdue
	}
	return present
}

// expires returns when the member's lease ends, unless it renews its record before. A gone one is dead then.
func (k *knownMember) expires() time.Duration {
	return k.leaseFrom + time.Duration(k.data.Lease)
}

// isAlive reports whether the member takes part in the group: it is present, and its record is usable.
func (k *knownMember) isAlive(now time.Duration) bool {
	return k.usable && !k.mustRead && k.liveness(now) == present
}

// takesSlots reports whether the member should have a share of the slots of table t.
func (k *knownMember) takesSlots(t *table, now time.Duration) bool {
	return k.isAlive(now) && k.data.Queues > 0 && !slices.Contains(t.leaving, k.data.ID)
}

// noteGone notes that there is no record.
func (k *knownMember) noteGone(now time.Duration) {
	if !k.isGone {
		k.isGone, k.leaseFrom = true, now
	}
	k.mustRead = false
}

// memberLocked returns a member's entry. A new one has the longest known lease, until a record shows its own.
func (m *Member) memberLocked(id string) *knownMember {
	k := m.mu.members[id]
	if k == nil {
		now := m.now()
		k = &knownMember{firstSeen: now, leaseFrom: now}
		k.data.Lease = int64(m.mu.view.longestLease)
		m.mu.members[id] = k
	}
	return k
}

// noteMissingLocked notes that the watch has shown a deletion, or that a list lacks a member's record.
func (m *Member) noteMissingLocked(k *knownMember) {
	if k.data.Dead { // A read for each member that leaves would cost much in a large group.
		k.noteGone(m.now())
	} else if !k.isGone {
		k.mustRead = true
	}
	signal(m.toWork)
}

// isNews reports whether a record of that version with data d says something new. The watch and lists may be
// late: a mark is the last thing that a record says, and renewals count upwards. If the record is not usable,
// its version alone counts.
func (k *knownMember) isNews(version string, d memberData, usable bool) bool {
	switch {
	case k.isGone, k.version == version:
		return false
	case usable && k.usable:
		return d.Dead || !k.data.Dead && d.Sequence >= k.data.Sequence
	}
	return !k.data.Dead
}

// sawMemberLocked notes a member's record. It reports whether workLoop must look again: the record is not
// usable, or changes a share or the liveness.
func (m *Member) sawMemberLocked(id string, r Record) (news bool) {
	k := m.memberLocked(id)
	d, err := m.decodeOther(id, r)
	if !k.isNews(r.Version, d, err == nil) {
		return false
	}
	before, livenessBefore := *k, k.liveness(m.now())
	k.version, k.usable, k.mustRead = r.Version, err == nil, false
	if err != nil { // k.data stays, and with it the length of the lease.
		isFirst := before.usable || before.version == ""
		if isFirst || !errors.Is(err, errDamaged) { // Only persons edit a damaged one. Others may be renewed.
			k.leaseFrom = m.now()
		}
		if isFirst {
			m.logLocked(slog.LevelError, "Ignoring a member", "member", id, "err", err)
		}
		return true
	}
	if !before.usable || d.Sequence > k.data.Sequence { // Otherwise it is somebody's edit, or a mark.
		k.leaseFrom = m.now()
		k.unmarkable, k.markErr, k.retryAt = condition{}, nil, 0
	}
	k.data = d
	m.noteBoundsLocked(d)
	return !before.usable || before.data.Queues != d.Queues || livenessBefore != k.liveness(m.now())
}

// decodeOther returns the data of a member's record, and an error if this member cannot share slots with it.
func (m *Member) decodeOther(id string, r Record) (memberData, error) {
	d, err := decodeMember(r)
	if err == nil && d.ID != id {
		err = unreadable(r, fmt.Errorf("member %q", d.ID))
	} else if err == nil && d.Slots != m.config.Slots {
		err = otherSlots(r, d.Slots, m.config.Slots)
	}
	return d, err
}

// noteBoundsLocked notes the greatest epoch and the longest lease that a member's record names.
func (m *Member) noteBoundsLocked(d memberData) {
	m.mu.view.epochEver = max(m.mu.view.epochEver, d.Epoch)
	m.mu.view.longestLease = max(m.mu.view.longestLease, time.Duration(d.Lease))
}

// extendLeasesLocked gives the others at least a third of their leases, from now, to renew their records. A
// member that was out of touch itself has not seen their renewals, or they were out of touch with it.
func (m *Member) extendLeasesLocked() {
	for _, k := range m.mu.members {
		if !k.isGone {
			k.leaseFrom = max(k.leaseFrom, m.now()-time.Duration(k.data.Lease)*2/3)
		}
	}
}

// readMember reads a member's record, notes and returns it. The record is empty if it is not stored.
func (m *Member) readMember(id string) (r Record, err error) {
	r, err = m.get(m.recordName(id))
	isGone := errors.Is(err, ErrNotFound)
	if err != nil && !isGone {
		return r, err
	}
	m.update(func() {
		if k := m.memberLocked(id); isGone {
			k.noteGone(m.now())
		} else {
			k.mustRead = false
			m.sawMemberLocked(id, r)
		}
		signal(m.toWork)
	})
	return r, nil
}

// toReadLocked returns the members that must be read, and those that the table names and that have no entry
// yet: the watch may lag behind the table, so only a read that begins now shows that a record is gone.
func (m *Member) toReadLocked() (ids []string) {
	for id := range m.mu.view.table.allNamed() {
		if m.mu.members[id] == nil && id != m.mu.self.id {
			ids = append(ids, id)
		}
	}
	for id, k := range m.mu.members {
		if k.mustRead {
			ids = append(ids, id)
		}
	}
	return ids
}
