package sharding

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// liveness says whether another member lives, as far as this one knows. The first line that holds counts:
//
//	Its record is marked (data.Dead).            dead
//	A read has found no record (isGone).         gone; dead when it expires, if there is no doubt
//	Its record has not changed for a lease.      overdue
//	Otherwise.                                   present
//
// A member that leaves or gives up marks its own record. Others mark that of an overdue member. If somebody
// has deleted a record, its member may not know that, and holds its slots until its lease ends. Only a read
// of its unmarked record makes a gone or dead member present again.
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
	version   string        // of the last record that was believed, and was a change: see verdict
	usable    bool          // decodeOther has accepted that record.
	serial    int64         // of that record, see Member.lastSerial; 0 before the first
	firstSeen time.Duration // when this entry was made
	// leaseFrom is when the lease began: when this entry was made, that record seen, or the member found gone.
	leaseFrom time.Duration
	isGone    bool // A read has found no record, or the watch or a list lacks a marked one.
	// doubt is not 0 while something that was shown contradicts what is known, see verdict: it is the serial of
	// the last such thing. tidyRecords then reads the record. A read that began later ends the doubt, and so
	// does a record that is not doubtful. Until then the member is not alive, and being gone it is not dead.
	doubt        int64
	isFormerSelf bool // This process had that id, and goes on with another one.
	markedByMe   bool
	markErr      error         // why this member could not mark the record
	retryAt      time.Duration // when to try again to mark or delete it
}

