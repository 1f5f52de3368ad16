package sharding

import (
	"errors"
	"log/slog"
	"time"
)

// ownRecord is the member's record. docs/project/sharding.md says why client-go cannot keep it.
type ownRecord struct {
	id           string
	version, uid string // empty until the record is stored
	// sequence counts attempts to write the record, and the last one began at attempted. storedSequence is
	// the attempt that was in the record when it was seen last.
	sequence, storedSequence int64
	attempted                moment
	// alive: as far as the member knows, its record is there, unmarked, so nobody gives its slots away.
	alive   bool
	renewed moment // when the last attempt began that is known to have succeeded
	// follows is the table that the record names. The record has been stored with it at followsSince or
	// earlier.
	follows      string
	followsSince time.Duration
}

// newSelf returns the beginning of a new life. Its id was never used.
func (m *Member) newSelf() ownRecord {
	return ownRecord{id: m.config.newID(idName(m.config.Name)), alive: true,
		renewed: neverMoment, followsSince: never, follows: m.mu.self.follows}
}

// renew creates the member's record, or writes it again.
func (m *Member) renew() error {
	for range 3 {
		r, d, ok := m.nextAttempt()
		if !ok {
			return nil
		}
		if upToDate, err := m.writeSelf(r, d); err != nil {
			return err
		} else if upToDate {
			return nil
		}
	}
	return ErrConflict
}

// writeSelf makes an attempt to write the record. If it returns false and no error, renew makes another.
func (m *Member) writeSelf(r Record, d memberData) (upToDate bool, err error) {
	creates := r.Version == ""
	if creates && d.Sequence > 1 {
		// The first attempt to create it has reported an error. If it succeeded nevertheless, others may have
		// ended the record's life by now, and a second one could bring back a member that they take for dead.
		return m.readSelf()
	}
	r, err = m.put(r)
	switch {
	case err == nil:
		return m.noteStored(d, r)
	case creates && (errors.Is(err, ErrNotFound) || errors.Is(err, ErrRefused)):
		// There is no namespace, or a quota is used up. It was not created, for certain.
		m.mu.Lock()
		m.mu.self.sequence = 0
		m.mu.Unlock()
	case errors.Is(err, ErrNotFound):
		m.died()
		return false, nil
	case errors.Is(err, ErrConflict): // The record has an earlier attempt, or a mark.
		return m.readSelf()
	}
	return false, err
}

// nextAttempt begins an attempt to write the record. It returns false if the member has left or ended.
func (m *Member) nextAttempt() (r Record, d memberData, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.phase >= retiring || m.mu.restored {
		return r, d, false
	}
	m.mu.self.sequence++
	m.mu.self.attempted = m.nowByBoth()
	r, d = m.selfRecordLocked(m.tableToFollowLocked(), false)
	return r, d, true
}

// selfRecordLocked returns the member's record. If it is dead, the record ends the member's life.
func (m *Member) selfRecordLocked(follows string, isDead bool) (Record, memberData) {
	self := &m.mu.self
	d := memberData{
		Format: formatVersion, ID: self.id, Sequence: self.sequence, Lease: int64(m.config.Lease),
		Slots: m.config.Slots, Queues: m.queuesIfAllLocked(),
		Table: follows, Epoch: m.mu.view.epochEver, Dead: isDead}
	held, _ := m.countLocked()
	return Record{
		Name: m.recordName(self.id), Group: m.config.Group, Version: self.version, Data: encode(d),
		Holder: self.id, Lease: m.config.Lease, Renewed: m.config.Clock.Now(), Held: held}, d
}

// tableToFollowLocked returns the id of the table that the record should name. By naming a new one the member
// says that it holds nothing by the last one any more.
func (m *Member) tableToFollowLocked() string {
	if t := m.mu.view.table; t != nil && m.mu.view.unusable == nil {
		return t.id
	}
	return m.mu.self.follows
}

// noteStored notes that record r is stored, which has d. It reports whether that is the last attempt. Then
// validity counts from its beginning: others may have seen it at any time since.
func (m *Member) noteStored(d memberData, r Record) (upToDate bool, err error) {
	m.update(func() { upToDate, err = m.noteStoredLocked(d, r) })
	return upToDate, err
}

func (m *Member) noteStoredLocked(d memberData, r Record) (upToDate bool, err error) {
	self := &m.mu.self
	if d.Sequence < self.storedSequence {
		return false, m.endRestoredLocked("the member's record is older than what it has written")
	}
	self.version, self.uid, self.storedSequence = r.Version, r.UID, d.Sequence
	m.sawMemberLocked(self.id, r)
	if self.follows != d.Table || self.followsSince == never {
		self.follows, self.followsSince = d.Table, m.now()
		signal(m.toRefresh)
	}
	if d.Sequence < self.sequence { // renew makes another attempt.
		return false, nil
	}
	if self.attempted.since(self.renewed) > m.config.Lease*2/3 || self.renewed.mono < m.mu.health.failedAt {
		m.extendLeasesLocked() // It was out of touch.
	}
	self.renewed = self.attempted
	return true, nil
}

// readSelf reads the record after a write that may have failed, and reports whether the last one succeeded.
func (m *Member) readSelf() (upToDate bool, err error) {
	id := m.ID()
	r, err := m.get(m.recordName(id))
	if errors.Is(err, ErrNotFound) {
		m.died()
		return false, nil
	}
	if err != nil {
		return false, err
	}
	d, err := decodeMember(r)
	if err != nil || d.ID != id || d.Dead || m.isRemade(r) {
		m.died()
		return false, nil
	}
	return m.noteStored(d, r)
}

// isRemade reports whether the member's record was deleted, and somebody has made it again. Others may have
// found it gone meanwhile, and then believe nothing that it says.
func (m *Member) isRemade(r Record) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.self.uid != "" && m.mu.self.uid != r.UID
}

// died ends the life of a member whose record is gone, or marked: others may give its slots away at any time.
// The process continues as a new member, without slots.
func (m *Member) died() {
	m.update(func() {
		self := &m.mu.self
		if m.mu.phase >= retiring { // It has marked the record itself.
			return
		}
		if self.version != "" {
			m.logLocked(slog.LevelError,
				"The member's record is gone, or others marked it as dead. Continuing as a new member",
				"member", self.id)
			m.mu.counters.LostLeases++
		}
		self.alive = false
		m.updateSlotsLocked() // It drops all slots.
		m.mu.self = m.newSelf()
	})
}
