package sharding

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// life says whether another member lives, as far as this one knows.
//
//	           not renewed for a lease           this or another member has marked its record
//	present ──────────────────────────▶ overdue ──────────────────────────────────────────────▶ dead
//	   │                                   │                                                      ▲
//	   │  its record is gone: somebody else has deleted it, perhaps a person         a lease later │
//	   └───────────────────────────────────┴───────────────────────────────▶ gone ────────────────┘
//
// A renewal, or a read that shows the record, leads back to present. Who leaves marks its own record, and is
// dead at once. A member whose record was deleted may not know it yet: it keeps its slots for another lease.
type life int

const (
	present life = iota
	overdue
	gone
	dead // Only then may its slots be given away.
)

// knownMember is what this member knows of another one, or of itself, from the records that it has seen.
type knownMember struct {
	data    memberData // from the last usable record; before that one, only its Lease is set
	version string     // of the last record
	// usable: decodeOther has accepted the last record.
	usable bool
	// leaseFrom is when the last renewal was seen, or that the record is gone; extendLeasesLocked moves it.
	firstSeen, leaseFrom time.Duration
	isGone               bool
	// serial is the number of this version: see Member.lastSerial.
	serial int64
	// mustRead: the record must be read, because the watch or a list lacks it, or shows it again.
	mustRead bool
	// markedByMe: this member has marked the record. former: it belongs to an earlier life of this process.
	markedByMe, former bool
	// markErr is why the record could not be marked. retryAt is when to try again to mark or delete it.
	markErr error
	retryAt time.Duration
}

func (k *knownMember) life(now time.Duration) life {
	expired := now >= k.expires()
	switch {
	case k.data.Dead, k.isGone && expired && !k.mustRead:
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
	if k.former { // Nobody renews that record any more.
		return k.firstSeen
	}
	return k.leaseFrom + time.Duration(k.data.Lease)
}

// isAlive reports whether the member takes part in the group, as far as is known.
func (k *knownMember) isAlive(now time.Duration) bool {
	return k.usable && !k.mustRead && k.life(now) == present
}

// takesSlots reports whether the member of that id should have a share of the slots of table t.
func (k *knownMember) takesSlots(id string, t *table, now time.Duration) bool {
	fits := len(contradictions(t.hashes, k.data.Hashes)) == 0
	return k.isAlive(now) && k.data.Queues > 0 && fits && !slices.Contains(t.leaving, id)
}

func (k *knownMember) noteGone(now time.Duration) {
	if !k.isGone {
		k.isGone, k.leaseFrom = true, now
	}
	k.mustRead = false
}

// memberLocked returns the entry of a member. A new one has the longest lease until its record is seen.
func (m *Member) memberLocked(id string) *knownMember {
	k := m.mu.members[id]
	if k == nil {
		now := m.now()
		k = &knownMember{firstSeen: now, leaseFrom: now, former: m.mu.formers[id]}
		k.data.Lease = int64(m.mu.view.lease)
		m.mu.members[id] = k
	}
	return k
}

// noteMissingLocked notes that the watch or a list does not show a member's record any more.
func (m *Member) noteMissingLocked(k *knownMember) {
	switch {
	case k.data.Dead: // It stays dead. A read for each member that leaves would cost much in a large group.
		k.noteGone(m.now())
	case !k.isGone:
		k.mustRead = true // It is still there if it has only lost its label.
	}
	signal(m.toWork)
}

// sawMemberLocked notes a member's record, and reports whether the plan may change with it. A renewal counts
// if it is the member's first since the last list. isRead: a read has shown the record. The watch and lists
// may be late: then the member counts as alive for up to a lease too long, which is harmless.
func (m *Member) sawMemberLocked(id string, r Record, isRead bool) (news bool) {
	k := m.memberLocked(id)
	k.mustRead = false
	d, err := m.decodeOther(id, r)
	usable := err == nil
	// After a restore of a backup, a version may come a second time, with other data.
	sameContent := !usable || k.data.Sequence == d.Sequence && k.data.Dead == d.Dead
	comesBack := k.isGone || usable && k.data.Dead && !d.Dead
	switch {
	case k.version == r.Version && k.usable == usable && sameContent && !k.isGone:
		return false
	case comesBack && !isRead:
		k.mustRead = true // The watch is late, or a restore has brought the record back.
		return true
	case !isRead && usable && k.usable && d.Sequence < k.data.Sequence && !d.Dead:
		return false // The watch is late. An older record is no renewal; see mustHearOthersLocked.
	}
	before, lifeBefore, isFirst := *k, k.life(m.now()), k.version == ""
	k.version, k.leaseFrom, k.isGone, k.usable = r.Version, m.now(), false, usable
	k.serial = m.lastSerial.Add(1)
	if !usable { // k.data stays, and with it the member's lease.
		if before.usable || isFirst {
			m.logger.Error("Ignoring a member", "member", id, "err", err)
		}
		return true
	}
	k.data = d
	m.noteBoundsLocked(d)
	if t := m.mu.view.table; t != nil && k.isAheadOf(t) {
		signal(m.toConfirm)
	}
	// The first renewal after a list is news for mustHearOthersLocked.
	return before.serial <= m.mu.self.lastListedSerial || !before.usable || lifeBefore != k.life(m.now()) ||
		!maps.Equal(before.data.Hashes, d.Hashes) || before.data.Queues != d.Queues
}

// decodeOther returns the data of a member's record, and an error if this member cannot share slots with it.
func (m *Member) decodeOther(id string, r Record) (memberData, error) {
	d, err := decodeMember(r)
	switch {
	case err != nil:
		return d, err
	case d.ID != id:
		return d, foreign(r, fmt.Errorf("member %q", d.ID))
	case d.Slots != m.config.Slots:
		return d, otherSlots(r, d.Slots, m.config.Slots)
	}
	return d, nil
}

// noteBoundsLocked notes the greatest epoch and the longest lease that a member's record names.
func (m *Member) noteBoundsLocked(d memberData) {
	view := &m.mu.view
	view.epoch = max(view.epoch, d.Epoch)
	view.lease = max(view.lease, time.Duration(d.Lease), time.Duration(d.LongestLease))
}