func (k *knownMember) liveness(now time.Duration) liveness {
	expired := now >= k.expires()
	switch {
	case k.data.Dead, k.isGone && expired && k.doubt == 0:
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
	if k.isFormerSelf { // Nobody renews that record, and it holds nothing. markOverdue waits for its handlers.
		return k.firstSeen
	}
	return k.leaseFrom + time.Duration(k.data.Lease)
}

// isAlive reports whether the member takes part in the group: it is present, its record usable and certain.
func (k *knownMember) isAlive(now time.Duration) bool {
	return k.usable && k.doubt == 0 && k.liveness(now) == present
}

// takesSlots reports whether the member should have a share of the slots of table t.
func (k *knownMember) takesSlots(t *table, now time.Duration) bool {
	fits := len(contradictions(t.hashes, k.data.Hashes)) == 0
	return k.isAlive(now) && k.data.Queues > 0 && fits && !slices.Contains(t.leaving, k.data.ID)
}

// noteGone notes that there is no record. After a doubt the lease begins anew: the record may have been back.
func (k *knownMember) noteGone(now time.Duration) {
	if !k.isGone || k.doubt > 0 {
		k.isGone, k.leaseFrom = true, now
	}
	k.doubt = 0
}

// memberLocked returns a member's entry. A new one has the longest known lease, until a record shows its own.
func (m *Member) memberLocked(id string) *knownMember {
	k := m.mu.members[id]
	if k == nil {
		now := m.now()
		k = &knownMember{firstSeen: now, leaseFrom: now, isFormerSelf: m.mu.formerSelves[id]}
		k.data.Lease = int64(m.mu.view.longestLease)
		m.mu.members[id] = k
	}
	return k
}

// noteMissingLocked notes that the watch has shown a deletion, or that a list lacks a member's record.
func (m *Member) noteMissingLocked(k *knownMember) {
	switch {
	case k.data.Dead && k.doubt == 0: // A read for each member that leaves would cost much in a large group.
		k.noteGone(m.now())
	case !k.isGone || k.doubt > 0:
		k.doubt = m.lastSerial.Add(1) // Perhaps it has only lost its label: a read shows that.
	}
	signal(m.toWork)
}

// verdict is what to make of a record that was shown. A read is believed, see readMember. The watch and lists
// may be late, and are believed if what they show can follow what is known. A record that they lack may only
// have lost its label. What is neither believed nor old is a doubt, and a read decides. The first line
// counts:
//
//	known is                a record is shown (classify)               it is missing (noteMissingLocked)
//	no record (gone)        a doubt                                    nothing new
//	a mark                  believed; if usable and unmarked, a doubt  believed: it stays dead anyway
//	nothing, or not usable  believed                                   a doubt
//	an unmarked record      believed, unless older and unmarked        a doubt
//
// While there is a doubt, a missing record is another one: a read that began before must not count.
type verdict int

const (
	nothingNew verdict = iota // It is the known record, or an older one.
	doubtful                  // It contradicts what is known.
	changed                   // It is believed, and says something new.
)

// classify says what a record of that version with data d means, and changes nothing. If it is not usable, d
// does not count. isRead: it is not late. A read has shown it, or this member has just written it.
func (k *knownMember) classify(version string, d memberData, usable, isRead bool) verdict {
	// The version alone does not show that it is the known one: after a restore it may have other data.
	isKnown := !k.isGone && k.version == version && k.usable == usable &&
		(!usable || k.data.Sequence == d.Sequence && k.data.Dead == d.Dead)
	comesBack := k.isGone || usable && k.data.Dead && !d.Dead
	// A mark counts whatever its Sequence: it may be on a record that a restore has brought back.
	isOlder := usable && k.usable && d.Sequence < k.data.Sequence && !d.Dead
	switch {
	case isKnown:
		return nothingNew
	case isRead:
		return changed
	case comesBack:
		return doubtful
	case isOlder:
		return nothingNew // It is no renewal; see mustHearOthersLocked.
	}
	return changed
}

// sawMemberLocked notes a member's record. It reports whether workLoop must look again: the record is in
// doubt or unusable, or changes a share or the liveness, or mustHearOthersLocked may have waited for it.
func (m *Member) sawMemberLocked(id string, r Record, isRead bool) (news bool) {
	k := m.memberLocked(id)
	before, livenessBefore := *k, k.liveness(m.now())
	d, err := m.decodeOther(id, r)
	found := k.classify(r.Version, d, err == nil, isRead)
	k.doubt = 0 // The record is there, or was a moment ago.
	switch found {
	case nothingNew:
		return false // The end of a doubt is no news: workLoop looks again for each doubt.
	case doubtful:
		k.doubt = m.lastSerial.Add(1)
		return true
	}
	k.version, k.leaseFrom, k.isGone, k.usable = r.Version, m.now(), false, err == nil
	k.serial = m.lastSerial.Add(1)
	if err != nil { // k.data stays, and with it the length of the lease, and a mark.
		if before.usable || before.version == "" {
			m.logger.Error("Ignoring a member", "member", id, "err", err)
		}
		return true
	}
	k.data = d
	m.noteBoundsLocked(d)
	if t := m.mu.view.table; t != nil && k.isAheadOf(t) { // It knows a later table: read that.
		signal(m.toConfirm)
	}
	wasAwaited := before.serial <= m.mu.self.lastListedSerial
	sharesChange := !before.usable || before.data.Queues != d.Queues || !maps.Equal(before.data.Hashes, d.Hashes)
	return wasAwaited || sharesChange || livenessBefore != k.liveness(m.now())
}

// decodeOther returns the data of a member's record, and an error if this member cannot share slots with it.
func (m *Member) decodeOther(id string, r Record) (memberData, error) {
	d, err := decodeMember(r)
	if err == nil && d.ID != id {
		err = foreign(r, fmt.Errorf("member %q", d.ID))
	} else if err == nil && d.Slots != m.config.Slots {
		err = otherSlots(r, d.Slots, m.config.Slots)
	}
	return d, err
}

// noteBoundsLocked notes the greatest epoch and the longest lease that a member's record names.
func (m *Member) noteBoundsLocked(d memberData) {
	m.mu.view.epochEver = max(m.mu.view.epochEver, d.Epoch)
	m.mu.view.longestLease = max(m.mu.view.longestLease, time.Duration(d.Lease), time.Duration(d.LongestLease))
}

// readMember reads a member's record and returns it, or an empty one if there is none. It notes what it has
// read, unless the watch or a list has shown something since the read began: that may be later.
func (m *Member) readMember(id string) (r Record, err error) {
	began := m.lastSerial.Load()
	r, err = m.get(m.recordName(id))
	isGone := errors.Is(err, ErrNotFound)
	if err != nil && !isGone {
		return r, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if k := m.mu.members[id]; k != nil && max(k.serial, k.doubt) > began {
		signal(m.toWork) // If a doubt is left, tidyRecords reads again.
	} else if isGone {
		m.memberLocked(id).noteGone(m.now())
	} else if m.sawMemberLocked(id, r, true) {
		signal(m.toWork)
	}
	return r, nil
}

// toReadLocked returns the members in doubt, and those that the table names and that have no
// entry yet: the watch may lag behind the table, so only a read that begins now shows that a record is gone.
func (m *Member) toReadLocked() (ids []string) {
	for id := range m.mu.view.table.allNamed() {
		if m.mu.members[id] == nil && id != m.mu.self.id {
			ids = append(ids, id)
		}
	}
	for id, k := range m.mu.members {
		if k.doubt > 0 {
			ids = append(ids, id)
		}
	}
	return ids
}
